"""Shows a PersistentVolume for each bound claim: a controller of the upper cluster.

lower claim is bound ─► upper volume ─► name of the volume in the upper claim ─► phase Bound
upper claim is gone  ─► phase Released ─► delete the upper volume
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from tenantry.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import things, volumes
from tenantry.mirror.cachedpods import Kept
from tenantry.mirror.kinds import claims
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import Thing
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.volumes import BOUND, BY_CLAIM, ShownVolume

CLAIMS = claims.RESOURCE
_RELEASED = "Released"

log = logging.getLogger(__name__)


class VolumeMirror:
    """Shows volumes; the key is the upper claim's.

    Args:
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        upper_claims: The upper claims.
    """

    name = "volumes"
    kind = Thing

    def __init__(self, profile: Profile, upper: Cluster, lower: LowerSide, upper_claims: UpperObjects) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._claims = upper_claims

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            self._claims.watch(things.own_key),
            Watch(
                resource=CLAIMS,
                decode=things.whole,
                keys=things.keys_of_lower(self._profile),
                selectors=things.selector(self._profile.prefix),
                cluster=self._lower.cluster,
            ),
            Watch(
                resource=volumes.RESOURCE,
                decode=volumes.seen,
                keys=_of_volume,
                selectors={"labelSelector": self._profile.mark(volumes.MARK)},
                indexes={BY_CLAIM: volumes.claim_of},
            ),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring the volume of one claim to what it should be.

        Raises:
            ApiError: The upper side refuses, as by a webhook of users; the queue tries again.
        """
        claim: Thing | None = cluster.cache(CLAIMS).get(key)
        own = volumes.name(claim.uid) if claim is not None else ""
        for each in cluster.cache(volumes.RESOURCE).by_index(BY_CLAIM, key):
            # Those of an earlier claim of this name.
            if each.key != own and not each.is_deleting:
                await self._end(each)
        if claim is None or claim.is_deleting or claim.kept is not Kept.WHOLE:
            return None
        lower = self._of(key)
        if lower is None or lower.mark(self._profile, "uid") != claim.uid or not volumes.is_bound(lower.object):
            return None
        try:
            wanted = volumes.wanted(claim.object, lower.object, self._profile)
        except NotTranslated as error:
            log.warning("a lower claim is malformed", extra={"key": lower.key, "error": str(error)})
            return None
        await self._show(claim, cluster.cache(volumes.RESOURCE).get(own), wanted)
        return None

    def _of(self, key: str) -> Thing | None:
        return self._lower.cluster.cache(CLAIMS).get(self._profile.lower_key(CLAIMS.kind, key))

    async def _show(self, claim: Thing, volume: ShownVolume | None, wanted: Json) -> None:
        writer, name = self._upper.writer, wanted["metadata"]["name"]
        if volume is None:
            # AlreadyExists: of users, who have removed its label.
            with suppress(AlreadyExists):
                volume = await writer.own(request.create_json(volumes.RESOURCE, wanted), quiet=True)
        elif patch := volumes.difference(volume, wanted["spec"]):
            with suppress(NotFound, Conflict):
                await writer.own(request.patch(volumes.RESOURCE, "", name, {"spec": patch}), quiet=True)
        if volume is not None and not volume.is_bound:
            await self._phase(volume, BOUND)
        if not claim.spec.get("volumeName"):
            meta = claim.meta
            body: Json = {"metadata": {"uid": claim.uid}, "spec": {"volumeName": name}}
            # Conflict: another claim has the name by now. Its event wakes this key.
            with suppress(NotFound, Conflict):
                await writer.own(request.patch(CLAIMS, meta["namespace"], meta["name"], body))

    async def _end(self, volume: ShownVolume) -> None:
        # Kubernetes keeps a bound volume.
        if volume.is_bound:
            await self._phase(volume, _RELEASED)
        with suppress(NotFound, Conflict):
            await self._upper.writer.send(request.delete(volumes.RESOURCE, "", volume.key, uid=volume.uid))

    async def _phase(self, volume: ShownVolume, phase: str) -> None:
        body: Json = {"metadata": {"uid": volume.uid}, "status": {"phase": phase}}
        # Invalid: users have changed the volume so that it is none any more.
        with suppress(NotFound, Conflict, Invalid):
            await self._upper.writer.own(
                request.patch(volumes.RESOURCE, "", volume.key, body, subresource="status"), quiet=True
            )


def _of_volume(change: Change[ShownVolume]) -> Iterable[str]:
    return {key for each in (change.before, change.after) if each is not None for key in volumes.claim_of(each)}
