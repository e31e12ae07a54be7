"""The objects of one kind as last seen, with indexes: pure.

Own writes are no news: between `expect` and `settle`, the watch's events of that key are only stored, and the
API server's response shows whether another client wrote as well. Events are ordered by resourceVersion, so that lost,
repeated and late ones do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec


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
    """

    def __init__(self, indexes: Mapping[str, Callable[[C], Iterable[str]]] | None = None) -> None:
        self._objects: dict[str, C] = {}
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[str]]] = {name: {} for name in self._index_functions}
        # Deletions that are known before the watch reports them: an older event must not bring the object back.
        self._gone: dict[str, int] = {}
        # The watch has reported everything up to this resourceVersion: an object that is not here did not exist then.
        self._reported = 0
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
        if answer is not None:
            self.put(answer)
            before = answer
        after = self._objects.get(key)
        # By version: the watch may deliver the written object before the response arrives, as another Python object.
        same = before is after or (before is not None and after is not None and before.version == after.version)
        return None if same else Change(before, after)

    def put(self, value: C, *, listed: int = -1) -> Change[C] | None:
        """Store an object and return the change; None if it is not newer, or during an own write.

        Args:
            value: The object, from an event, a list, or an answer that may be late.
            listed: The resourceVersion of the list with the object, which overrules earlier events; -1 for no list.
        """
        before = self._objects.get(value.key)
        # An older object in a list that is as new as what is known: the data was restored from a backup.
        is_restored = before is not None and value.version < before.version <= listed
        if before is not None and value.version <= before.version and not is_restored:
            return None
        if before is None and value.version <= self._reported and listed < 0:
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

    def advance(self, version: int) -> None:
        """Record that the watch has reported everything up to a resourceVersion, by a bookmark or by a later event."""
        self._reported = max(self._reported, version)

    def finish_list(self, listed: set[str], version: int) -> list[Change[C]]:
        """Remove the objects that a complete list of that resourceVersion did not contain, and return the changes."""
        lost = [key for key, value in self._objects.items() if key not in listed and value.version <= version]
        self._gone.clear()
        self.advance(version)
        changes = [self.remove(key, version) for key in lost]
        return [change for change in changes if change is not None]

    def clear(self) -> list[Change[C]]:
        """Remove all objects, and return the changes: the kind itself is gone."""
        changes = [self.remove(value.key, value.version) for value in self]
        return [change for change in changes if change is not None]

    def is_newer_than(self, version: int) -> bool:
        """Return whether the cache has had later events than a list: the data was restored from a backup."""
        return version < self._reported

    def restart(self, version: int) -> list[Change[C]]:
        """Remove all objects if a list is older than earlier events, and return the changes.

        resourceVersions only grow, until the data of the API server is restored from a backup.
        """
        if not self.is_newer_than(version):
            return []
        changes = self.clear()
        self._reported = version
        self._gone.clear()
        return changes

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
