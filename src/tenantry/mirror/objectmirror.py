"""Mirrors the objects of one kind: a controller of the upper cluster that writes both sides.

upper object ─► kinds/…: allow-list and translation ─► lower object     down
lower object ─► kinds/…: status ─► upper object                         up

upper      lower               next
─────────────────────────────────────────────────────────────────────────────────────────
none       there               delete the lower object; one that was made first, after a while
there      none                create it
there      of another upper    delete it, and create it again; one that was made first is taken over
none       waits               nothing: a lower object that is to be adopted waits for its upper one
there      has another address give the upper object the lower address; see addresschange.py
there      of another form     if the lower side is another cluster: delete one whose upper one cannot go there any more
there      there, or waits     bring the lower object to what it should be, and the status up
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import ApiError, Conflict, Invalid, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta, Resource, object_key
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.engine.request import ApiRequest
from tenantry.mirror import adoption, lowerobjects, selections, things
from tenantry.mirror.addresschange import AddressChange
from tenantry.mirror.cachedpods import Kept
from tenantry.mirror.endpointmirror import services_of
from tenantry.mirror.endpoints import BY_SERVICE, INDEXES, SLICES, WrittenSlice
from tenantry.mirror.kinds.kind import MirroredKind
from tenantry.mirror.lowerobjects import none
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import REFUSALS, retry_seconds, upper_words
from tenantry.mirror.selections import Selections
from tenantry.mirror.shapes import NotTranslated, part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import LabelledNamespace, Thing
from tenantry.mirror.upperobjects import BoundedObjects, UpperObjects

SELECTING = "selecting"
"""The index of upper objects whose translation depends on the labels of namespaces, by `selections.labels_of`."""

FIRST_SECONDS = 60.0
"""How long a lower object that was made or changed first waits for its upper one, which may not be stored after all."""

LISTED_SECONDS = 5.0
"""When to look again at an object of an optional kind whose objects are being listed."""

PLACE_SECONDS = 1.0
"""When to look again whether a namespace has been listed."""

LOOK_SECONDS = 300.0
"""When to look again at an object of an optional kind."""

log = logging.getLogger(__name__)


class ObjectMirror:
    """Mirrors the objects of one kind; the key is the upper object's.

    Args:
        mirrored: The kind.
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        objects: The upper objects of the kind.
        slices: The EndpointSlices that users of the upper side write; None for a kind that does not read them.
    """

    kind = Thing

    def __init__(
        self,
        mirrored: MirroredKind,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        objects: UpperObjects,
        *,
        slices: BoundedObjects[WrittenSlice] | None = None,
    ) -> None:
        # Plurals of custom kinds may be those of others.
        self.name = mirrored.resource.full_name if mirrored.is_optional else mirrored.resource.plural
        self._slices = slices
        self._mirrored = mirrored
        self._unfit_reason = lower.unfit_reason if profile.is_apart else lower.reason
        self._objects = objects
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._selections = Selections()
        self._addresses = AddressChange(mirrored, profile, upper, lower)
        # By key of a refused object: how often in a row.
        self._refused: dict[str, int] = {}
        # By key: the hash of the patch that the lower side stored in another form, which is not sent again.
        self._followed: dict[str, bytes] = {}
        # By key of a lower object that was changed first: the version of the upper one that is about to be replaced,
        # and until when that is expected.
        self._ahead: dict[str, tuple[int, float]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        resource = self.resource
        selecting = partial(_selecting, self._mirrored)
        found = [
            self._objects.watch(things.own_key, {SELECTING: selecting}),
            Watch(
                resource=resource,
                decode=things.whole,
                keys=things.keys_of_lower(self._profile),
                selectors=things.selector(self._profile.prefix),
                optional=self._mirrored.is_optional,
                awaited=not self._mirrored.is_optional,
                cluster=self._lower.cluster,
                scope=self._lower.scope,
            ),
        ]
        if self._mirrored.reads_slices and self._slices is not None:
            found.append(self._slices.watch(services_of, INDEXES))
        if self._mirrored.selectors is not None:
            found.append(Watch(resource=Namespace.resource, decode=things.labelled, keys=self._of_namespace))
        return found

    def _of_namespace(self, change: Change[LabelledNamespace]) -> Iterable[str]:
        """Return the objects whose selection of namespaces a change of one may change."""
        cache = self._upper.cache_of(self.resource)
        if cache is None:
            return ()
        values = selections.values_of(change.before, change.after)
        return {each.key for value in values for each in cache.by_index(SELECTING, value)}

    def look_again(self, namespaces: Collection[str]) -> None:
        """Queue the objects of upper namespaces whose lower namespace has changed; see `PodMirror.look_again`."""
        keys = things.keys_of_lower(self._profile)
        below: Iterable[Thing] = self._lower.cluster.cache_of(self.resource) or ()
        above: Iterable[Thing] = self._upper.cache_of(self.resource) or ()
        for key in {*(each.key for each in above), *(key for each in below for key in keys(Change(None, each)))}:
            if key.partition("/")[0] in namespaces:
                self._upper.wake(ObjectMirror, key)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one object a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        if self._is_left(key) or not self._profile.is_mirrored(key):
            return None
        if not self._is_listed(key):
            return PLACE_SECONDS
        if not self._is_known():
            return LISTED_SECONDS if self._lower.cluster.cache_of(self.resource) is not None else None
        again = await self._bring(cluster, key)
        # No event reports that users of the upper side have deleted the kind.
        return LOOK_SECONDS if again is None and self._mirrored.is_optional and self._of(key) is not None else again

    async def _bring(self, cluster: Cluster, key: str) -> float | None:
        cache = cluster.cache_of(self.resource)
        upper, lower = cache.get(key) if cache is not None else None, self._of(key)
        if upper is None:
            self._refused.pop(key, None)
            self._followed.pop(key, None)
            self._ahead.pop(key, None)
            self._addresses.accepted(key)
            return await self._without_upper(lower)
        if lower is not None and self._is_of_another(lower, upper):
            # Its deletion wakes this key again.
            await self._end(lower)
            return None
        try:
            again = await self._down(await self._whole(upper), lower)
        except NotTranslated as error:
            if self._profile.is_apart and lower is not None and upper.kept is not Kept.TOO_MANY:
                await self._end(lower)  # as if it had always been so: its last form is not what the upper one says
            return self._refuse(upper, self._unfit_reason, str(error))
        except REFUSALS as error:
            return self._refuse(upper, self._lower.reason, str(self._upper_words(error, upper.object)))
        self._refused.pop(key, None)
        if lower is not None:
            await self._up(upper, lower)
        return again

    def _is_of_another(self, lower: Thing, upper: Thing) -> bool:
        """Return whether a lower object is one of an earlier upper one, so that it has to go."""
        if self._waits(lower):
            return False
        if self._mirrored.chosen is not None:
            return not self._left_ahead(upper) and self._addresses.is_replaceable(upper, lower)
        return lower.mark(self._profile, "uid") != upper.uid

    def _waits(self, lower: Thing) -> bool:
        return adoption.waits(part(lower.meta, "annotations"), self._profile)

    def _is_known(self) -> bool:
        """Return whether the objects of both sides are known; an upper side without the kind has none."""
        if not self._mirrored.is_optional:
            return True
        is_there = self._upper.cache_of(self.resource) is not None
        return self._lower.cluster.is_listed(self.resource) and (not is_there or self._upper.is_listed(self.resource))

    def _is_listed(self, key: str) -> bool:
        """Return whether an object that is not in a cache does not exist: a place that is watched must be listed."""
        above, below = key.partition("/")[0], self._profile.lower_namespace(key.partition("/")[0])
        places = [(self._objects.scope, self._upper, above), (self._lower.scope, self._lower.cluster, below)]
        return all(
            scope is None or place not in scope or cluster.is_listed_in(self.resource, place)
            for scope, cluster, place in places
        )

    def _is_left(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        return self._mirrored.is_left(namespace, name)

    def _of(self, key: str) -> Thing | None:
        lower_key = self._profile.lower_key(self.resource.kind, key)
        found: Thing | None = self._lower.cluster.cache(self.resource).get(lower_key)
        if found is None or things.is_own(self._profile, found.key, found.meta.get("labels")):
            return found
        return None

    async def _whole(self, upper: Thing) -> Thing:
        """Return an upper object whole; one of which the head alone was kept is read again.

        Raises:
            NotTranslated: It is one too many, or too large.
            ApiError: The upper side does not answer; NotFound if it is gone.
        """
        refusal = self._objects.left_out(upper, self._mirrored_now)
        if refusal:
            raise NotTranslated(refusal)
        if upper.kept is Kept.WHOLE:
            return upper
        asked = request.get(self.resource, upper.meta["namespace"], upper.meta["name"])
        return things.whole(msgspec.Raw(await self._upper.writer.send(asked)))

    def _mirrored_now(self) -> int:
        """Return how many lower objects this mirror has."""
        cache: Iterable[Thing] = self._lower.cluster.cache(self.resource)
        return sum(things.is_of(self._profile, each.key, each.meta.get("labels")) for each in cache)

    async def _without_upper(self, lower: Thing | None) -> float | None:
        if lower is None or lower.is_deleting or self._waits(lower):
            return None
        if self._mirrored.chosen is not None and not lower.mark(self._profile, "uid"):
            created = dt.datetime.fromisoformat(lower.meta["creationTimestamp"])
            left = FIRST_SECONDS - (self._upper.clock.now() - created).total_seconds()
            if left > 0:
                return left
        await self._end(lower)
        return None

    async def _end(self, lower: Thing) -> None:
        if lower.is_deleting:
            return
        meta = lower.meta
        # At its version: a new upper object may have taken it over. Conflict: its event wakes this key.
        asked = request.delete(self.resource, meta["namespace"], meta["name"], uid=lower.uid, version=lower.version)
        with suppress(NotFound, Conflict):
            await self._lower.writer.send(asked)

    # -- down -------------------------------------------------------------------------------------

    @property
    def resource(self) -> Resource:
        """Return the kind."""
        return self._mirrored.resource

    @property
    def is_first(self) -> bool:
        """Return whether the lower object is made before the upper one is stored."""
        return self._mirrored.chosen is not None

    async def settled(self) -> bool:
        """Wait until both sides' objects of the kind are known; return whether the lower side is served."""
        await self._upper.listed(self.resource)
        await self._lower.cluster.listed(self.resource)
        return self._lower.cluster.is_synced

    async def make_first(self, upper: Json, before: Json | None, *, is_dry_run: bool) -> Json:
        """Create or change the lower object of an upper one that is about to be stored.

        Args:
            upper: The upper object; it need not have a uid.
            before: The upper object as it is stored; None if it is being created.
            is_dry_run: Whether nothing is to be stored.

        Returns:
            The upper object with what the lower API server has chosen.

        Raises:
            NotTranslated: The object is not mirrored.
            Conflict: The lower object of an earlier one of this name is still there.
            ApiError: The lower side refuses.
        """
        meta = part(upper, "metadata")
        key = object_key(str(meta.get("namespace", "")), str(meta.get("name", "")))
        # The last finalizer of an object that is being deleted must go whatever the lower side says.
        if self._is_left(key) or meta.get("deletionTimestamp") or self._addresses.is_between(upper):
            return upper
        lower = self._of(key)
        if before is None:
            if self._objects.full():
                raise NotTranslated(self._objects.full())
            if lower is not None and await self._is_stored(key):
                # The API server is about to refuse the creation: the name is taken.
                return self._chosen(upper, lower.object)
        uid = part(before or {}, "metadata").get("uid", "")
        asked = self._first(self.wanted({**upper, "metadata": {**meta, "uid": uid}}, lower), lower)
        if asked is None:
            return self._chosen(upper, lower.object) if lower is not None else upper
        try:
            if is_dry_run:
                # It shows whether the lower side refuses; what it chooses is not what it would choose.
                await self._lower.writer.send(replace(asked, is_dry_run=True))
                return upper
            known = self._upper.cache(self.resource).get(key)
            if known is not None:
                self._ahead[key] = (known.version, self._upper.clock.monotonic() + FIRST_SECONDS)
            return self._chosen(upper, (await self._lower.writer.own(asked)).object)
        except ApiError as error:
            self._ahead.pop(key, None)
            if before is None and lower is not None and isinstance(error, Invalid) and not is_dry_run:
                # Of an earlier object, which cannot become this one.
                await self._end(lower)
                raise Conflict(f"{self.resource.plural} {meta['name']!r}: its predecessor is being deleted") from error
            raise self._upper_words(error, upper) from error

    def _first(self, wanted: Json, lower: Thing | None) -> ApiRequest | None:
        """Return the request that creates or changes a lower object; None if it is as it should be.

        Raises:
            Conflict: It is being deleted.
        """
        if lower is None:
            return request.create_json(self.resource, wanted)
        if lower.is_deleting:
            raise Conflict(
                f"{self.resource.plural} {lower.mark(self._profile, 'name')!r}: its predecessor is being deleted"
            )
        patch = self._patch(lower, wanted)
        mark = self._profile.mark("uid")
        if mark not in wanted["metadata"]["annotations"] and lower.mark(self._profile, "uid"):
            # It is the new object's from now on: the end of the earlier one must not delete it.
            patch.setdefault("metadata", {}).setdefault("annotations", {})[mark] = None
        meta = lower.meta
        return request.patch(self.resource, meta["namespace"], meta["name"], patch) if patch else None

    async def _is_stored(self, key: str) -> bool:
        """Return whether there is an upper object that is not being deleted; the cache may be behind."""
        namespace, _, name = key.partition("/")
        data = await self._upper.live.find(self.resource, namespace, name)
        return data is not None and not msgspec.json.decode(data)["metadata"].get("deletionTimestamp")

    def _left_ahead(self, upper: Thing) -> float:
        """Return for how many seconds a lower object stays as it was changed first: the new upper one is on its way."""
        version, until = self._ahead.get(upper.key, (0, 0.0))
        left = until - self._upper.clock.monotonic()
        if version != upper.version or left <= 0:
            self._ahead.pop(upper.key, None)
            return 0.0
        return left

    def _upper_words(self, error: ApiError, upper: Json) -> ApiError:
        meta = part(upper, "metadata")
        return upper_words(error, self._profile, self.resource.kind, meta["namespace"], meta["name"])

    def _chosen(self, upper: Json, lower: Json) -> Json:
        return self._mirrored.chosen(upper, lower) if self._mirrored.chosen is not None else upper

    async def _down(self, upper: Thing, lower: Thing | None) -> float | None:
        """Bring a lower object to what it should be; return in how many seconds to look again, None for never."""
        left = self._left_ahead(upper)
        if left:
            return left
        above = upper.object
        if await self._addresses.go_on(above, lower):
            return None
        try:
            await self._send(upper, lower, self.wanted(above, lower, await self._selected(above)))
        except Invalid:
            if not await self._is_address_refused(above, lower):
                raise
            left = self._addresses.left(upper.key)
            if not left and not await self._addresses.begin(above):
                raise
            return left or None
        self._addresses.accepted(upper.key)
        return None

    async def _is_address_refused(self, upper: Json, lower: Thing | None) -> bool:
        """Return whether the lower side accepts a refused object if it may choose the addresses."""
        freed = self._addresses.freed(upper)
        return freed is not None and await self._addresses.accepts(self._first(self.wanted(freed, lower), lower))

    async def _send(self, upper: Thing, lower: Thing | None, wanted: Json) -> None:
        if lower is None:
            await self._lower.writer.own(request.create_json(self.resource, wanted))
            return
        patch = {} if lower.is_deleting else self._patch(lower, wanted)
        if not patch:
            self._followed.pop(upper.key, None)
            return
        # A lower webhook may store a field in another form each time.
        digest = sha256(msgspec.json.encode(patch)).digest()
        if self._followed.get(upper.key) == digest:
            return
        # NotFound, Conflict: its event wakes this key.
        with suppress(NotFound, Conflict):
            await self._lower.writer.own(
                request.patch(self.resource, lower.meta["namespace"], lower.meta["name"], patch)
            )
            # Not before: a patch that was lost is sent again.
            self._followed[upper.key] = digest

    async def _selected(self, upper: Json) -> Callable[[Json], Sequence[str]]:
        """Return the function that returns the upper namespaces which a selector of an upper object selects.

        Raises:
            NotTranslated: Its selectors cost too much.
        """
        if self._mirrored.selectors is None:
            return none
        spec = self._mirrored.spec(part(upper, "spec"), "spec")
        selectors = selections.different(self._mirrored.selectors(spec))
        if not selectors:
            return none  # without selectors, the number of namespaces has no limit
        namespaces = self._upper.cache(Namespace.resource)
        selections.check(selectors, len(namespaces))
        found: dict[bytes, Sequence[str]] = {}
        for _ in self._selections.steps(namespaces, selectors, found):
            # Other control planes, and the lease of the operator, must not wait for the selectors of one.
            await asyncio.sleep(0)
        return lambda selector: found[selections.key_of(selector)]

    def wanted(self, upper: Json, lower: Thing | None, namespaces: Callable[[Json], Sequence[str]] = none) -> Json:
        """Return the lower object of an upper one; see `lowerobjects.down`."""
        meta = part(upper, "metadata")
        slices = partial(self._slices_of, object_key(meta["namespace"], meta["name"]))
        return lowerobjects.down(self._mirrored, self._profile, upper, lower, namespaces=namespaces, slices=slices)

    def _patch(self, lower: Thing, wanted: Json) -> Json:
        return lowerobjects.patch(self._mirrored, self._profile, lower, wanted)

    def _slices_of(self, key: str) -> Sequence[WrittenSlice]:
        """Return the EndpointSlices that users have written for an upper Service."""
        return self._upper.cache(SLICES).by_index(BY_SERVICE, key)

    def _refuse(self, upper: Thing, reason: str, message: str) -> float:
        """Say in an event why an upper object has no lower one, or not its latest form; return when to try again."""
        meta = upper.meta
        about = ObjectMeta(
            name=meta["name"], namespace=meta["namespace"], uid=upper.uid, resource_version=str(upper.version)
        )
        self._upper.recorder.say(NamedObject(self.resource, about), EventKind.WARNING, reason, message)
        times = self._refused.get(upper.key, 0)
        self._refused[upper.key] = times + 1
        return retry_seconds(times)

    # -- up ---------------------------------------------------------------------------------------

    async def _up(self, upper: Thing, lower: Thing) -> None:
        if self._mirrored.status is None:
            return
        try:
            status = self._mirrored.status(lower.object)
        except NotTranslated as error:
            log.warning("the status of a lower object is malformed", extra={"key": lower.key, "error": str(error)})
            return
        patch = {key: value for key, value in status.items() if upper.status.get(key, {}) != value}
        if not patch:
            return
        meta = upper.meta
        body: Json = {"metadata": {"uid": upper.uid, "resourceVersion": str(upper.version)}, "status": patch}
        asked = request.patch(self.resource, meta["namespace"], meta["name"], body, subresource="status")
        # Conflict: another object has the name by now, or this one has changed. Its event wakes this key.
        with suppress(NotFound, Conflict):
            try:
                await self._upper.writer.own(asked, quiet=True)
            except Invalid as error:
                # Users of the upper side have defined the kind otherwise.
                log.debug("a status does not fit the upper kind", extra={"key": upper.key, "error": str(error)})


def _selecting(mirrored: MirroredKind, upper: Thing) -> Iterable[str]:
    return (
        selections.labels_of(mirrored.selectors(part(upper.object, "spec"))) if mirrored.selectors is not None else ()
    )
