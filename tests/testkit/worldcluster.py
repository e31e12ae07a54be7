"""Whole controllers against a `testkit.model.World`, for tests of their decisions without I/O.

    World ─► WorldClient.request ─► Cluster (the real caches, writer, lane) ─► Controller.reconcile
      ▲                                                                                  │
      └──────────────────────────── requests ◄───────────────────────────────────────────┘

The cluster, the writer, the queue and the wake-ups are the operator's own; only the one way out of the client is
answered by the World, and instead of watches `look` brings the caches up to date. Whether requests are what a real API
server accepts, only tests/integration can show.

    world = World()
    world.create(tenant("acme"))
    WorldCluster(world, controllers("uid")).settle()
    assert world.get(Namespace.resource, "acme")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.engine.cache import Change
from tenantry.engine.cluster import HOME, Cluster, Lane
from tenantry.engine.events import EventKind, NamedObject, Recorder
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import ClusterLane, Controller, Item, Runtime
from tenantry.engine.scopedinformer import ScopedInformer
from tenantry.engine.tasks import first_error
from testkit.clock import ManualClock
from testkit.model import World
from testkit.worldclient import WorldClient

MOST_RECONCILES = 2000
"""More reconciles in one `settle` mean that controllers never come to rest."""


class _Notes(Recorder):
    """Records events in a list: with a clock that stands still, they would all get one name."""

    said: list[tuple[str, EventKind, str, str]]

    def say(self, about: KubernetesObject | NamedObject, kind: EventKind, reason: str, note: str) -> None:
        self.said.append((about.key, kind, reason, note))


class _Workers(Runtime):
    """The operator's runtime, one reconcile at a time."""

    async def work(self, lane: ClusterLane, item: Item) -> None:
        await self._work(lane, item)

    def _fail(self, lane: ClusterLane, item: Item, error: Exception) -> None:
        if not isinstance(error, TenantryError | TimeoutError):
            raise error  # the operator logs what is a bug; a test fails
        super()._fail(lane, item, error)


class WorldCluster(Cluster):
    """The operator's cluster, with a World behind it.

    Args:
        world: It has the objects.
        controllers: The controllers.
        optional: Optional kinds that the World serves.
        faults: What happens to the next request, one of `testkit.runs.FAULTS`; "crash" raises `Crash`.
    """

    def __init__(
        self,
        world: World,
        controllers: Sequence[Controller],
        *,
        optional: Sequence[Resource] = (),
        faults: Callable[[], str] = lambda: "none",
    ) -> None:
        self.manual_clock = ManualClock()
        client = WorldClient(world, faults)
        client.field_manager = FIELD_MANAGER
        super().__init__(HOME, client, clock=self.manual_clock, instance="test")
        self._world = world
        self._looked: dict[Resource, int] = {}
        self._notes = self.recorder = _Notes(self.writer, self.clock, "test")
        self._notes.said = []
        self._runtime = _Workers(clock=self.clock, metrics=Metrics())
        self._runtime.add(self, controllers)
        for resource in optional:
            self._begin(resource)
        self.look()

    @property
    def said(self) -> list[tuple[str, EventKind, str, str]]:
        """Return the events so far: the object's key, the type, the reason and the note."""
        return self._notes.said

    def join(self, lane: Lane | None) -> None:
        """See `Cluster.join`."""
        super().join(lane)
        self.lane = cast("ClusterLane", lane)  # of the runtime above
        self.lane.is_open = True

    def look(self, *resources: Resource) -> None:
        """Bring caches up to date with the World, as watches do; of all kinds, if none is named."""
        for resource in resources or list(self._informers):
            informer, since = self._informers[resource], self._looked.get(resource, 0)
            if isinstance(informer, ScopedInformer):
                since = 0  # a new place has old objects
            elif since == self._world.revision:
                continue
            self._looked[resource] = self._world.revision
            found = {_key(each): each for each in self._world.list(resource, selectors=informer.selectors)}
            gone = [each.key for each in informer.cache if each.key not in found]
            changes: list[Change[Any] | None] = [informer.cache.remove(key, self._world.revision) for key in gone]
            newer = [each for each in found.values() if int(each["metadata"]["resourceVersion"]) > since]
            changes += [informer.cache.put(informer.decode(msgspec.Raw(msgspec.json.encode(each)))) for each in newer]
            for change in changes:
                if change is not None:
                    informer.on_change(change)
            if isinstance(informer, ScopedInformer):
                for place in informer.scope.places:
                    informer.informer(place).synced.set()

    def settle(self, seconds: float = 0.0, *, look: bool = True) -> None:
        """Reconcile all queued keys, and those that they queue, until the queue is empty.

        Args:
            seconds: The time that passes meanwhile; delayed keys become due within it.
            look: Bring the caches up to date before each reconcile.

        Raises:
            Crash: A fault ended the operator.
            AssertionError: The controllers do not come to rest.
        """
        with first_error():  # the writes of one wave are in a TaskGroup
            asyncio.run(self._settle(seconds, look=look))

    async def _settle(self, seconds: float, *, look: bool) -> None:
        deadline = self.clock.monotonic() + seconds
        for _ in range(MOST_RECONCILES):
            if look:
                self.look()
            now = self.clock.monotonic()
            item = self.lane.take(now)
            if item is not None:
                await self._runtime.work(self.lane, item)
                continue
            wake = self.lane.next_wake(now)
            self.manual_clock.advance(min(deadline, deadline if wake is None else wake) - now)
            if wake is None or wake > deadline:
                return
        raise AssertionError(f"the controllers do not come to rest; {self.lane.queue.ready} keys are queued")

    def serve(self, resource: Resource, *, is_served: bool = True) -> None:
        """Serve an optional kind that controllers watch, or no longer."""
        if is_served:
            self._begin(resource)
        else:
            self._end(resource)
            self._looked.pop(resource, None)
        for listener in self._listeners[resource]:
            listener.add_all()

    def _begin(self, resource: Resource) -> None:
        super()._begin(resource)
        self._informers[resource].synced.set()
        self.look(resource)


def _key(value: dict[str, Any]) -> str:
    return object_key(value["metadata"].get("namespace", ""), value["metadata"]["name"])
