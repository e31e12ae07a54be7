"""Tracks the addresses of nodes, of the cluster's DNS and of ingress controllers, for the policies of all tenants.

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
from tenantry.controllers.frozeninput import CHANGED, FrozenInput, FrozenInputController
from tenantry.controllers.network import ClusterAddresses, cluster_addresses
from tenantry.controllers.watched import tenant_of
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.world.addresses import addresses_of


class AddressCache(FrozenInput[ClusterAddresses]):
    """The addresses that the plans of tenants use now. The address controller and those of namespaces share it."""

    def __init__(self) -> None:
        super().__init__(read)


def concerned(before: ClusterAddresses, after: ClusterAddresses) -> frozenset[NetworkIsolation]:
    """Return the isolations of the namespaces whose policies differ after a change of addresses."""
    if (before.dns, before.controllers) != (after.dns, after.controllers):
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


class AddressController(FrozenInputController[ClusterAddresses]):
    """Reconciles tenants and Subnamespaces whose policies still list old addresses; there is one key."""

    name = "addresses"
    kind = AddressCache

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; a node's heartbeat does not."""
        return [
            watched.nodes(_moved),
            watched.defaults(_network_changed),
            watched.watch(Namespace.resource, lambda _: ()),
        ]

    def _requeue(self, cluster: Cluster, before: ClusterAddresses, after: ClusterAddresses) -> None:
        isolations = concerned(before, after)
        namespaces: Iterable[Observed] = cluster.cache(Namespace.resource)
        # Only namespaces with a policy that names addresses: an Open tenant has none.
        for namespace in namespaces if isolations else ():
            if namespace.labels.get(NETWORK) in isolations and tenant_of(namespace):
                _wake(cluster, namespace)


def _wake(cluster: Cluster, namespace: Observed) -> None:
    name = namespace.labels.get(SUBNAMESPACE)
    if name:
        cluster.wake(Subnamespace, object_key(namespace.labels.get(PARENT, ""), name))
    else:
        cluster.wake(Tenant, namespace.labels[TENANT])


def _moved(change: Change[Node]) -> Iterable[str]:
    before, after = change.before, change.after
    if before is not None and after is not None:
        return [CHANGED] if addresses_of(before) != addresses_of(after) else ()
    node = after or before
    return [CHANGED] if node is not None and addresses_of(node) else ()


def _network_changed(change: Change[TenancyDefaults]) -> Iterable[str]:
    return [CHANGED] if _network(change.before) != _network(change.after) else ()
