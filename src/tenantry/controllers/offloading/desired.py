"""Which namespaces should exist at which peer, and how their own namespaces are marked for it: pure.

NamespaceOffloadings, their tenants, labels of peers ─► wanted ─► NamespaceMap.spec.desired of each peer
NamespaceMap.spec.desired of all peers               ─► marks  ─► the namespace, which policies on pods read
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.offloading import (
    DEFAULTED,
    MOST_BYTES,
    MOST_NAMESPACES,
    OFFLOADING,
    DesiredNamespace,
    NamespaceMap,
    NamespaceOffloading,
    NamespaceOffloadingSpec,
    PodStrategy,
    ServiceReflection,
)
from tenantry.api.quota import Quantity, Quota
from tenantry.api.tenancydefaults import FederationDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.offloading.leaving import is_gone
from tenantry.world.naming import peer_name, workspace_name
from tenantry.world.quantity import parse
from tenantry.world.quota import normal
from tenantry.world.selectors import meets

PeerLabels = Mapping[str, Mapping[str, str]]
"""The labels by which each peer is selected, by the name of its PeerCluster; only those with a host half."""


class OffloadingInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which namespaces exist at one peer.

    Args:
        peer: The PeerCluster.
        labels: Those by which it is selected; None if it has no host half, or is being deleted.
        offloadings: All NamespaceOffloadings.
        tenants: The Tenant of each of their namespaces, by the namespace; those of no tenant are left out.
        occupied: Namespaces with pods at the peer: they stay until those are gone.
        before: `spec.desired` of the NamespaceMap as it is.
    """

    peer: str
    labels: Mapping[str, str] | None
    offloadings: Collection[NamespaceOffloading]
    tenants: Mapping[str, Tenant]
    occupied: Collection[str]
    before: Mapping[str, DesiredNamespace]


def wanted(inputs: OffloadingInputs) -> dict[str, DesiredNamespace]:
    """Return `spec.desired` of the NamespaceMap of a peer."""
    found = _allowed(inputs)
    kept = {
        namespace: replace(each, leaving=True)
        for namespace, each in inputs.before.items()
        if namespace in inputs.occupied
    }
    every = {**kept, **found}
    # Those that are there stay: another one must not take their place.
    order = sorted(every, key=lambda namespace: (namespace not in inputs.before, namespace))
    fitting, total = dict[str, DesiredNamespace](), 0
    for namespace in order:
        total += size(namespace, every[namespace])
        if namespace in inputs.before or (total <= MOST_BYTES and len(fitting) < MOST_NAMESPACES):
            fitting[namespace] = every[namespace]
    return dict(sorted(fitting.items()))


def has_room(desired: Mapping[str, DesiredNamespace], found: NamespaceOffloading, tenant: Tenant | None) -> bool:
    """Return whether a NamespaceMap has room for another namespace."""
    total = sum(size(namespace, each) for namespace, each in desired.items())
    another = size(found.metadata.namespace, _desired(found, tenant))
    return len(desired) < MOST_NAMESPACES and total + another <= MOST_BYTES


def size(namespace: str, each: DesiredNamespace) -> int:
    """Return how many bytes of a NamespaceMap a namespace takes."""
    return len(namespace) + len(msgspec.json.encode(each))


def _allowed(inputs: OffloadingInputs) -> dict[str, DesiredNamespace]:
    found: dict[str, DesiredNamespace] = {}
    for each in inputs.offloadings:
        namespace = each.metadata.namespace
        tenant, before = inputs.tenants.get(namespace), inputs.before.get(namespace)
        if tenant is None or not _may_be_there(inputs, each):
            continue
        if not above(each, tenant):
            found[namespace] = _desired(each, tenant)
        elif before is not None:
            # Pods run there already: they keep the share that they have.
            kept = _desired(each, tenant)
            found[namespace] = replace(kept, hard=before.hard, share=before.share)
    return found


def _may_be_there(inputs: OffloadingInputs, found: NamespaceOffloading) -> bool:
    """Return whether a namespace may exist at the peer, whatever its share is."""
    namespace = found.metadata.namespace
    tenant, before = inputs.tenants.get(namespace), inputs.before.get(namespace)
    if tenant is None or inputs.labels is None or not is_wanted(found, inputs.peer, inputs.labels, tenant):
        return False
    # If it belongs to another tenant now, its pods first leave the Workspace of the one before.
    return before is None or before.workspace in {"", _workspace(tenant)}


def _desired(found: NamespaceOffloading, tenant: Tenant | None) -> DesiredNamespace:
    hard = {key: str(value) for key, value in found.spec.quota.hard.items()}
    name = peer_name(found.metadata.namespace)
    return DesiredNamespace(
        name=name,
        tenant=tenant.metadata.name if tenant is not None else "",
        workspace=_workspace(tenant) if tenant is not None else "",
        hard=hard,
        share=_share(found),
        mapping_strategy=found.spec.mapping_strategy,
        services=found.spec.reflection.services is ServiceReflection.ALL,
    )


def _workspace(tenant: Tenant) -> str:
    return workspace_name(tenant.metadata.name, tenant.metadata.uid)


def _share(found: NamespaceOffloading) -> dict[str, str]:
    try:
        return normal(found.spec.share.hard)
    except InputError:
        return {}  # as in `above`


def selects(found: NamespaceOffloading, labels: Mapping[str, str]) -> bool:
    """Return whether a NamespaceOffloading selects a peer that has labels; without a selector, it selects every one."""
    selector = found.spec.cluster_selector
    if isinstance(selector, UnsetType):
        return True
    return any(
        all(meets(labels, each.key, each.operator, each.values) for each in term.match_expressions)
        for term in selector.node_selector_terms
    )


def is_wanted(found: NamespaceOffloading, peer: str, labels: Mapping[str, str], tenant: Tenant | None) -> bool:
    """Return whether a namespace should exist at a peer."""
    is_allowed = tenant is not None and peer in tenant.spec.isolation.federation.peers
    return is_allowed and not found.metadata.deletion_timestamp and selects(found, labels)


def above(found: NamespaceOffloading, tenant: Tenant | None) -> str:
    """Return the key, with its path, that is above the quota of the whole tenant; "" for none."""
    if tenant is None:
        return ""
    try:
        whole = normal(tenant.spec.quota.hard)
        both = [("quota", normal(found.spec.quota.hard)), ("share", normal(found.spec.share.hard))]
    except InputError:
        return ""  # the CRDs refuse such quotas, but for a few that the status of the Tenant reports
    return next(
        (
            f"spec.{field}.hard: {key}"
            for field, hard in both
            for key, value in hard.items()
            if key in whole and parse(value) > parse(whole[key])
        ),
        "",
    )


def unlimited(found: NamespaceOffloading, tenant: Tenant | None) -> list[str]:
    """Return the keys of `spec.share` that the tenant's quota does not limit: nothing of them can be moved."""
    if tenant is None:
        return []
    try:
        return sorted(normal(found.spec.share.hard).keys() - normal(tenant.spec.quota.hard).keys())
    except InputError:
        return []  # as in `above`


def leaving(inputs: OffloadingInputs) -> list[str]:
    """Return the namespaces whose pods must leave the peer."""
    # One that is there stays with the share that it has, even if a larger one is above the quota of its tenant.
    staying = {each.metadata.namespace for each in inputs.offloadings if _may_be_there(inputs, each)}
    return sorted(set(inputs.before) - staying)


# -- the namespace itself -------------------------------------------------------------------------


def marked(
    found: NamespaceOffloading | None,
    tenant: Tenant | None,
    maps: Mapping[str, NamespaceMap],
    peers: PeerLabels,
    audiences: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the strategy of a namespace, the peers that its pods may tolerate, and the audiences of these, by marks.

    A token may travel if every one of the peers may have it: the scheduler chooses among them later.

    All at once, before the peers have answered: each change of the namespace wakes other controllers.

    Args:
        found: Its NamespaceOffloading; None for none.
        tenant: Its Tenant; None for none.
        maps: The NamespaceMaps by peer.
        peers: The labels of peers.
        audiences: By peer, the audiences whose tokens go there.
    """
    if found is None or found.metadata.deletion_timestamp or tenant is None:
        return {}
    strategy = found.spec.pod_strategy
    chosen = [name for name, labels in sorted(peers.items()) if is_wanted(found, name, labels, tenant)]
    names = [name for name in chosen if _takes_pods(found, tenant, maps.get(name))]
    if strategy is PodStrategy.LOCAL or not names:
        return {marks.POD_STRATEGY: strategy.value}
    common = sorted(set[str].intersection(*(set(audiences.get(name, ())) for name in names)))
    tokens = {marks.AUDIENCES: ",".join(common)} if common else {}
    return {marks.POD_STRATEGY: strategy.value, marks.PEERS: ",".join(names), **tokens}


def _takes_pods(found: NamespaceOffloading, tenant: Tenant, of_peer: NamespaceMap | None) -> bool:
    """Return whether pods of a namespace may be bound to the Node of a peer that it selects."""
    namespace = found.metadata.namespace
    there = of_peer.spec.desired if of_peer is not None else {}
    if namespace not in there and (above(found, tenant) or not has_room(there, found, tenant)):
        return False
    known = of_peer.status.current.get(namespace) if of_peer is not None else None
    # A pod that may run here as well must not wait for a peer that refuses the namespace.
    is_refused = known is not None and is_gone(known)
    return not is_refused or found.spec.pod_strategy is PodStrategy.REMOTE


def marking(labels: Mapping[str, str], annotations: Mapping[str, str], wished: Mapping[str, str]) -> Json:
    """Return the merge patch of the metadata of a namespace; {} if it has its marks."""
    found: Json = {}
    for where, there, mark in (
        ("labels", labels, marks.POD_STRATEGY),
        ("annotations", annotations, marks.PEERS),
        ("annotations", annotations, marks.AUDIENCES),
    ):
        if there.get(mark) != wished.get(mark):
            found[where] = {**found.get(where, {}), mark: wished.get(mark)}
    return found


def default(namespace: str, tenant: Tenant, defaults: FederationDefaults) -> NamespaceOffloading:
    """Return the NamespaceOffloading of a namespace whose label asks for one.

    Args:
        namespace: The namespace.
        tenant: Its Tenant: no share is above its quota.
        defaults: Of TenancyDefaults.
    """
    given = defaults.default_quota.hard
    hard: dict[str, Quantity]
    try:
        whole = normal(tenant.spec.quota.hard)
        hard = {
            key: whole[key] if key in whole and parse(value) > parse(whole[key]) else value
            for key, value in normal(given).items()
        }
    except InputError:
        hard = dict(given)  # the CRDs refuse such quotas, but for a few that the status of the Tenant reports
    meta = ObjectMeta(name=OFFLOADING, namespace=namespace, labels={DEFAULTED: "true"})
    return NamespaceOffloading(metadata=meta, spec=NamespaceOffloadingSpec(quota=Quota(hard=hard)))
