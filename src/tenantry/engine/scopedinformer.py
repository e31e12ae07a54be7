"""A scoped informer keeps the cache of one kind synchronised in places: each has a list and a watch of its own.

    WatchScope ─► ScopedInformer ─┬─► Informer of "acme"  ─┐
                                  └─► Informer of "umbra" ─┴─► one Cache, with indexes over all places

A place that the API server refuses is tried again with a back-off of its own; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from tenantry.api.model import Resource
from tenantry.engine.cache import Cache, Cached, Change
from tenantry.engine.informer import Informer
from tenantry.engine.outage import Outage
from tenantry.engine.scope import By, WatchScope
from tenantry.kube.client import Client

C = TypeVar("C", bound=Cached)


class ScopedInformer(Generic[C]):
    """The cache of one kind in the places of a scope, kept current.

    `synced` is set once the API server has listed or refused each place that the scope had when `run` began.

    Args:
        resource: The kind.
        decode: See `Informer`.
        on_change: See `Informer`.
        scope: The places.
        selectors: In all places.
        cluster: The `ClusterId` of the API server, for logs.
        outage: See `Informer`.

    Raises:
        ValueError: Objects of the kind are in no namespace.
    """

    def __init__(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], C],
        on_change: Callable[[Change[C]], None],
        scope: WatchScope,
        *,
        selectors: Mapping[str, str] | None = None,
        cluster: str = "",
        outage: Outage | None = None,
    ) -> None:
        if scope.by is By.NAMESPACE and not resource.namespaced:
            raise ValueError(f"{resource.full_name} has no namespaces; watch single objects by key")
        self.resource = resource
        self.decode = decode
        self.on_change = on_change
        self.scope = scope
        self.selectors = selectors
        self.cache: Cache[C] = Cache(place_of=scope.by.place_of)
        self.synced = asyncio.Event()
        self._cluster = cluster
        self._outage = outage
        self._informers: dict[str, Informer[C]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: tuple[asyncio.TaskGroup, Client] | None = None
        scope.follow(self._changed)
        for place in sorted(scope.places):
            self._begin(place)

    @property
    def age_seconds(self) -> float:
        """See `Informer`: that of the place with the oldest."""
        return max((each.age_seconds for each in self._informers.values()), default=0.0)

    async def run(self, client: Client) -> None:
        """List and watch every place until cancelled, also those that are added meanwhile."""
        try:
            async with asyncio.TaskGroup() as group:
                self._running = group, client
                first = dict(self._informers)
                for place in first:
                    self._start(place)
                for informer in first.values():
                    await informer.answered.wait()
                self.synced.set()
                await asyncio.Event().wait()  # the group must stay open for further places
        finally:
            self._running = None
            self._tasks.clear()
            for informer in self._informers.values():
                # Objects are old until they are listed again.
                informer.synced.clear()
                informer.answered.clear()

    def end(self) -> None:
        """Release everything that waits for the informer, which is not run again."""
        self.scope.unfollow(self._changed)
        self.synced.set()
        for informer in self._informers.values():
            informer.end()

    def probe(self) -> tuple[str, dict[str, str]] | None:
        """Return the smallest list in a place, one that was granted before if there is any; None if there is no place.

        See `Informer.probe`.
        """
        chosen = min(self._informers.values(), key=lambda each: not each.synced.is_set(), default=None)
        return chosen.probe() if chosen is not None else None

    def informer(self, place: str) -> Informer[C]:
        """Return the informer of a place.

        Raises:
            KeyError: The scope does not have the place.
        """
        return self._informers[place]

    def is_listed(self, place: str) -> bool:
        """Return whether a place of the scope has been listed."""
        informer = self._informers.get(place)
        return informer is not None and informer.synced.is_set()

    async def listed(self, place: str) -> None:
        """Wait until a place has been listed, as long as that takes.

        Raises:
            KeyError: The scope does not have the place.
            TimeoutError: The place left the scope meanwhile.
        """
        informer = self._informers[place]
        while not self.is_listed(place):
            await informer.synced.wait()
            if place not in self._informers:
                raise TimeoutError(f"{place!r} was not listed before it left the scope of {self.resource.full_name}")
            informer = self._informers[place]

    def _changed(self, place: str) -> None:
        if place in self.scope and place not in self._informers:
            self._begin(place)
        elif place not in self.scope and place in self._informers:
            self._end(place)

    def _begin(self, place: str) -> None:
        namespace, selectors = self.scope.by.selection(place, self.selectors)
        self.cache.open(place)
        self._informers[place] = Informer(
            self.resource,
            self.decode,
            self.on_change,
            selectors=selectors,
            cluster=self._cluster,
            outage=self._outage,
            namespace=namespace,
            cache=self.cache,
            place=place,
        )
        if self._running is not None:
            self._start(place)

    def _start(self, place: str) -> None:
        if self._running is not None:
            group, client = self._running
            self._tasks[place] = group.create_task(self._informers[place].run(client))

    def _end(self, place: str) -> None:
        self._informers.pop(place).end()
        task = self._tasks.pop(place, None)
        if task is not None:
            task.cancel()
        for change in self.cache.close(place):
            self.on_change(change)
