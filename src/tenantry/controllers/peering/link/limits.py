"""What a peer enforces: the ResourceQuotas there, and what of them follows pods. The glue around `following`.

    ResourceQuota of the guest      ─► which keys are limited, and what is left ─► FollowedQuotas.decide
    ResourceQuota of one namespace  ─► what is enforced ─► FollowedQuotas.enforced, which sends the pods that wait

That of a namespace changes with each of its pods, so it is watched only while pods wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

import msgspec

from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource, object_key
from tenantry.api.offloading import DesiredNamespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.peering.link.following import FollowedQuotas
from tenantry.controllers.peering.link.workspaces import PeerWorkspaces, namespace_of
from tenantry.controllers.quota.objects import share_quota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import ObservedQuota, observe
from tenantry.engine.scope import By, WatchScope
from tenantry.world.shares.amounts import Amounts, ShareQuota, beyond, lower

_LISTING_SECONDS = 2.0
"""How long a place that has just been added is waited for."""


class PeerLimits:
    """The ResourceQuotas at one peer.

    Args:
        core: The core namespace of the guest.
        quotas: What of the quotas follows pods.
        home_of: Returns the namespace at home of one at the peer; "" for none.
    """

    def __init__(self, core: str, quotas: FollowedQuotas, home_of: Callable[[str], str]) -> None:
        self._core = core
        self._quotas = quotas
        self._home_of = home_of
        self._scope = WatchScope(By.NAMESPACE)
        self._scope.add(core)

    def watch(self) -> Watch:
        """Return the watch of the ResourceQuotas; the keys are the namespaces at home."""
        return Watch(
            resource=ResourceQuota.resource,
            decode=_quota,
            keys=self._changed,
            selectors={"fieldSelector": f"metadata.name={QUOTA}"},
            scope=self._scope,
        )

    def _changed(self, change: Change[ObservedQuota]) -> Iterable[str]:
        found = change.after or change.before
        place = found.key.partition("/")[0] if found is not None else ""
        if place != self._core:
            namespace = self._home_of(place)
            return [namespace] if namespace else []
        before, after = (_free(share_quota(each)) if each is not None else {} for each in (change.before, change.after))
        if before.keys() != after.keys():
            return self._quotas.known()
        return self._quotas.short() if any(after[key] > value for key, value in before.items()) else []

    async def are_listed(self, cluster: Cluster) -> bool:
        """Return whether it is known what the peer limits."""
        return await is_listed(cluster, ResourceQuota.resource, self._core)

    async def decide(
        self,
        cluster: Cluster,
        namespace: str,
        wanted: DesiredNamespace,
        sub: Subnamespace | None,
        *,
        held: Amounts,
        spaces: PeerWorkspaces,
    ) -> DesiredNamespace:
        """Return what a namespace should have with what follows its pods.

        Args:
            cluster: The peer.
            namespace: At home.
            wanted: What it should have beside that.
            sub: Its Subnamespace; None if the peer has none.
            held: What of the quota there may be its share.
            spaces: The Workspaces there.

        Raises:
            ApiError: The peer refuses, or does not answer.
            InputError: A quantity is none.
        """
        whole = _cached(cluster, self._core)
        free: Amounts = _free(whole) if whole is not None else {}
        used: Amounts | None = None
        if sub is not None and self._quotas.lowers(namespace) and (place := namespace_of(sub)):
            data = await cluster.live.find(ResourceQuota.resource, place, QUOTA)
            used = share_quota(_quota(msgspec.Raw(data))).used if data is not None else None
        room = spaces.spare(cluster, wanted.workspace, free)
        return self._quotas.decide(namespace, wanted, free.keys(), sub, held=held, room=room, used=used)

    def look(self, cluster: Cluster, namespace: str, place: str, given: Amounts) -> None:
        """Send the pods of a namespace that wait, once the peer enforces the quota that follows them.

        Args:
            cluster: The peer.
            namespace: At home.
            place: At the peer; "" while it has no name.
            given: The share, which is beside that.
        """
        if not place:
            return
        if self._quotas.waits(namespace):
            self._scope.add(place)
            found = _cached(cluster, place)
            if found is not None:
                self._quotas.enforced(namespace, found, given)
        if not self._quotas.waits(namespace):
            self.close(place)

    def close(self, place: str) -> None:
        """Watch the ResourceQuota of a namespace no longer."""
        if place != self._core:
            self._scope.discard(place)


async def is_listed(cluster: Cluster, resource: Resource, place: str) -> bool:
    """Return whether a place of a kind is listed; one that has just been added is waited for."""
    if not cluster.is_listed_in(resource, place):
        with suppress(TimeoutError):
            await cluster.listed_in(resource, place, seconds=_LISTING_SECONDS)
    return cluster.is_listed_in(resource, place)


def _quota(data: msgspec.Raw) -> ObservedQuota:
    return cast("ObservedQuota", observe(ResourceQuota.resource, data))


def _cached(cluster: Cluster, place: str) -> ShareQuota | None:
    """Return the ResourceQuota of a namespace at the peer, if it is watched; None for none."""
    found: ObservedQuota | None = cluster.cache(ResourceQuota.resource).get(object_key(place, QUOTA))
    return share_quota(found) if found is not None else None


def _free(quota: ShareQuota) -> Amounts:
    """Return what is left, by every key that is limited; nothing of one that is not enforced yet."""
    in_force = lower(quota.hard, quota.in_force)
    return beyond({key: in_force.get(key, 0) for key in quota.hard}, quota.used)
