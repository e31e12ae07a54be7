"""Gives the upper side the optional kinds that the lower side has: a controller of the upper cluster.

    lower definition ─► upper definition, marked     it follows the lower one, and comes back

upper                       lower       next
──────────────────────────────────────────────────────────────────────────────────────
none                        there       create it; one of users stays, and is mirrored as far as it fits
made by the mirror          there       bring it to what it should be
made by the mirror          none        leave it: its end would be that of the users' objects
made by the mirror          not mirrored any more    delete the lower objects, and leave the rest to the users
marked by users             none, or built in        leave it: the lower side has never had it to offer
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import CRDS, Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.mirror import definitions, things
from tenantry.mirror.definitions import LowerDefinition, UpperDefinition
from tenantry.mirror.profile import Profile
from tenantry.mirror.side import LowerSide

LOOK_SECONDS = 300.0
"""When to look again whether users have deleted a definition of theirs."""

RETIRE_SECONDS = 60.0
MOST_RETIRE_SECONDS = 3600.0
"""How long after an attempt to end the lower objects of a kind the next one is made, each time twice as long."""

_DOUBLED = 10
"""More doublings change nothing."""

log = logging.getLogger(__name__)

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


def lower_watch(keys: Callable[[Change[LowerDefinition]], Iterable[str]]) -> Watch:
    """Return the watch of the lower definitions."""
    return Watch(resource=CRDS, decode=definitions.lower, keys=keys)


class DefinitionMirror:
    """Mirrors definitions; the key is `plural.group`.

    Args:
        resources: The optional kinds.
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
    """

    name = "definitions"
    kind = UpperDefinition

    def __init__(self, resources: Sequence[Resource], profile: Profile, upper: Cluster, lower: LowerSide) -> None:
        self._resources = {each.full_name: each for each in resources}
        self._profile = profile
        self._upper = upper
        self._lower = lower
        # By name: the uid, the generation, and the digest of what was wanted when it was written. An API server of
        # another version may store a default of its own, which is no reason to write again.
        self._brought: dict[str, tuple[str, int, str]] = {}
        # By name: how often the lower objects of a kind were ended that is not offered, and when they may be again.
        self._retired: dict[str, tuple[int, float]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        ours = {"labelSelector": self._profile.mark(definitions.MARK)}
        return [
            Watch(resource=CRDS, decode=definitions.upper, keys=things.own_key, selectors=ours),
            replace(lower_watch(self._of_lower), cluster=self._lower.cluster),
        ]

    def _of_lower(self, change: Change[LowerDefinition]) -> Iterable[str]:
        return [key for key in things.own_key(change) if key in self._resources]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one definition of the upper side to what it should be.

        Raises:
            ApiError: The upper side refuses, as by a webhook of users; the queue tries again.
        """
        upper: UpperDefinition | None = cluster.cache(CRDS).get(key)
        if key not in self._resources:
            # Users may mark any definition, also one of a kind that is built in on the lower side.
            was_offered = upper is not None and self._lower.cluster.cache(CRDS).get(key) is not None
            return await self._retire(upper) if upper is not None and was_offered else None
        found = await self._lower.cluster.live.find(CRDS, "", key)
        wanted = definitions.wanted(_json.decode(found), self._resources[key], self._profile) if found else None
        if wanted is None:
            return None
        digest = definitions.digest_of(wanted["spec"])
        if upper is None:
            return await self._create(key, wanted, digest)
        if upper.digest != digest and self._brought.get(key) != (upper.uid, upper.generation, digest):
            await self._replace(upper, wanted, digest)
        return None

    async def _retire(self, upper: UpperDefinition) -> float | None:
        """Delete the lower objects of a kind that is no longer offered; the upper ones are the users' from now on.

        Users can mark a definition again as often as they like: the lower side is asked ever more rarely.
        """
        now = self._upper.clock.monotonic()
        times, due = self._retired.get(upper.key, (0, now))
        if due > now:
            return due - now
        seconds = min(RETIRE_SECONDS * 2 ** min(times, _DOUBLED), MOST_RETIRE_SECONDS)
        self._retired[upper.key] = (times + 1, now + seconds)
        try:
            await self._end_lower(upper)
        except Forbidden as error:
            if not times:
                log.warning("objects of a withdrawn kind stay", extra={"kind": upper.key, "error": str(error)})
                note = f"the host keeps the objects of {upper.key!r}, which it no longer offers: it may not delete them"
                about = NamedObject(CRDS, ObjectMeta(name=upper.key))
                self._upper.recorder.say(about, EventKind.WARNING, self._lower.reason, note)
            return seconds
        body: Json = {"metadata": {"uid": upper.uid, "labels": {self._profile.mark(definitions.MARK): None}}}
        with suppress(NotFound, Conflict):
            await self._upper.writer.own(request.patch(CRDS, "", upper.key, body), quiet=True)
        return None

    async def _end_lower(self, upper: UpperDefinition) -> None:
        resource, namespace = upper.resource, self._profile.namespace
        selectors = {"labelSelector": f"{self._profile.mark('owner')}={self._profile.owner_uid}"}
        # NotFound: the lower side has lost the kind, with all of its objects.
        with suppress(NotFound):
            async for data in self._lower.cluster.live.raw(resource, namespace=namespace, selectors=selectors):
                found = things.headed(data)
                if things.is_of(self._profile, found.key, found.labels):
                    name = found.key.partition("/")[2]
                    with suppress(NotFound, Conflict):
                        await self._lower.writer.send(request.delete(resource, namespace, name, uid=found.uid))

    async def _create(self, key: str, wanted: Json, digest: str) -> float | None:
        try:
            made: UpperDefinition = await self._upper.writer.own(request.create_json(CRDS, wanted), quiet=True)
        except AlreadyExists:
            # Of users, or its label has been removed. Either is theirs, and may have objects.
            self._report_hidden(key)
            # It has no label, so no event reports its end.
            return LOOK_SECONDS
        self._brought[key] = (made.uid, made.generation, digest)
        return None

    async def _replace(self, upper: UpperDefinition, wanted: Json, digest: str) -> None:
        meta: Json = {**wanted["metadata"], "uid": upper.uid, "resourceVersion": str(upper.version)}
        asked = request.replace_json(CRDS, {**wanted, "metadata": meta})
        # NotFound, Conflict: its event wakes this key.
        with suppress(NotFound, Conflict):
            try:
                made: UpperDefinition = await self._upper.writer.own(asked, quiet=True)
            except Invalid:
                # A version that has stored objects, or another scope: users have created it again with the label.
                self._report_hidden(upper.key)
                return
            self._brought[upper.key] = (made.uid, made.generation, digest)

    def _report_hidden(self, name: str) -> None:
        note = (
            f"CustomResourceDefinition {name!r} is not the one of the host: objects are mirrored as far as their fields"
            " fit; delete it with its objects, and the host's appears in its place"
        )
        about = NamedObject(CRDS, ObjectMeta(name=name))
        self._upper.recorder.say(about, EventKind.WARNING, reasons.OBJECT_EXISTS, note)
