"""The node of the host that a control plane shows before it has pods: pure.

Programs, and Kubernetes' own tests, pick an existing Node, and a DaemonSet makes no pod without one. It is one on which
pods of the namespace can run, because a pod that selects another one would stay Pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenantry.api.marks import SLICE, SLICE_RESERVED
from tenantry.api.node import Node

_TROUBLE = "node.kubernetes.io/"
"""The domain of taints that Kubernetes sets while a node has a problem, and takes away by itself."""

_REPELLING = frozenset({"NoSchedule", "NoExecute"})


def choose(nodes: Iterable[Node], namespace: Mapping[str, str]) -> str:
    """Return the name of a node on which pods of a namespace can run; "" if there is none.

    Args:
        nodes: Of the host.
        namespace: The labels of the namespace.
    """
    usable = [each for each in nodes if _is_usable(each, namespace.get(SLICE, ""))]
    best = min(usable, key=lambda each: (not _takes_pods(each), each.metadata.name), default=None)
    return best.metadata.name if best is not None else ""


def _is_usable(node: Node, own_slice: str) -> bool:
    labels = node.metadata.labels
    if node.metadata.deletion_timestamp or labels.get(SLICE, "") != own_slice:
        return False
    if own_slice:
        return True
    repelling = (each for each in node.spec.taints if each.effect in _REPELLING)
    return SLICE_RESERVED not in labels and all(each.key.startswith(_TROUBLE) for each in repelling)


def _takes_pods(node: Node) -> bool:
    return node.is_ready and not node.spec.unschedulable
