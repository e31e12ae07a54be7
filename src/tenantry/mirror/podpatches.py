"""Sends the changes of lower pods, and reports those that the lower side refuses."""

from __future__ import annotations

import hashlib

import msgspec

from tenantry.api.model import Json, ObjectMeta
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind, NamedObject
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podchanges import PodChanges
from tenantry.mirror.refusals import REFUSALS, retry_seconds
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS

_ABOUT = {
    "": "changes of the pod",
    "ephemeralcontainers": "spec.ephemeralContainers",
    "resize": "resources of containers",
}


def named(pod: CachedPod) -> NamedObject:
    """Return what an event about a pod names."""
    meta = pod.meta
    about = ObjectMeta(name=meta["name"], namespace=meta["namespace"], uid=pod.uid, resource_version=str(pod.version))
    return NamedObject(PODS, about)


class _Sent(msgspec.Struct, frozen=True):
    """A patch that was sent: its hash, how often it was refused in a row, and when it is tried again."""

    digest: bytes
    refused: int = 0
    due: float = 0.0


class PodPatches:
    """The patches of the lower pods of one mirror.

    Args:
        upper: The cluster of the upper pods, about which events are recorded.
        lower: The lower side.
    """

    def __init__(self, upper: Cluster, lower: LowerSide) -> None:
        self._upper = upper
        self._lower = lower
        # By key of the upper pod and subresource.
        self._sent: dict[tuple[str, str], _Sent] = {}
        # By key: the refusal that an event has reported.
        self._told: dict[str, str] = {}

    def forget(self, key: str) -> None:
        """Forget what was sent about an upper pod."""
        self._told.pop(key, None)
        for subresource in _ABOUT:
            self._sent.pop((key, subresource), None)

    def tell(self, upper: CachedPod, refusal: str) -> None:
        """Report once why a part of an upper pod does not go down; "" if all of it does."""
        if self._told.pop(upper.key, "") != refusal:
            self._say(upper, refusal)
        if refusal:
            self._told[upper.key] = refusal

    async def send(self, upper: CachedPod, lower: CachedPod, changed: PodChanges) -> float | None:
        """Send what a lower pod must change; return in how many seconds to try a refused change again.

        Raises:
            ApiError: The lower side fails.
        """
        self.tell(upper, changed.refusal)
        patches = {"": changed.pod, "ephemeralcontainers": changed.ephemeral, "resize": changed.resize}
        waits = [await self._follow(upper, lower, subresource, patch) for subresource, patch in patches.items()]
        return min((each for each in waits if each is not None), default=None)

    async def _follow(self, upper: CachedPod, lower: CachedPod, subresource: str, patch: Json) -> float | None:
        key = (upper.key, subresource)
        before = self._sent.pop(key, None)
        if not patch:
            return None
        now, digest = self._upper.clock.monotonic(), _digest(patch)
        sent = before if before is not None and before.digest == digest else _Sent(digest)
        # A lower webhook may store a field in another form each time: what was accepted is not sent again.
        if sent is before and (not sent.refused or now < sent.due):
            self._sent[key] = sent
            return sent.due - now if sent.refused else None
        meta = lower.meta
        asked = request.patch(PODS, meta["namespace"], meta["name"], patch, subresource=subresource)
        try:
            await self._lower.writer.own(asked)
        except REFUSALS as error:
            wait = retry_seconds(sent.refused)
            self._sent[key] = _Sent(digest, sent.refused + 1, now + wait)
            message = str(error).replace(meta["name"], upper.meta["name"])
            self._say(upper, f"{_ABOUT[subresource]}: {message}")
            return wait
        self._sent[key] = _Sent(digest)
        return None

    def _say(self, upper: CachedPod, message: str) -> None:
        if message:
            self._upper.recorder.say(named(upper), EventKind.WARNING, self._lower.reason, message)


def _digest(patch: Json) -> bytes:
    return hashlib.sha256(msgspec.json.encode(patch)).digest()
