"""Brings up Secrets that a program of the lower side writes for objects of offered kinds.

A controller of the upper cluster:

    upper object: spec.secretName: web-tls
      └─► lower object: spec.secretName: web-tls-5c1b0e0f4d0a92be
            └─► a program of the lower side writes this Secret ─► upper Secret web-tls

The key is `NAMESPACE/NAME` of the upper Secret. The lower name ends in a hash that the mirror computes, and that no
other lower object has. So users of the upper side cannot name a Secret that was not written for an object of theirs.

lower Secret   upper Secret           next
──────────────────────────────────────────────────────────────────────────────────────────
there          none                   mark the lower one, create the upper one
there          made by the mirror     bring it to what it should be
there          of users               leave it alone, and record an event
none           made by the mirror     delete it
no object names it                    delete both

A Secret that has not come up has no mark. If an object names another one instead, and the operator ends before it has
looked, the former Secret stays on the lower side, as it would if users changed the lower object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.mirror import things
from tenantry.mirror.kinds.offered import Offered, PlaceUse, written
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import REFUSALS, retry_seconds
from tenantry.mirror.shapes import items, part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, Copy, Thing
from tenantry.mirror.upperobjects import UpperObjects

SECRETS = COPIED["Secret"]
MARK = things.WRITTEN_MARK
"""The label of the upper Secrets that the mirror has made."""

WRITTEN = "written"
"""The mark of a lower Secret that came up: an annotation. The program that writes the Secret does not set it."""

BY_WRITTEN = "written"
"""Upper objects, by `NAMESPACE/NAME` of each Secret that is written for them."""

LISTED_SECONDS = 5.0
"""When to look again while the objects of a kind are being listed."""

LATER_SECONDS = 30.0
"""When to look again at a Secret that was deleted: its program may have been about to write it."""

LOOK_SECONDS = 300.0
"""When to look again at a Secret that is named: no event reports that users of the upper side have deleted the kind."""

_TYPES = frozenset(
    (
        *("Opaque", "kubernetes.io/tls", "kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"),
        *("kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"),
    )
)
"""Types that come up. A token of the lower side would be one of its own ServiceAccounts."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class WrittenSecrets:
    """The Secrets of one mirror.

    Args:
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        offered: The kinds that are offered, each with its upper objects.
    """

    name = "writtensecrets"
    kind = Copy

    def __init__(
        self, profile: Profile, upper: Cluster, lower: LowerSide, offered: Sequence[tuple[Offered, UpperObjects]]
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._offered = [
            (each.resource, objects, written(each))
            for each, objects in offered
            if any(place.use is PlaceUse.WRITTEN for place in each.places)
        ]
        # By key: how often in a row there was nothing to bring up.
        self._missed: dict[str, int] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        below, selectors = self._lower.cluster, things.selector(self._profile.prefix)
        return [
            *(objects.watch(partial(_named_by, names), {BY_WRITTEN: names}) for _, objects, names in self._offered),
            *(
                Watch(
                    resource=resource,
                    decode=things.whole,
                    keys=partial(self._of_lower, resource, names),
                    selectors=selectors,
                    optional=True,
                    awaited=False,
                    cluster=below,
                )
                for resource, _, names in self._offered
            ),
            Watch(resource=SECRETS, decode=things.source(self._profile.mark(MARK)), keys=self._of_upper),
            Watch(resource=SECRETS, decode=things.headed, keys=self._of_written, selectors=selectors, cluster=below),
        ]

    def _of_lower(
        self, resource: Resource, names: Callable[[Thing], list[str]], change: Change[Thing]
    ) -> Iterable[str]:
        """Return the Secrets of the upper object of a lower one: its program may have written them."""
        cache = self._upper.cache_of(resource)
        if cache is None:
            return ()
        found: Iterable[Thing | None] = map(cache.get, things.keys_of_lower(self._profile)(change))
        return [name for each in found if each is not None for name in names(each)]

    def _of_upper(self, change: Change[Copy]) -> Iterable[str]:
        found = change.after or change.before
        return [found.key] if found is not None and self._namers(found.key) else ()

    def _of_written(self, change: Change[Copy]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or not things.is_of(self._profile, found.key, found.labels):
            return ()
        key = things.upper_key(self._profile, found.annotations)
        return [key] if self._profile.mark(WRITTEN) in found.annotations and key else ()

    def _namers(self, key: str) -> list[tuple[Resource, Thing]]:
        """Return the upper objects that a Secret is written for."""
        caches = [(resource, self._upper.cache_of(resource)) for resource, _, _ in self._offered]
        return [
            (resource, each)
            for resource, cache in caches
            if cache is not None
            for each in cache.by_index(BY_WRITTEN, key)
        ]

    def _is_known(self) -> bool:
        """Return whether all upper objects are known that may name a Secret."""
        listed = (each for each, _, _ in self._offered if self._upper.cache_of(each) is not None)
        return all(self._upper.is_listed(each) for each in listed)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one Secret to what it should be.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        if not self._is_known():
            return LISTED_SECONDS
        namers = self._namers(key)
        if not namers:
            self._missed.pop(key, None)
            return await self._end(key)
        if not any(self._is_below(resource, each) for resource, each in namers):
            # Its lower object wakes this key.
            return None
        lower = await self._written(key)
        if lower is None or part(lower, "metadata").get("deletionTimestamp"):
            await self._delete_upper(key)
            times = self._missed.get(key, 0)
            self._missed[key] = times + 1
            return retry_seconds(times)
        self._missed.pop(key, None)
        refusal = await self._mark(key, lower)
        if refusal:
            self._say(namers, self._lower.reason, refusal)
            return LOOK_SECONDS
        await self._bring(cluster, key, namers, lower)
        return LOOK_SECONDS

    def _is_below(self, resource: Resource, upper: Thing) -> bool:
        cache = self._lower.cluster.cache_of(resource)
        return cache is not None and cache.get(self._profile.lower_key(resource.kind, upper.key)) is not None

    # -- the lower Secret -------------------------------------------------------------------------

    def _lower_name(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return self._profile.lower_name(PlaceUse.WRITTEN, namespace, name)

    async def _written(self, key: str) -> Json | None:
        # Nothing marks it until it came up once, so that no cache has it.
        found = await self._lower.cluster.live.find(SECRETS, self._profile.namespace, self._lower_name(key))
        return _json.decode(found) if found is not None else None

    async def _mark(self, key: str, lower: Json) -> str:
        """Mark a lower Secret, so that its changes wake this controller; return why it stays below, "" if it comes."""
        profile, meta = self._profile, part(lower, "metadata")
        given = str(lower.get("type") or "Opaque")
        if given not in _TYPES:
            return f"the Secret that the host wrote has the type {given!r}, which does not come up"
        namespace, _, name = key.partition("/")
        marks = {"namespace": namespace, "name": name, WRITTEN: "true"}
        labels, annotations = profile.labels(namespace), {profile.mark(mark): value for mark, value in marks.items()}
        owners = items(meta, "ownerReferences")
        # Its program may control it by now, and an object has one controller.
        own = {"controller": False, "blockOwnerDeletion": False}
        added = [{**profile.owner, **own}] if profile.owner else []
        is_owned = not added or any(each.get("uid") == added[0].get("uid") for each in owners)
        known = (part(meta, "labels"), part(meta, "annotations"))
        if is_owned and labels.items() <= known[0].items() and annotations.items() <= known[1].items():
            return ""
        body: Json = {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owners if is_owned else [*owners, *added],
        }
        asked = request.patch(SECRETS, profile.namespace, meta["name"], {"metadata": body})
        try:
            await self._lower.writer.own(asked, quiet=True)
        except REFUSALS as error:
            return str(error).replace(str(meta["name"]), name)
        return ""

    async def _end(self, key: str) -> float | None:
        """Delete a Secret that no object names; return in how many seconds to look again, None for never."""
        namespace = key.partition("/")[0]
        if any(objects.full() or objects.hides_any(namespace) for _, objects, _ in self._offered):
            # Of some objects, what they name is not known.
            return LOOK_SECONDS
        await self._delete_upper(key)
        lower = await self._written(key)
        if lower is None:
            return None
        meta = part(lower, "metadata")
        if not meta.get("deletionTimestamp"):
            with suppress(NotFound, Conflict):
                asked = request.delete(SECRETS, self._profile.namespace, meta["name"], uid=meta["uid"])
                await self._lower.writer.send(asked)
        return LATER_SECONDS

    # -- the upper Secret -------------------------------------------------------------------------

    def _is_ours(self, upper: Copy) -> bool:
        return upper.labels.get(self._profile.mark(MARK)) == "true"

    async def _bring(self, cluster: Cluster, key: str, namers: list[tuple[Resource, Thing]], lower: Json) -> None:
        namespace, _, name = key.partition("/")
        known: Copy | None = cluster.cache(SECRETS).get(key)
        wanted: Json = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {self._profile.mark(MARK): "true"},
                # Kubernetes deletes it with the last of them.
                "ownerReferences": [_owner(resource, each) for resource, each in namers],
            },
            "type": str(lower.get("type") or "Opaque"),
            "data": part(lower, "data"),
        }
        if known is None:
            # AlreadyExists: the watch is about to report it, and wakes this key.
            with suppress(AlreadyExists):
                await self._upper.writer.own(request.create_json(SECRETS, wanted))
            return
        if not self._is_ours(known):
            note = f"Secret {name!r} is yours, and not the one that the host wrote: delete it, and that one comes up"
            self._say(namers, reasons.OBJECT_EXISTS, note)
            return
        found = await self._upper.live.find(SECRETS, namespace, name)
        live = _json.decode(found) if found is not None else None
        if live is None or _digest(live) == _digest(wanted):
            return
        meta = part(live, "metadata")
        guard = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        with suppress(NotFound, Conflict):
            try:
                asked = request.replace_json(SECRETS, {**wanted, "metadata": {**wanted["metadata"], **guard}})
                await self._upper.writer.own(asked, quiet=True)
            except Invalid:
                # Its type is another, or users have made it immutable. Its end wakes this key.
                await self._upper.writer.send(request.delete(SECRETS, namespace, name, uid=meta["uid"]))

    async def _delete_upper(self, key: str) -> None:
        """Delete an upper Secret of the mirror, unless it is one of a kind that is no longer offered."""
        known: Copy | None = self._upper.cache(SECRETS).get(key)
        if known is None or not self._is_ours(known):
            return
        namespace, _, name = key.partition("/")
        found = await self._upper.live.find(SECRETS, namespace, name)
        if found is None:
            return
        meta = part(_json.decode(found), "metadata")
        kinds = {(each.api_version, each.kind) for each, _, _ in self._offered}
        owners = {(str(each.get("apiVersion")), str(each.get("kind"))) for each in items(meta, "ownerReferences")}
        if owners <= kinds:
            with suppress(NotFound, Conflict):
                await self._upper.writer.send(request.delete(SECRETS, namespace, name, uid=meta["uid"]))

    def _say(self, namers: list[tuple[Resource, Thing]], reason: str, note: str) -> None:
        for resource, each in namers:
            meta = each.meta
            about = ObjectMeta(
                name=meta["name"], namespace=meta["namespace"], uid=each.uid, resource_version=str(each.version)
            )
            self._upper.recorder.say(NamedObject(resource, about), EventKind.WARNING, reason, note)


def _named_by(names: Callable[[Thing], list[str]], change: Change[Thing]) -> Iterable[str]:
    """Return what an upper object names now, or has named until now."""
    return {name for each in (change.before, change.after) if each is not None for name in names(each)}


def _owner(resource: Resource, found: Thing) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": found.meta["name"],
        "uid": found.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def _digest(secret: Json) -> bytes:
    """Return what a Secret has that the mirror decides."""
    meta = part(secret, "metadata")
    owners = sorted(str(each.get("uid")) for each in items(meta, "ownerReferences"))
    kept = [secret.get("type"), part(secret, "data"), part(meta, "labels"), owners, bool(secret.get("immutable"))]
    return msgspec.json.encode(kept, order="sorted")
