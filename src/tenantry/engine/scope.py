"""The places in which a kind is watched, for a client that may not list it everywhere: pure.

    controller ─► scope.add("acme") ─► ScopedInformer ─► a list and a watch of /namespaces/acme/pods

A ServiceAccount with rights in single namespaces lists and watches each of them. The Node authorizer lets a node read a
Secret or ConfigMap only by name, and only while a pod of the node names it: each object has a list and a watch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from tenantry.api.names import DNS_SUBDOMAIN

_NAME = re.compile(DNS_SUBDOMAIN, re.ASCII)


class By(Enum):
    """What one place of a scope is."""

    NAMESPACE = "namespace"
    KEY = "key"

    def place_of(self, key: str) -> str:
        """Return the place that has an object of this key."""
        return key.partition("/")[0] if self is By.NAMESPACE else key

    def check(self, place: str) -> None:
        """Check a place.

        Raises:
            ValueError: It is no namespace, or no key.
        """
        *namespaces, name = place.split("/")
        most = 0 if self is By.NAMESPACE else 1
        # An empty namespace would be all of them, and users choose names: a comma would add another selection.
        if len(namespaces) > most or not all(_NAME.fullmatch(each) for each in (*namespaces, name)):
            raise ValueError(f"{place!r} is no {self.value} of an object")

    def selection(self, place: str, selectors: Mapping[str, str] | None) -> tuple[str, dict[str, str]]:
        """Return the namespace and the selectors with which to list a place.

        Args:
            place: The place.
            selectors: `labelSelector` and `fieldSelector` of the kind in all places.
        """
        chosen = dict(selectors or {})
        if self is By.NAMESPACE:
            return place, chosen
        namespace, _, name = place.rpartition("/")
        fields = [chosen["fieldSelector"]] if "fieldSelector" in chosen else []
        chosen["fieldSelector"] = ",".join([*fields, f"metadata.name={name}"])
        return namespace, chosen


class WatchScope:
    """The places in which a kind is watched: namespaces, or single objects by key `namespace/name`.

    Listeners of one kind in one cluster share one scope. Several kinds can have the same scope.

    Args:
        by: What a place is.
    """

    def __init__(self, by: By) -> None:
        self.by = by
        self._places: set[str] = set()
        self._followers: list[Callable[[str], None]] = []

    def __contains__(self, place: str) -> bool:
        """Return whether the scope has a place."""
        return place in self._places

    @property
    def places(self) -> frozenset[str]:
        """Return the places as they are now."""
        return frozenset(self._places)

    def set(self, places: Iterable[str]) -> None:
        """Replace the places: watches of those that are new begin, watches of those that are gone end.

        Raises:
            ValueError: One is no namespace, or no key; nothing is changed.
        """
        wanted = set(places)
        for place in sorted(wanted):
            self.by.check(place)
        different = sorted(wanted ^ self._places)
        self._places = wanted
        for place in different:
            self._tell(place)

    def add(self, place: str) -> None:
        """Add a place, whose watch begins; a place that is there already stays as it is.

        Raises:
            ValueError: It is no namespace, or no key.
        """
        self.by.check(place)
        if place not in self._places:
            self._places.add(place)
            self._tell(place)

    def discard(self, place: str) -> None:
        """Remove a place: its watch ends, and its objects leave the cache as if they were deleted."""
        if place in self._places:
            self._places.remove(place)
            self._tell(place)

    def follow(self, changed: Callable[[str], None]) -> None:
        """Add a function that is called with each place that was added or removed.

        It looks whether the scope has the place: a change of a cache may change the scope again.
        """
        self._followers.append(changed)

    def unfollow(self, changed: Callable[[str], None]) -> None:
        """Remove a function that `follow` added."""
        self._followers.remove(changed)

    def _tell(self, place: str) -> None:
        for changed in list(self._followers):
            changed(place)
