"""Which nodes of the host a control plane shows whose `spec.nodes` is Slice. The glue.

labels of the namespace ─► its slice ─┐
labels of the nodes ──────────────────┴─► the nodes of the slice ─► ShownNodes
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SLICE
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import PlaneNodes
from tenantry.controllers import watched
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.mirror.shownnodes import ShownNodes
from tenantry.mirror.uppernodes import UpperNodes


def shown(wished: PlaneNodes, upper_nodes: UpperNodes, namespace: str, home: Cluster) -> list[ShownNodes]:
    """Return the controller that shows nodes before pods run on them; none if only used ones are shown.

    Args:
        wished: Which nodes are shown.
        upper_nodes: The nodes inside.
        namespace: Its slice has the nodes.
        home: See `SliceNodes`.
    """
    return [ShownNodes(upper_nodes, SliceNodes(namespace, home))] if wished is PlaneNodes.SLICE else []


class SliceNodes:
    """The nodes of the slice of a namespace; see `NodeChoice`.

    Args:
        namespace: The namespace.
        home: Its caches have the namespaces and the nodes.
    """

    def __init__(self, namespace: str, home: Cluster) -> None:
        self._namespace = namespace
        self._home = home

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """See `NodeChoice`."""

        def of_node(change: Change[Node]) -> Iterable[str]:
            before, after = (_slice_of(each) for each in (change.before, change.after))
            return keys() if before != after else ()

        def of_namespace(change: Change[Observed]) -> Iterable[str]:
            found = change.after or change.before
            if found is None or found.name != self._namespace:
                return ()
            before, after = (each.labels.get(SLICE, "") if each else "" for each in (change.before, change.after))
            return keys() if before != after else ()

        found = (watched.nodes(of_node), watched.watch(Namespace.resource, of_namespace))
        return [msgspec.structs.replace(each, cluster=self._home) for each in found]

    def names(self) -> Collection[str]:
        """See `NodeChoice`."""
        namespace = self._home.lookup(Namespace.resource, self._namespace)
        own = namespace.labels.get(SLICE, "") if namespace is not None else ""
        nodes: Cache[Node] = self._home.cache(Node.resource)
        return {each.key for each in nodes if own and _slice_of(each) == own}


def _slice_of(node: Node | None) -> str:
    """Return the slice that a node belongs to; "" for none, also while the node is being deleted."""
    return node.metadata.labels.get(SLICE, "") if node is not None and not node.metadata.deletion_timestamp else ""
