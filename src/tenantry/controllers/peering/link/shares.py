"""The share that a namespace has at one peer beside what follows its pods: the glue around `world.shares.remote`.

home   TenantResourceQuota.status.clusters ─► record
peer   record ─► spec.quota of its Subnamespace, with the number of the record
peer   Subnamespace, ResourceQuota ─► NamespaceMap.status.shares: the number of the record that the peer follows
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import msgspec

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import TENANT
from tenantry.api.model import Json, object_key
from tenantry.api.offloading import DesiredNamespace, NamespaceMap
from tenantry.api.peercluster import HOME_NAMESPACE, PREFIX
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers import watched
from tenantry.controllers.peering.link.following import FOLLOWS
from tenantry.controllers.quota.objects import record_of, remote_share, share_quota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_RECORD
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import ObservedQuota, observe
from tenantry.engine.plan import merge_patch
from tenantry.engine.scope import WatchScope
from tenantry.world.quota import normal
from tenantry.world.shares import remote
from tenantry.world.shares.amounts import Amounts, RemoteShare, add, beyond, higher, read, read_mark, spelled
from tenantry.world.shares.remote import PeerQuota, PeerWrite, RereadRecord

SHARE = f"{PREFIX}/share"
"""An annotation of a Subnamespace at a peer: the number of the record that it follows."""

CONFIRM_SECONDS = 5.0
"""How often the use at the peer is looked at, while it holds more than the record gives."""


class PeerShares:
    """The shares at one peer.

    Args:
        name: The PeerCluster at home.
        home: The home.
        scope: Where the Subnamespaces of the guest are.
    """

    def __init__(self, name: str, home: Cluster, scope: WatchScope) -> None:
        self._name = name
        self._home = home
        self._scope = scope

    def watch(self) -> Watch:
        """Return the watch of the records; the keys are the namespaces at home."""
        return msgspec.structs.replace(watched.tenant_quotas(self._changed), cluster=self._home)

    def _changed(self, change: Change[TenantResourceQuota]) -> Iterable[str]:
        before, after = (
            {each.namespace: remote_share(each) for each in found.status.clusters if each.peer == self._name}
            if found is not None
            else {}
            for found in (change.before, change.after)
        )
        return [name for name in {*before, *after} if before.get(name) != after.get(name)]

    def record(self, namespace: str) -> RemoteShare | None:
        """Return the record of a namespace as it is cached; of two tenants, that of the one that had it before."""
        return record_of(self._holder(namespace), namespace, self._name)

    def _holder(self, namespace: str) -> TenantResourceQuota | None:
        """Return the TenantResourceQuota that records what the peer holds for a namespace.

        A namespace may be gone, or may have got another tenant, and its record not yet: the peer gives that back first.
        """
        cache: Cache[TenantResourceQuota] = self._home.cache(TenantResourceQuota.resource)
        found = cache.by_index(BY_RECORD, object_key(namespace, self._name))
        if len(found) < 2:  # noqa: PLR2004 - one or none: the tenant does not matter
            return found[0] if found else None
        tenant = self._tenant(namespace)
        return min(found, key=lambda each: each.metadata.name == tenant)

    def held(self, namespace: str) -> Amounts:
        """Return what the peer may have of the quota of the tenant for a namespace."""
        record = self.record(namespace)
        return record.held if record is not None else {}

    def given(self, namespace: str) -> Amounts:
        """Return what the peer should have of it now."""
        record = self.record(namespace)
        return record.given if record is not None else {}

    def whole(self, namespace: str, wanted: DesiredNamespace) -> DesiredNamespace:
        """Return what a namespace should have with its share, as far as the record gives it."""
        return with_share(wanted, self.record(namespace))

    async def follow(
        self, cluster: Cluster, namespace: str, sub: Subnamespace, wanted: DesiredNamespace, follows: str = ""
    ) -> bool:
        """Bring the quota of a Subnamespace to what it should be; return whether something was written.

        Args:
            cluster: The peer.
            namespace: At home.
            sub: The Subnamespace as it was seen.
            wanted: What the namespace should have beside its share.
            follows: The annotation of what of that follows pods; "" for none.

        Raises:
            ApiError: One side refuses, or does not answer.
            InputError: A quantity is none.
        """
        record = self.record(namespace)
        there = _there(sub, wanted)
        step = remote.peer_step(record, there, is_fresh=False)
        if isinstance(step, RereadRecord):
            record = await self._fresh(namespace)
            step = remote.peer_step(record, there, is_fresh=True)
        before = {key: str(value) for key, value in sub.spec.quota.hard.items()}
        hard = with_share(wanted, record).hard
        is_noted = sub.metadata.annotations.get(FOLLOWS, "") == follows
        if before == hard and is_noted and not isinstance(step, PeerWrite):
            return False
        number = step.number if isinstance(step, PeerWrite) else there.number
        meta = sub.metadata
        notes: Json = {} if is_noted else {FOLLOWS: follows or None}
        about: Json = {"uid": meta.uid, **({"annotations": notes} if notes else {})}
        if record is not None or there.number:
            # A write that was sent before this one must not arrive after it.
            about |= {"resourceVersion": meta.resource_version, "annotations": {**notes, SHARE: str(number)}}
        patch: Json = {"metadata": about, "spec": {"quota": {"hard": merge_patch(before, hard)}}}
        with suppress(Conflict):
            await cluster.writer.patch(Subnamespace.resource, meta.namespace, meta.name, patch)
        return True

    async def confirm(
        self, cluster: Cluster, namespace: str, sub: Subnamespace | None, wanted: DesiredNamespace | None
    ) -> float | None:
        """Report what the peer has confirmed; return in how many seconds to look again, None for never.

        Args:
            cluster: The peer.
            namespace: At home.
            sub: The Subnamespace; None if the peer has none.
            wanted: What the namespace should have beside its share; None if it should not be there.

        Raises:
            ApiError: One side refuses, or does not answer.
        """
        record = self.record(namespace)
        known = self._map()
        before = known.status.shares.get(namespace) if known is not None else None
        if record is None or known is None:
            if before is not None and known is not None:
                await self._report(known, namespace, None)
            return None
        if before is not None and before.number == record.number:
            return None
        there = None
        if sub is not None and wanted is not None:
            there = await self._enforced(cluster, namespace, sub, wanted)
        elif await self._exists(cluster, namespace):
            return CONFIRM_SECONDS
        if (sub is None) == (there is None) and remote.confirms(record, there):
            await self._report(known, namespace, record.number)
            return None
        return CONFIRM_SECONDS

    async def _exists(self, cluster: Cluster, namespace: str) -> bool:
        """Return whether the peer has a Subnamespace of a namespace, which another replica may just have created."""
        for place in sorted(self._scope.places):
            found = cluster.live.items(Subnamespace.resource, Subnamespace, namespace=place)
            with suppress(NotFound):
                async for each in found:
                    if each.metadata.annotations.get(HOME_NAMESPACE) == namespace:
                        return True
        return False

    async def _enforced(
        self, cluster: Cluster, namespace: str, sub: Subnamespace, wanted: DesiredNamespace
    ) -> PeerQuota | None:
        """Return what a Subnamespace has, with what the peer enforces and what is in use; None if that is not known."""
        there = _there(sub, wanted)
        if sub.status.observed_generation < sub.metadata.generation or not sub.status.namespace:
            return None
        data = await cluster.live.find(ResourceQuota.resource, sub.status.namespace, QUOTA)
        if data is None:
            return None
        quota = share_quota(cast("ObservedQuota", observe(ResourceQuota.resource, data)))
        record = self.record(namespace)
        keys = record.held if record is not None else {}
        return msgspec.structs.replace(there, reach=_beside(higher(quota.reach, quota.used), wanted, keys))

    async def _fresh(self, namespace: str) -> RemoteShare | None:
        """Read a record from the API server of the home."""
        known = self._holder(namespace)
        tenant = known.metadata.name if known is not None else self._tenant(namespace)
        found = None
        with suppress(NotFound):
            found = await self._home.live.get(TenantResourceQuota, tenant) if tenant else None
        return record_of(found, namespace, self._name)

    def _tenant(self, namespace: str) -> str:
        found = self._home.lookup(Namespace.resource, namespace)
        return found.labels.get(TENANT, "") if found is not None else ""

    def _map(self) -> NamespaceMap | None:
        return self._home.cache(NamespaceMap.resource).get(self._name)

    async def _report(self, found: NamespaceMap, namespace: str, number: int | None) -> None:
        entry: Json | None = {"number": number} if number is not None else None
        body: Json = {"metadata": {"uid": found.metadata.uid}, "status": {"shares": {namespace: entry}}}
        with suppress(NotFound, Conflict):
            await self._home.writer.patch(NamespaceMap.resource, "", self._name, body, subresource="status")


def with_share(wanted: DesiredNamespace, record: RemoteShare | None) -> DesiredNamespace:
    """Return what a namespace should have with its share.

    The quota names each key that is held: without it, the peer would give the namespace a default of this key, from
    which a share that was given back could not be told.

    Args:
        wanted: What it should have beside its share.
        record: The record of the share; None for none.
    """
    if record is None or not (record.held or record.given):
        return wanted
    hard = {**dict.fromkeys(record.held, 0), **read(normal(wanted.hard))}
    add(hard, record.given)
    return msgspec.structs.replace(wanted, hard=spelled(hard))


def _there(sub: Subnamespace, wanted: DesiredNamespace) -> PeerQuota:
    """Return the share that a Subnamespace has, beside what it should have for pods."""
    hard = beyond(read(normal(sub.spec.quota.hard)), read(normal(wanted.hard)))
    number, _ = read_mark(sub.metadata.annotations.get(SHARE, ""))
    return PeerQuota(version=sub.metadata.resource_version, hard=hard, number=number)


def _beside(reach: Amounts, wanted: DesiredNamespace, keys: Iterable[str]) -> Amounts:
    """Return the part of what the peer enforces that is beside what follows pods; other keys are no part of a share."""
    beside = beyond(reach, read(normal(wanted.hard)))
    return {key: beside.get(key, 0) for key in keys}
