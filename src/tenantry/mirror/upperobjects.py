"""The objects of one kind of an upper side as they are cached: at most so many of them whole, and none too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from tenantry.api.model import Resource
from tenantry.engine.cache import Cached, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.scope import WatchScope
from tenantry.mirror import things
from tenantry.mirror.cachedpods import MOST_BYTES, Kept
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import Thing

BY_KEPT = "kept"
"""Upper objects, by how much of them is cached."""


class KeptObject(Cached, Protocol):
    """An object of which more or less is cached."""

    @property
    def kept(self) -> Kept:
        """Return how much of it is cached."""
        ...


K = TypeVar("K", bound=KeptObject)


class BoundedObjects(Generic[K]):
    """The objects of one kind of one upper side; users there choose how many there are, and what they contain.

    Args:
        resource: The kind.
        profile: The configuration.
        upper: The upper cluster.
        read: Returns what is cached of an object of which that much is to be kept.
        selectors: Of the watch; None for all objects.
        is_optional: Whether the upper side need not have the kind.
        scope: The upper namespaces in which the objects are watched; None for all.
    """

    def __init__(
        self,
        resource: Resource,
        profile: Profile,
        upper: Cluster,
        read: Callable[[msgspec.Raw, Kept], K],
        *,
        selectors: Mapping[str, str] | None = None,
        is_optional: bool = False,
        scope: WatchScope | None = None,
    ) -> None:
        self.resource = resource
        self.scope = scope
        self._read = read
        self._is_optional = is_optional
        self._selectors = selectors
        self._most = profile.most_objects
        self._upper = upper

    def watch(
        self,
        keys: Callable[[Change[K]], Iterable[str]],
        indexes: Mapping[str, Callable[[K], Iterable[str]]] | None = None,
    ) -> Watch:
        """Return a watch of the objects; see `Watch`."""
        own = {BY_KEPT: _kept}
        return Watch(
            resource=self.resource,
            decode=self._decode,
            keys=keys,
            selectors=self._selectors,
            indexes={**own, **(indexes or {})},
            optional=self._is_optional,
            scope=self.scope,
        )

    def full(self) -> str:
        """Return why no further object is mirrored; "" if there is room."""
        return "" if self._has_room() else self._too_many()

    def hides_any(self, namespace: str) -> bool:
        """Return whether what an object of a namespace names is not known, because the object is too large."""
        cache = self._upper.cache_of(self.resource)
        found = cache.by_index(BY_KEPT, Kept.TOO_LARGE) if cache is not None else ()
        return any(each.key.partition("/")[0] == namespace for each in found)

    def _too_many(self) -> str:
        return f"more than {self._most} {self.resource.plural} exist: delete some"

    def _has_room(self) -> bool:
        cache = self._upper.cache_of(self.resource)
        return cache is None or cache.count(BY_KEPT, Kept.WHOLE) < self._most

    def _decode(self, data: msgspec.Raw) -> K:
        if len(memoryview(data)) > MOST_BYTES:
            return self._read(data, Kept.TOO_LARGE)
        cache = self._upper.cache_of(self.resource)
        found = self._read(data, Kept.TOO_MANY)
        known = cache.get(found.key) if cache is not None else None
        is_kept = (known is not None and known.kept is Kept.WHOLE) or self._has_room()
        return self._read(data, Kept.WHOLE) if is_kept else found


class UpperObjects(BoundedObjects[Thing]):
    """The objects of one mirrored kind; see `BoundedObjects`."""

    def __init__(
        self,
        resource: Resource,
        profile: Profile,
        upper: Cluster,
        *,
        is_optional: bool = False,
        scope: WatchScope | None = None,
    ) -> None:
        super().__init__(resource, profile, upper, _thing, is_optional=is_optional, scope=scope)

    def left_out(self, found: Thing, mirrored: Callable[[], int]) -> str:
        """Return why an object is not mirrored; "" if it is.

        Args:
            found: The object.
            mirrored: Returns how many are mirrored: some of those of which the head alone is kept are, too.
        """
        if found.kept is Kept.TOO_LARGE:
            return f"objects of at most {MOST_BYTES // 1024} KiB are mirrored: divide it"
        if found.kept is Kept.TOO_MANY and (not self._has_room() or mirrored() >= self._most):
            return self._too_many()
        return ""


def _thing(data: msgspec.Raw, kept: Kept) -> Thing:
    return things.whole(data) if kept is Kept.WHOLE else things.head(data, kept)


def _kept(found: KeptObject) -> Iterable[str]:
    return [found.kept]
