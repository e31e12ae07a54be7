"""The objects of one kind as last seen, with indexes: pure.

Own writes are no news: between `expect` and `settle`, the watch's events of that key are only stored, and the
API server's response shows whether another client wrote as well. Events are ordered by resourceVersion, so that lost,
repeated and late ones do no harm.

One list and watch covers the whole kind, or one *place* of it (see `tenantry.engine.scope`): what is known of the
progress of a watch is kept by place, and a list of one place says nothing about the objects of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

EVERYWHERE = ""
"""The place of all objects in a cache without places."""

_BY_PLACE = "/place"


class Cached(Protocol):
    """What a cache can hold."""

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        ...

    @property
    def version(self) -> int:
        """Return the resourceVersion."""
        ...


C = TypeVar("C", bound=Cached)


class Change(msgspec.Struct, Generic[C], frozen=True, gc=False):
    """An object before and after a change; None if it does not exist."""

    before: C | None
    after: C | None


class Cache(Generic[C]):
    """Objects by key, and by the values of indexes.

    Args:
        indexes: A name and a function from an object to the values that it is found under.
        place_of: From a key to the place that has it. Only objects of open places are stored. None for a cache that
            one watch fills.
    """

    def __init__(
        self,
        indexes: Mapping[str, Callable[[C], Iterable[str]]] | None = None,
        place_of: Callable[[str], str] | None = None,
    ) -> None:
        self._objects: dict[str, C] = {}
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[str]]] = {name: {} for name in self._index_functions}
        # Deletions that are known before the watch reports them: an older event must not bring the object back.
        self._gone: dict[str, int] = {}
        self._place_of = place_of
        # By place: its watch has reported everything up to this resourceVersion: an object that is not here did not
        # exist then.
        self._reported: dict[str, int] = {}
        if place_of is None:
            self.open(EVERYWHERE)
        else:
            self.add_index(_BY_PLACE, lambda value: (place_of(value.key),))
        # The object before an own write began, by key; None if there was none.
        self._expected: dict[str, C | None] = {}

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._objects)

    def __iter__(self) -> Iterator[C]:
        """Iterate over the objects as they are now."""
        # A copy: iterating over a dict that changes meanwhile would raise.
        return iter(list(self._objects.values()))

    def has_index(self, name: str) -> bool:
        """Return whether objects can be found by an index."""
        return name in self._index_functions

    def add_index(self, name: str, function: Callable[[C], Iterable[str]]) -> None:
        """Add an index, and put the objects into it that are here already."""
        self._index_functions[name] = function
        index = self._indexes[name] = {}
        for value in self._objects.values():
            for found in function(value):
                index.setdefault(found, set()).add(value.key)

    def get(self, key: str) -> C | None:
        """Return an object, None if there is none."""
        return self._objects.get(key)

    def by_index(self, name: str, value: str) -> list[C]:
        """Return the objects that an index finds under a value, sorted by key."""
        # Sorted, so that no plan depends on the order of events.
        return [self._objects[key] for key in sorted(self._indexes[name].get(value, ()))]

    def count(self, name: str, value: str) -> int:
        """Return how many objects an index finds under a value."""
        return len(self._indexes[name].get(value, ()))

    def open(self, place: str) -> None:
        """Store the objects of a place from now on; nothing is known of them yet."""
        self._reported[place] = 0

    def close(self, place: str) -> list[Change[C]]:
        """Remove the objects of a place, store no others, and return the changes."""
        changes = self.clear(place)
        self._drop_gone(place)
        self._reported.pop(place, None)
        return changes

    def expect(self, key: str) -> None:
        """Mark the start of an own write to a key; `settle` must follow, even if the write fails."""
        # Two own writes to a key may overlap: the state before the first one counts.
        self._expected.setdefault(key, self._objects.get(key))

    def settle(self, key: str, answer: C | None) -> Change[C] | None:
        """Mark the end of an own write, and return what other clients changed meanwhile; None if they changed nothing.

        Args:
            key: The key.
            answer: The object as the server answered; None if the write failed or deleted it.
        """
        before = self._expected.pop(key, None)
        # The answer for a key of no open place is not stored, which does not mean that the object was deleted.
        if answer is not None and self._place(key) in self._reported:
            self.put(answer)
            before = answer
        after = self._objects.get(key)
        # By version: the watch may deliver the written object before the response arrives, as another Python object.
        same = before is after or (before is not None and after is not None and before.version == after.version)
        return None if same else Change(before, after)

    def put(self, value: C, *, listed: int = -1) -> Change[C] | None:
        """Store an object and return the change; None if it is not newer, in no open place, or during an own write.

        Args:
            value: The object, from an event, a list, or an answer that may be late.
            listed: The resourceVersion of the list with the object, which overrules earlier events; -1 for no list.
        """
        reported = self._reported.get(self._place(value.key))
        if reported is None:
            return None
        before = self._objects.get(value.key)
        # An older object in a list that is as new as what is known: the data was restored from a backup.
        is_restored = before is not None and value.version < before.version <= listed
        if before is not None and value.version <= before.version and not is_restored:
            return None
        if before is None and value.version <= reported and listed < 0:
            return None  # a late response: the watch has already reported the deletion of the object
        if value.version <= self._gone.get(value.key, -1):
            return None
        self._gone.pop(value.key, None)
        self._objects[value.key] = value
        self._reindex(value.key, before, value)
        return None if value.key in self._expected else Change(before, value)

    def remove(self, key: str, version: int) -> Change[C] | None:
        """Remove an object that was deleted at a resourceVersion; None as with `put`."""
        before = self._objects.get(key)
        if before is None or before.version > version:
            return None
        del self._objects[key]
        self._reindex(key, before, None)
        return None if key in self._expected else Change(before, None)

    def forget(self, key: str, version: int) -> None:
        """Remove an object that a response reported missing; older events of it have no effect.

        Args:
            key: The key.
            version: The version that was known when the request was sent; a newer object stays.
        """
        before = self._objects.get(key)
        if before is None or before.version > version:
            return
        del self._objects[key]
        self._gone[key] = before.version
        self._reindex(key, before, None)

    def advance(self, version: int, place: str = EVERYWHERE) -> None:
        """Record that the watch has reported everything up to a resourceVersion, by a bookmark or by a later event."""
        if place in self._reported:
            self._reported[place] = max(self._reported[place], version)

    def finish_list(self, listed: set[str], version: int, place: str = EVERYWHERE) -> list[Change[C]]:
        """Remove the objects that a complete list of that resourceVersion did not contain, and return the changes."""
        lost = [each.key for each in self._in(place) if each.key not in listed and each.version <= version]
        self._drop_gone(place)
        self.advance(version, place)
        changes = [self.remove(key, version) for key in lost]
        return [change for change in changes if change is not None]

    def clear(self, place: str = EVERYWHERE) -> list[Change[C]]:
        """Remove all objects of a place, and return the changes: the kind itself is gone, or the place."""
        changes = [self.remove(value.key, value.version) for value in self._in(place)]
        return [change for change in changes if change is not None]

    def is_newer_than(self, version: int, place: str = EVERYWHERE) -> bool:
        """Return whether the cache has had later events than a list: the data was restored from a backup."""
        return version < self._reported.get(place, 0)

    def restart(self, version: int, place: str = EVERYWHERE) -> list[Change[C]]:
        """Remove all objects of a place if a list is older than earlier events, and return the changes.

        resourceVersions only grow, until the data of the API server is restored from a backup.
        """
        if not self.is_newer_than(version, place):
            return []
        changes = self.clear(place)
        self._reported[place] = version
        self._drop_gone(place)
        return changes

    def _place(self, key: str) -> str:
        return EVERYWHERE if self._place_of is None else self._place_of(key)

    def _in(self, place: str) -> list[C]:
        return list(self) if self._place_of is None else self.by_index(_BY_PLACE, place)

    def _drop_gone(self, place: str) -> None:
        for key in [each for each in self._gone if self._place(each) == place]:
            del self._gone[key]

    def _reindex(self, key: str, before: C | None, after: C | None) -> None:
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            old = set(function(before)) if before is not None else set[str]()
            new = set(function(after)) if after is not None else set[str]()
            for value in old - new:
                index[value].discard(key)
                if not index[value]:
                    del index[value]
            for value in new - old:
                index.setdefault(value, set()).add(key)
