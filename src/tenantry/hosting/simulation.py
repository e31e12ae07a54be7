"""Simulated nodes: who simulates them, and how a Node is one of them. Pure.

Source: kwok, "Node" (managed by annotation, or by label).
"""

from tenantry.api.marks import HANDOVER_RECORD

USER = "tenantry:kwok"
"""The user name of the program that simulates nodes."""

MARK, MARKED = "kwok.x-k8s.io/node", "fake"
"""The annotation of a simulated Node, and its label, and the value of both.

The simulator of a local cluster selects the label: the API server then reports a Node that comes back from another
cluster as added. With the annotation, which kwok compares itself, that would be a change, and kwok 0.8 renews leases of
Nodes only that were added: one that was away when kwok started would stay NotReady. In other clusters, kwok selects the
annotation.
"""

NO_CONTAINERS = frozenset({MARK, HANDOVER_RECORD})
"""Annotations of Nodes on which no pod of their cluster runs: simulated ones, and those that serve other clusters."""
