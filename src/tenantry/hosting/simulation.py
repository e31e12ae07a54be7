"""Simulated nodes: who simulates them, and how a Node is one of them. Pure.

Source: kwok, "Node" (managed by annotation).
"""

from tenantry.api.marks import HANDOVER_RECORD

USER = "tenantry:kwok"
"""The user name of the program that simulates nodes."""

MARK, MARKED = "kwok.x-k8s.io/node", "fake"
"""The annotation of a simulated Node, and its value."""

NO_CONTAINERS = frozenset({MARK, HANDOVER_RECORD})
"""Annotations of Nodes on which no pod of their cluster runs: simulated ones, and those that serve other clusters."""
