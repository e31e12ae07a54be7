"""Tracks the addresses of nodes and of the cluster's DNS, for the network policies of all tenants.

The tenants that a change concerns are reconciled once for all changes within `WINDOW_SECONDS`: a cluster that grows by
a hundred nodes rewrites policies a few times, not a hundred times. This controller writes nothing itself, so it has no
plan: the plans of the reconciled tenants have the new addresses among their inputs.

    gather   read(cluster) ─► ClusterAddresses        desired   concerned(before, after) ─► isolations to reconcile
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
from tenantry.controllers.frozeninput import FrozenInput
from tenantry.controllers.network import ClusterAddresses, cluster_addresses
from tenantry.controllers.watched import tenant_of
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.world.addresses import addresses_of

WINDOW_SECONDS = 2.0
"""How long changes are collected."""

_ALL = "all"


class AddressCache(FrozenInput[ClusterAddresses]):
    """The addresses that the plans of tenants use now. The address controller and those of namespaces share it."""

    def __init__(self) -> None:
        super().__init__(read)


def concerned(before: ClusterAddresses, after: ClusterAddresses) -> frozenset[NetworkIsolation]:
    """Return the isolations of the namespaces whose policies differ after a change of addresses."""
    if before.dns != after.dns:
        return frozenset({NetworkIsolation.ISOLATED, NetworkIsolation.BASELINE})
    # Isolated namespaces reach no address outside of their zone, so nodes and kept CIDRs do not concern them.
    return frozenset({NetworkIsolation.BASELINE}) if before != after else frozenset()


def read(cluster: Cluster) -> ClusterAddresses:
    """Read the addresses from the caches."""
    nodes: Iterable[Node] = cluster.cache(Node.resource)
    found: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(NAME)
    return around(nodes, found)


def around(nodes: Iterable[Node], found: TenancyDefaults | None) -> ClusterAddresses:
    """Return the addresses of the cluster that network policies name.

    Args:
        nodes: All nodes.
        found: The TenancyDefaults; None if there are none.
    """
    return cluster_addresses((address for node in nodes for address in addresses_of(node)), _network(found))


def _network(found: TenancyDefaults | None) -> NetworkDefaults:
    return found.spec.network if found is not None else NetworkDefaults()


class AddressController:
    """Reconciles tenants and Subnamespaces after a change of addresses; there is one key.

    Args:
        addresses: Shared with the controllers of namespaces.
    """

    name = "addresses"
    kind = AddressCache

    def __init__(self, addresses: AddressCache) -> None:
        self._addresses = addresses
        # The end of the delay, by the monotonic clock; None while no change is waiting.
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
        # The delay begins with the first change and is not extended: a cluster that scales all the time must still
        # converge.
        if self._due is None:
            self._due = now + WINDOW_SECONDS
        if now < self._due:
            return self._due - now
        self._due = None
        isolations = concerned(*self._addresses.renew(cluster))
        namespaces: Iterable[Observed] = cluster.cache(Namespace.resource)
        # Only namespaces with a policy that names addresses: an Open tenant has none.
        for namespace in namespaces if isolations else ():
            if namespace.labels.get(NETWORK) in isolations and tenant_of(namespace):
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
