"""What peers should have of a tenant's quota, and which of them do not answer."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.offloading import ConfirmedShare, LostPods, NamespaceMap
from tenantry.api.peercluster import PeerCluster
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.engine import conditions
from tenantry.engine.cache import Cache, Change
from tenantry.world.shares.remote import RemoteKey

GONE = "-"
"""In place of a time: there is no such PeerCluster."""


def changed(change: Change[NamespaceMap]) -> list[RemoteKey]:
    """Return the shares that a change of a map concerns."""
    found = change.after or change.before
    if found is None:
        return []
    before, after = (_shares(each) for each in (change.before, change.after))
    return [(name, found.metadata.name) for name in {*before, *after} if before.get(name) != after.get(name)]


def _shares(found: NamespaceMap | None) -> dict[str, tuple[dict[str, str], ConfirmedShare | None, LostPods | None]]:
    """Return what each namespace should have, lost, and what is confirmed; without namespaces that have no share."""
    if found is None:
        return {}
    wanted = {name: {} if each.leaving else each.share for name, each in found.spec.desired.items()}
    shares, lost = found.status.shares, found.status.lost
    names = {*(name for name, share in wanted.items() if share), *shares, *lost}
    return {name: (wanted.get(name, {}), shares.get(name), lost.get(name)) for name in names}


def has_share(maps: Iterable[NamespaceMap], namespace: str) -> bool:
    """Return whether a namespace should have a share at any peer, or has pods there that were let go."""
    return any(
        namespace in found.status.lost or ((each := found.spec.desired.get(namespace)) is not None and each.share)
        for found in maps
    )


def silent_since(found: PeerCluster | None) -> str:
    """Return since when a peer does not answer; "" if it answers, GONE if there is none."""
    if found is None:
        return GONE
    reachable = conditions.find(found.status.conditions, reasons.REACHABLE)
    is_silent = reachable is not None and reachable.status != "True"
    return reachable.last_transition_time if reachable is not None and is_silent else ""


def silent(tenant_quota: TenantResourceQuota, peers: Cache[PeerCluster]) -> dict[str, str]:
    """Return since when the peers that hold a share do not answer."""
    names = {each.peer for each in tenant_quota.status.clusters}
    return {name: since for name in names if (since := silent_since(peers.get(name))) not in {"", GONE}}
