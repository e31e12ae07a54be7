"""Which namespaces should exist at which peer, and what a NamespaceOffloading reports: pure.

NamespaceOffloadings, their tenants, PeerClusters ─► wanted ─► NamespaceMap.spec.desired of each peer
NamespaceMap.status.current of all peers          ─► status ─► NamespaceOffloading.status
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.offloading import (
    DesiredNamespace,
    MapPhase,
    NamespaceMap,
    NamespaceOffloading,
    NamespaceOffloadingStatus,
    OffloadedTo,
)
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.engine.conditions import Wanted, merge
from tenantry.world.naming import peer_name
from tenantry.world.quantity import parse
from tenantry.world.quota import normal

NOT_ALLOWED = "NotAllowed"
NO_PEER = "NoPeer"


class OffloadingInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which namespaces exist at one peer.

    Args:
        peer: The PeerCluster.
        is_open: Whether it has a host half, and is not being deleted.
        offloadings: All NamespaceOffloadings.
        tenants: The Tenant of each of their namespaces, by the namespace; those of no tenant are left out.
        occupied: Namespaces with pods at the peer: they stay until those are gone.
        before: `spec.desired` of the NamespaceMap as it is.
    """

    peer: str
    is_open: bool
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
    return dict(sorted({**kept, **found}.items()))


def _allowed(inputs: OffloadingInputs) -> dict[str, DesiredNamespace]:
    found: dict[str, DesiredNamespace] = {}
    for each in inputs.offloadings if inputs.is_open else ():
        namespace = each.metadata.namespace
        tenant, before = inputs.tenants.get(namespace), inputs.before.get(namespace)
        if not is_wanted(each, inputs.peer, tenant):
            continue
        if not above(each, tenant):
            found[namespace] = _desired(each)
        elif before is not None:
            # Pods run there already: they keep the share that they have.
            found[namespace] = replace(before, leaving=False)
    return found


def _desired(found: NamespaceOffloading) -> DesiredNamespace:
    hard = {key: str(value) for key, value in found.spec.quota.hard.items()}
    return DesiredNamespace(name=peer_name(found.metadata.namespace), hard=hard)


def is_wanted(found: NamespaceOffloading, peer: str, tenant: Tenant | None) -> bool:
    """Return whether pods of a namespace may run at a peer."""
    is_named = not found.metadata.deletion_timestamp and peer in found.spec.peers
    is_allowed = tenant is not None and peer in tenant.spec.isolation.federation.peers
    return is_named and is_allowed


def above(found: NamespaceOffloading, tenant: Tenant | None) -> str:
    """Return the key of the share of a namespace that is above the quota of its whole tenant; "" for none."""
    if tenant is None:
        return ""
    try:
        share, whole = normal(found.spec.quota.hard), normal(tenant.spec.quota.hard)
    except InputError:
        return ""  # the CRDs refuse such quotas, but for a few that the status of the Tenant reports
    return next((key for key, value in share.items() if key in whole and parse(value) > parse(whole[key])), "")


def leaving(inputs: OffloadingInputs) -> list[str]:
    """Return the namespaces whose pods must leave the peer."""
    return sorted(set(inputs.before) - set(_allowed(inputs)))


def status(
    found: NamespaceOffloading,
    tenant: Tenant | None,
    maps: Mapping[str, NamespaceMap],
    open_peers: Collection[str],
    now: str,
) -> NamespaceOffloadingStatus:
    """Return the status of a NamespaceOffloading.

    Args:
        found: The NamespaceOffloading.
        tenant: The Tenant of its namespace; None for none.
        maps: The NamespaceMaps by peer.
        open_peers: The PeerClusters with a host half.
        now: RFC 3339.
    """
    namespace, shown = found.metadata.namespace, list[OffloadedTo]()
    problems = list[tuple[str, str]]()
    key = above(found, tenant)
    if key and tenant is not None:
        problems.append((reasons.INVALID_SPEC, _too_much(key, tenant)))
    for peer in sorted({*found.spec.peers, *(name for name, each in maps.items() if namespace in each.status.current)}):
        known = maps[peer].status.current.get(namespace) if peer in maps else None
        if known is not None:
            shown.append(OffloadedTo(name=peer, namespace=known.peer_namespace, phase=known.phase.value))
            if known.phase is MapPhase.REFUSED:
                problems.append((reasons.PEER_REFUSED, f"peer {peer!r}: {known.message}"))
            elif found.metadata.deletion_timestamp:
                problems.append((reasons.PROGRESSING, f"peer {peer!r}: its pods and its namespace there end"))
            elif known.phase is not MapPhase.ACCEPTED:
                words = f": {known.message}" if known.message else ""
                problems.append((reasons.PROGRESSING, f"peer {peer!r}: {known.phase.value}{words}"))
        elif peer not in open_peers:
            shown.append(OffloadedTo(name=peer, phase=NO_PEER))
            problems.append((reasons.NO_PEER, f"no PeerCluster {peer!r} has spec.host: ask an administrator"))
        elif tenant is None or peer not in tenant.spec.isolation.federation.peers:
            shown.append(OffloadedTo(name=peer, phase=NOT_ALLOWED))
            problems.append((reasons.PEER_NOT_ALLOWED, _not_allowed(peer, tenant)))
        else:
            shown.append(OffloadedTo(name=peer, phase=MapPhase.CREATING.value))
            problems.append((reasons.PROGRESSING, f"peer {peer!r}: {MapPhase.CREATING.value}"))
    generation = found.metadata.generation
    ready = _ready(problems)
    return NamespaceOffloadingStatus(
        observed_generation=generation,
        clusters=tuple(shown),
        conditions=merge(found.status.conditions, [ready], generation=generation, now=now),
    )


def _too_much(key: str, tenant: Tenant) -> str:
    return f"spec.quota.hard: {key} must be at most what the quota of Tenant {tenant.metadata.name!r} has"


def _not_allowed(peer: str, tenant: Tenant | None) -> str:
    if tenant is None:
        return "the namespace belongs to no tenant: create the NamespaceOffloading in a tenant's namespace"
    return (
        f"Tenant {tenant.metadata.name!r} may not use peer {peer!r}: an administrator adds it to"
        " spec.isolation.federation.peers"
    )


def _ready(problems: list[tuple[str, str]]) -> Wanted:
    if not problems:
        return Wanted(reasons.READY, True, reasons.ESTABLISHED, "the namespace exists at all peers")
    return Wanted(reasons.READY, False, problems[0][0], shortened(message for _, message in problems))
