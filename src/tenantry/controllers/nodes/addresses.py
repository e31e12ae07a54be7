"""Keeps in mind where nodes and the cluster's DNS are, for the network policies of all tenants.

Every tenant that a change concerns is reconciled a moment later, once for all changes until then: a cluster that grows
by a hundred nodes rewrites policies a few times, not a hundred times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import NETWORK, PARENT, SUBNAMESPACE, TENANT
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME, NetworkDefaults, TenancyDefaults
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.controllers import watched
from tenantry.controllers.network import ClusterAddresses, cluster_addresses
from tenantry.controllers.watched import tenant_of
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed

WINDOW_SECONDS = 2.0
"""How long changes are gathered."""

_ALL = "all"
_TYPES = frozenset({"InternalIP", "ExternalIP"})


def addresses_of(node: Node) -> frozenset[str]:
    """Return where a node is reached."""
    return frozenset(each.address for each in node.status.addresses if each.type in _TYPES)


class AddressCache:
    """What is known of the cluster; read when it is needed first."""

    def __init__(self) -> None:
        self._known: ClusterAddresses | None = None

    def current(self, cluster: Cluster) -> ClusterAddresses:
        """Return what policies are to be made of now: it changes only by `renew`."""
        if self._known is None:
            self._known = _read(cluster)
        return self._known

    def renew(self, cluster: Cluster) -> frozenset[NetworkIsolation]:
        """Read it anew, and return the isolations of those whose policies are others now."""
        before, after = self.current(cluster), _read(cluster)
        self._known = after
        if before.dns != after.dns:
            return frozenset({NetworkIsolation.ISOLATED, NetworkIsolation.BASELINE})
        return frozenset({NetworkIsolation.BASELINE}) if before != after else frozenset()


def _read(cluster: Cluster) -> ClusterAddresses:
    nodes: Iterable[Node] = cluster.cache(Node.resource)
    found: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(NAME)
    return around(nodes, found)


def around(nodes: Iterable[Node], found: TenancyDefaults | None) -> ClusterAddresses:
    """Return what is around all tenants.

    Args:
        nodes: All nodes.
        found: TenancyDefaults; None where there are none.
    """
    return cluster_addresses((address for node in nodes for address in addresses_of(node)), _network(found))


def _network(found: TenancyDefaults | None) -> NetworkDefaults:
    return found.spec.network if found is not None else NetworkDefaults()


class AddressController:
    """Tells tenants and Subnamespaces of new addresses; there is one key.

    Args:
        addresses: What the others go by.
    """

    name = "addresses"
    kind = AddressCache

    def __init__(self, addresses: AddressCache) -> None:
        self._addresses = addresses
        # When what has changed is told; None while nothing has.
        self._due: float | None = None

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; a node's heartbeat does not."""
        return [
            watched.nodes(_moved),
            watched.defaults(_network_changed),
            watched.watch(Namespace.resource, lambda _: ()),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Requeue every namespace whose policies still list the old addresses, once the delay is over."""
        now = cluster.clock.monotonic()
        if self._due is None:
            self._due = now + WINDOW_SECONDS
        if now < self._due:
            return self._due - now
        self._due = None
        concerned = self._addresses.renew(cluster)
        namespaces: Iterable[Observed] = cluster.cache(Namespace.resource)
        for namespace in namespaces if concerned else ():
            if namespace.labels.get(NETWORK) in concerned and tenant_of(namespace):
                _wake(cluster, namespace)
        return None


def _wake(cluster: Cluster, namespace: Observed) -> None:
    name = namespace.labels.get(SUBNAMESPACE)
    if name:
        cluster.wake(Subnamespace, object_key(namespace.labels.get(PARENT, ""), name))
    else:
        cluster.wake(Tenant, namespace.labels[TENANT])


def _moved(change: Change[Node]) -> Iterable[str]:
    before, after = change.before, change.after
    if before is not None and after is not None:
        return [_ALL] if addresses_of(before) != addresses_of(after) else ()
    node = after or before
    return [_ALL] if node is not None and addresses_of(node) else ()


def _network_changed(change: Change[TenancyDefaults]) -> Iterable[str]:
    return [_ALL] if _network(change.before) != _network(change.after) else ()
