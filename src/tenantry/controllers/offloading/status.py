"""What a NamespaceOffloading reports: pure.

NamespaceMap.status.current of all peers, labels of peers ─► compute ─► NamespaceOffloading.status
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.offloading import (
    MappedNamespace,
    MapPhase,
    NamespaceMap,
    NamespaceOffloading,
    NamespaceOffloadingStatus,
    OffloadedTo,
    OffloadingPhase,
)
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.controllers.offloading.desired import PeerLabels, above, has_room, is_wanted, selects, unlimited
from tenantry.controllers.peering.link.labels import selectable
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked

Problem = tuple[str, str]
"""A reason, and what is wrong."""


_REFUSALS = {MapPhase.REFUSED: reasons.PEER_REFUSED, MapPhase.NAME_TAKEN: reasons.NAME_TAKEN}


class _Report(msgspec.Struct, frozen=True):
    shown: OffloadedTo
    problem: Problem | None = None


def compute(
    found: NamespaceOffloading,
    tenant: Tenant | None,
    maps: Mapping[str, NamespaceMap],
    peers: PeerLabels,
    now: str,
    *,
    short: Mapping[str, Blocked] = {},
) -> NamespaceOffloadingStatus:
    """Return the status of a NamespaceOffloading.

    Args:
        found: The NamespaceOffloading.
        tenant: The Tenant of its namespace; None for none.
        maps: The NamespaceMaps by peer.
        peers: The labels of the peers that have a host half.
        now: RFC 3339.
        short: Why the tenant does not give the share at a peer, by peer.
    """
    namespace = found.metadata.namespace
    allowed = tenant.spec.isolation.federation.peers if tenant is not None else ()
    chosen = [name for name in peers if is_wanted(found, name, peers[name], tenant)]
    # Without a PeerCluster, nothing is known of a peer but its name.
    absent = (
        []
        if found.metadata.deletion_timestamp
        else [name for name in allowed if name not in peers and selects(found, selectable(name, {}))]
    )
    there = [
        name
        for name, each in maps.items()
        if namespace in each.status.current or (namespace in each.spec.desired and name not in chosen)
    ]
    reports = [
        _chosen(name, found, tenant, maps.get(name))
        if name in chosen
        else _left(name, found, maps.get(name), is_open=name in peers, is_allowed=name in allowed)
        for name in sorted({*chosen, *absent, *there})
    ]
    key = above(found, tenant)
    problems = [(reasons.INVALID_SPEC, _too_much(key, tenant))] if key and tenant is not None else []
    if (missing := unlimited(found, tenant)) and tenant is not None:
        problems.append((reasons.QUOTA_KEY_NOT_LIMITED, _unlimited(missing, tenant)))
    what = "spec.share" if found.spec.share.hard else "pods that were let go"
    problems += [(each.reason, f"{what} at peer {peer!r}: {each.message}") for peer, each in sorted(short.items())]
    if not chosen and not found.metadata.deletion_timestamp:
        problems.append(_none(tenant, absent))
    problems += [each.problem for each in reports if each.problem is not None]
    generation = found.metadata.generation
    return NamespaceOffloadingStatus(
        observed_generation=generation,
        clusters=tuple(each.shown for each in reports),
        conditions=merge(found.status.conditions, [_ready(problems)], generation=generation, now=now),
    )


def _chosen(peer: str, found: NamespaceOffloading, tenant: Tenant | None, known_of: NamespaceMap | None) -> _Report:
    """Return the report on a peer at which the namespace should exist."""
    namespace = found.metadata.namespace
    known = known_of.status.current.get(namespace) if known_of is not None else None
    if known is None:
        shown = OffloadedTo(name=peer, phase=OffloadingPhase.CREATING)
        if (
            known_of is not None
            and namespace not in known_of.spec.desired
            and not has_room(known_of.spec.desired, found, tenant)
        ):
            full = f"peer {peer!r} has as many namespaces of this cluster as one NamespaceMap holds: remove another one"
            return _Report(shown, (reasons.LIMIT_REACHED, full))
        return _Report(shown, (reasons.PROGRESSING, f"peer {peer!r}: {OffloadingPhase.CREATING.value}"))
    shown = OffloadedTo(name=peer, namespace=known.peer_namespace, phase=OffloadingPhase(known.phase.value))
    return _Report(shown, _problem(peer, known))


def _problem(peer: str, known: MappedNamespace) -> Problem | None:
    if known.phase is MapPhase.ACCEPTED:
        return None
    if known.phase in _REFUSALS:
        return _REFUSALS[known.phase], f"peer {peer!r}: {known.message}"
    words = f": {known.message}" if known.message else ""
    return reasons.PROGRESSING, f"peer {peer!r}: {known.phase.value}{words}"


def _left(
    peer: str, found: NamespaceOffloading, known_of: NamespaceMap | None, *, is_open: bool, is_allowed: bool
) -> _Report:
    """Return the report on a peer at which the namespace should not exist, or not exist any more."""
    known = known_of.status.current.get(found.metadata.namespace) if known_of is not None else None
    is_deleted = bool(found.metadata.deletion_timestamp)
    phase = OffloadingPhase.TERMINATING
    if not is_open:
        phase = OffloadingPhase.NO_PEER
    elif not is_allowed and not is_deleted:
        phase = OffloadingPhase.NOT_ALLOWED
    ends = (reasons.PROGRESSING, f"peer {peer!r}: its pods and its namespace there end")
    shown = OffloadedTo(name=peer, namespace=known.peer_namespace if known is not None else "", phase=phase)
    return _Report(shown, ends if is_deleted else None)


def _none(tenant: Tenant | None, absent: list[str]) -> Problem:
    """Return why no peer is selected."""
    if tenant is None:
        return (
            reasons.PEER_NOT_ALLOWED,
            "the namespace belongs to no tenant: create the NamespaceOffloading in a tenant's namespace",
        )
    name, allowed = tenant.metadata.name, sorted(tenant.spec.isolation.federation.peers)
    if not allowed:
        return (
            reasons.PEER_NOT_ALLOWED,
            f"Tenant {name!r} may use no peer: an administrator adds peers to spec.isolation.federation.peers",
        )
    if absent:
        return reasons.NO_PEER, f"no PeerCluster {absent[0]!r} has spec.host: ask an administrator"
    words = (
        f"spec.clusterSelector matches none of the peers that Tenant {name!r} may use, which are"
        f" {shortened(map(repr, allowed))}: change it to labels of their Nodes"
    )
    return reasons.NO_CLUSTER_SELECTED, words


def _too_much(key: str, tenant: Tenant) -> str:
    return f"{key} must be at most what the quota of Tenant {tenant.metadata.name!r} has"


def _unlimited(keys: list[str], tenant: Tenant) -> str:
    return (
        f"spec.share.hard has {shortened(keys)}, which the quota of Tenant {tenant.metadata.name!r} does not limit:"
        " take it out, or have an administrator limit it for the whole tenant"
    )


def _ready(problems: list[Problem]) -> Wanted:
    if not problems:
        return Wanted(reasons.READY, True, reasons.ESTABLISHED, "the namespace exists at all selected peers")
    return Wanted(reasons.READY, False, problems[0][0], shortened(message for _, message in problems))
