"""Copies ConfigMaps and Secrets to the lower side while an upper object names them.

    a pod, an Ingress, a source or a copy changes ─► KIND/NAMESPACE/NAME ─► is it named? ─► create, update or delete

Before a pod is created on the lower side, its copies are there: `bring`.

A client that may read single sources only (Kubernetes: "Using Node Authorization") has a scope for each kind, which has
the key of each source while an upper object names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, Invalid, NotFound, RetryableError
from tenantry.api.model import Json, Resource, object_key
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.scope import WatchScope
from tenantry.mirror import adoption, podlimits, podstatus, references, things
from tenantry.mirror.adoption import ADOPTED
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.kinds import ingresses
from tenantry.mirror.podlimits import PodLimits
from tenantry.mirror.profile import Profile
from tenantry.mirror.references import PodReference
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, PODS, Copy, Thing
from tenantry.mirror.tokens import is_tokens
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.upperpods import UpperPods

VERSION = "version"
"""The mark of a copy: the resourceVersion of its source."""

BY_REFERENCE = "reference"
"""Upper objects, by `KIND/NAMESPACE/NAME` of each ConfigMap and Secret that they name."""

SOURCE_SECONDS = 5.0
"""The limit for the first list of a source that is watched by its key."""

_REMEMBERED = 64
_MOST_REMEMBERED_BYTES = 16 * 1024
"""A pod has some six events and one spec; pods of one controller may share it. Larger specs are read each time."""

_TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - a type
_CONTENT = ("data", "binaryData", "immutable")
_KEPT_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson", "kubernetes.io/tls")
"""Types whose content the lower API server checks; others become Opaque, token Secrets above all."""


class Copies:
    """The copies of one mirror: a controller of the upper cluster; the key is `KIND/NAMESPACE/NAME` of a source.

    Args:
        profile: The configuration.
        upper: The cluster of the sources.
        lower: The side of the copies.
        upper_pods: The pods of the upper side.
        upper_objects: Objects of other kinds, each with the function that returns what an object names.
        sources: By kind, the scope by key in which the sources are watched; None for all sources.
    """

    name = "copies"
    kind = Copy

    def __init__(
        self,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        *,
        upper_pods: UpperPods,
        upper_objects: Sequence[tuple[UpperObjects, Callable[[Thing], list[str]]]] = (),
        sources: Mapping[str, WatchScope] | None = None,
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._pods = upper_pods
        self._objects = upper_objects
        self._sources = sources or {}
        self._locks: dict[PodReference, asyncio.Lock] = {}
        self._names = lru_cache(maxsize=_REMEMBERED)(_names_in)
        self._referring = (PODS, *(each.resource for each, _ in upper_objects))

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        below, selectors = self._lower.cluster, things.selector(self._profile.prefix)
        source = things.source(self._profile.mark(things.WRITTEN_MARK))
        return [
            self._pods.watch(partial(_named_by, self._of_pod), {BY_REFERENCE: self._of_pod}),
            *(each.watch(partial(_named_by, names), {BY_REFERENCE: names}) for each, names in self._objects),
            *(
                Watch(
                    resource=resource,
                    decode=source,
                    keys=partial(self._of_source, kind),
                    scope=self._sources.get(kind),
                )
                for kind, resource in COPIED.items()
            ),
            *(
                Watch(
                    resource=resource,
                    decode=things.headed,
                    keys=partial(self._of_copy, kind),
                    selectors=selectors,
                    cluster=below,
                    scope=self._lower.scope,
                )
                for kind, resource in COPIED.items()
            ),
        ]

    def look_again(self, namespaces: Collection[str]) -> None:
        """Queue the sources that pods of some upper namespaces name; see `PodMirror.look_again`."""
        for each in self._upper.cache_of(PODS) or ():
            if each.key.partition("/")[0] in namespaces:
                for key in self._of_pod(each):
                    self._upper.wake(Copies, key)

    def _of_source(self, kind: str, change: Change[Copy]) -> Iterable[str]:
        found = change.after or change.before
        key = f"{kind}/{found.key}" if found is not None else ""
        return [key] if self._is_named(key) else ()

    def _of_copy(self, kind: str, change: Change[Copy]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or not things.is_of(self._profile, found.key, found.labels):
            return ()
        # A Secret with tokens has no such mark.
        is_copy = self._profile.mark(VERSION) in found.annotations
        return [f"{kind}/{things.key_above(self._profile, found.key, found.annotations)}"] if is_copy else ()

    def _of_pod(self, pod: CachedPod) -> list[str]:
        """Return what a pod names that goes down with it."""
        if not pod.is_whole:
            return []
        limits = self._profile.limits
        read = _names_in if len(pod.specification) > _MOST_REMEMBERED_BYTES else self._names
        names, is_unfit = read(pod.specification, limits)
        # One that runs keeps what it names, if less may travel now. Malformed metadata are refused.
        if (
            not names
            or not references.is_translated({"metadata": pod.meta})
            or (is_unfit and not podstatus.is_recorded(pod.status, self._profile))
        ):
            return []
        namespace = pod.key.partition("/")[0]
        return [f"{kind}/{object_key(namespace, name)}" for kind, name in names]

    def _is_named(self, key: str) -> bool:
        if not self._profile.is_mirrored(key.partition("/")[2]):
            return False
        caches = (self._upper.cache_of(resource) for resource in self._referring)
        return any(cache.count(BY_REFERENCE, key) for cache in caches if cache is not None)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one copy to what it should be.

        Raises:
            ApiError: One side refuses; the queue tries again.
        """
        kind, _, source = key.partition("/")
        if self._is_named(key):
            namespace, _, name = source.partition("/")
            await self.bring([PodReference(kind=kind, namespace=namespace, name=name)])
            return None
        scope = self._sources.get(kind)
        if scope is not None:
            scope.discard(source)
        await self._delete(kind, self._copy(kind, source))
        return None

    async def bring(self, needed: Iterable[PodReference]) -> None:
        """Create or update copies; a source that does not exist is no error, as on any node.

        Raises:
            RetryableError: A source was not listed in time.
            ApiError: One side refuses.
        """
        for each in sorted(needed, key=str):
            # One at a time for each source: pods of one namespace all need its kube-root-ca.crt, and start together.
            lock = self._locks.setdefault(each, asyncio.Lock())
            try:
                async with lock:
                    await self._bring(each)
            finally:
                if not lock.locked():
                    self._locks.pop(each, None)

    def _copy(self, kind: str, key: str) -> Copy | None:
        found: Copy | None = self._lower.cluster.cache(COPIED[kind]).get(self._profile.lower_key(kind, key))
        is_own = found is not None and things.is_own(self._profile, found.key, found.labels)
        # A Secret with tokens of a pod may have the name of a source.
        return found if is_own and found is not None and not is_tokens(self._profile, found) else None

    async def _watch(self, named: PodReference, key: str) -> bool:
        """Watch a source before its cache is read; return whether there can be one of the name.

        Raises:
            RetryableError: It was not listed in time.
        """
        scope = self._sources.get(named.kind)
        if scope is None:
            return True
        try:
            scope.add(key)
        except ValueError:
            return False  # the API server accepts any text as the name in a pod
        try:
            await self._upper.listed_in(COPIED[named.kind], key, seconds=SOURCE_SECONDS)
        except (KeyError, TimeoutError) as error:
            raise RetryableError(f"{named.kind} {key!r}, which a pod names, has not been listed yet") from error
        return True

    async def _bring(self, named: PodReference) -> None:
        resource, key = COPIED[named.kind], object_key(named.namespace, named.name)
        if not await self._watch(named, key):
            return
        source, copy = self._upper.cache(resource).get(key), self._copy(named.kind, key)
        if source is None:
            await self._delete(named.kind, copy)
            return
        if copy is not None and copy.annotations.get(self._profile.mark(VERSION)) == str(source.version):
            return
        try:
            data = await self._upper.writer.send(request.get(resource, named.namespace, named.name))
        except NotFound:
            return  # the watch is about to report it
        live = msgspec.json.decode(data)
        if self._profile.limits is not None and live.get("type") == _TOKEN_TYPE:
            return  # as tokens in volumes: those of the upper side do not leave it
        wanted = self._wanted(named, live)
        of = copy.annotations.get(self._profile.mark("uid")) if copy is not None else None
        if copy is None:
            await self._create(resource, wanted)
        elif copy.annotations.get(self._profile.mark(ADOPTED)):
            await self._follow(named, copy, live, wanted)
        elif of != live["metadata"]["uid"]:
            # Of an earlier source of this name: `immutable` and the type of its copy can never change.
            await self._delete(named.kind, copy)
            await self._create(resource, wanted)
        else:
            await self._lower.writer.own(request.replace_json(resource, wanted), quiet=True)

    async def _create(self, resource: Resource, wanted: Json) -> None:
        try:
            await self._lower.writer.own(request.create_json(resource, wanted), quiet=True)
        except AlreadyExists:
            # Of an earlier request, or a foreign object: the lower pod reads one that has a computed name.
            if not self._profile.computed and not await self._is_ours(resource, wanted["metadata"]):
                raise

    async def _is_ours(self, resource: Resource, meta: Json) -> bool:
        """Return whether an object that is in the way of a copy is a copy itself, which the watch has not reported."""
        data = await self._lower.cluster.live.find(resource, meta["namespace"], meta["name"])
        found = things.headed(msgspec.Raw(data)) if data is not None else None
        is_copy = found is not None and not is_tokens(self._profile, found)
        return found is None or (is_copy and things.is_of(self._profile, found.key, found.labels))

    async def _follow(self, named: PodReference, copy: Copy, live: Json, wanted: Json) -> None:
        """Replace an adopted object, also by the copy of a new source: pods that run name it."""
        of, given = copy.annotations.get(self._profile.mark("uid")), live.get("type") or "Opaque"
        is_typed = named.kind != references.SECRET or given == copy.annotations[self._profile.mark(ADOPTED)]
        # The type of one that waits is that of its source.
        is_other = bool(of) and of != live["metadata"]["uid"]
        if is_typed or not is_other:
            try:
                await self._lower.writer.own(
                    request.replace_json(COPIED[named.kind], self._kept(copy, wanted)), quiet=True
                )
            except Invalid:
                if not is_other:
                    raise
            else:
                return
        # Its type is another, or it is immutable. The next one gets a computed name, once the caches know, as pods do.
        await self._delete(named.kind, copy)
        raise RetryableError(f"{named.kind} {named.name!r} ends on the host first, under the name that it had there")

    def _kept(self, copy: Copy, wanted: Json) -> Json:
        """Return what an adopted object becomes: it keeps its name, and its type, which never changes."""
        mark, meta = self._profile.mark(ADOPTED), wanted["metadata"]
        annotations = {**meta["annotations"], mark: copy.annotations[mark]}
        kept = {"type": copy.annotations[mark]} if "type" in wanted else {}
        return {**wanted, **kept, "metadata": {**meta, "annotations": annotations}}

    def _wanted(self, named: PodReference, live: Json) -> Json:
        profile = self._profile
        content: Json = {field: live[field] for field in _CONTENT if field in live}
        if named.kind == references.SECRET:
            given = live.get("type", "")
            content["type"] = given if given in _KEPT_TYPES else "Opaque"
        marks = {"namespace": named.namespace, "name": named.name, "uid": live["metadata"]["uid"]}
        marks[VERSION] = live["metadata"]["resourceVersion"]
        return {
            "apiVersion": "v1",
            "kind": named.kind,
            "metadata": {
                "name": profile.lower_name(named.kind, named.namespace, named.name),
                "namespace": profile.lower_namespace(named.namespace),
                "labels": profile.labels(named.namespace),
                "annotations": {profile.mark(key): value for key, value in marks.items()},
                "ownerReferences": [profile.owner] if profile.owner else [],
            },
            **content,
        }

    async def _delete(self, kind: str, copy: Copy | None) -> None:
        if copy is None or adoption.waits(copy.annotations, self._profile):
            return
        namespace, _, name = copy.key.partition("/")
        with suppress(NotFound, Conflict):
            await self._lower.writer.send(request.delete(COPIED[kind], namespace, name, uid=copy.uid))


def _names_in(specification: bytes, limits: PodLimits | None) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the kind and name of each object that a spec of a pod, as JSON, names, and whether it may not travel."""
    above: Json = {"spec": msgspec.json.decode(specification)}
    is_unfit = False
    if limits is not None:
        is_unfit = bool(podlimits.unfit(part(above, "spec"), limits))
        above = podlimits.reduced(above, limits)
    return tuple((each.kind, each.name) for each in references.references(above)), is_unfit


def _named_by(names: Callable[[Any], Iterable[str]], change: Change[Any]) -> Iterable[str]:
    """Return what an upper object names now, or has named until now."""
    return {name for each in (change.before, change.after) if each is not None for name in names(each)}


def of_ingress(ingress: Thing) -> list[str]:
    """Return what an Ingress names, for `upper_objects`."""
    namespace = ingress.key.partition("/")[0]
    return [f"Secret/{object_key(namespace, name)}" for name in ingresses.secrets(ingress.object)]
