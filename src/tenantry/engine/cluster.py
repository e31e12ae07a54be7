"""One API server: its client, caches, informers and writer.

    Cluster "home"  ─► Informer ─► Cache ─► keys ─┐
    Cluster "peer1" ─► Informer ─► Cache ─► keys ─┴─► Runtime's queue ─► Controller.reconcile(cluster, key)
         ▲ writer ◄──────────────────────────────────────────────────────────┘

A controller reads `cache`, or `live` if a cache may be behind, and writes through `writer`; it holds no client.
Informers of one kind are shared: listeners that want one kind in different forms fail when they are added.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NewType, Protocol

import msgspec

from tenantry.api.model import Resource
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import Clock
from tenantry.engine.crds import CrdState, observe_crd
from tenantry.engine.events import Recorder
from tenantry.engine.informer import Informer
from tenantry.engine.observed import Observed, observe
from tenantry.engine.outage import Outage
from tenantry.engine.reader import Reader
from tenantry.engine.scope import WatchScope
from tenantry.engine.scopedinformer import ScopedInformer
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client

ClusterId = NewType("ClusterId", str)
"""Which API server: a name in logs, metrics and queue keys, unique in a runtime."""

HOME = ClusterId("home")
"""The cluster that the operator runs in."""

REQUIRE_SECONDS = 20.0
"""The limit for the first list of a kind that is watched on demand."""

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)

log = logging.getLogger(__name__)


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that a controller needs.

    Args:
        resource: The kind.
        decode: From JSON to what is cached. All listeners of a kind name the same function.
        keys: From a change to the keys that it concerns.
        selectors: `labelSelector` and `fieldSelector`.
        indexes: See `Cache`.
        optional: The cluster may not have the kind: its CRD can be created and deleted at any time.
        awaited: Whether the cluster is in step only when the cache of the kind is. Otherwise the controller asks
            `Cluster.is_listed`: the operator may have no right to list the kind, or its conversion may fail.
        cluster: The API server, if it is not the one whose keys the controller reconciles.
        scope: The places in which the client may list the kind; None for everywhere. All listeners of a kind name the
            same object. A place that is refused does not keep the cluster from being in step: a controller asks
            `Cluster.is_listed_in` before it takes an object for missing.
    """

    resource: Resource
    decode: Callable[[msgspec.Raw], Any]
    keys: Callable[[Change[Any]], Iterable[str]]
    selectors: Mapping[str, str] | None = None
    indexes: Mapping[str, Callable[[Any], Iterable[str]]] | None = None
    optional: bool = False
    awaited: bool = True
    cluster: Cluster | None = None
    scope: WatchScope | None = None


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A controller that listens to a kind.

    Args:
        owner: The cluster whose keys it reconciles; the listener is removed with that cluster.
        name: The controller's name, for messages.
        watch: The form in which it needs the kind.
        add: Called with each key that a change concerns.
        add_all: Called when the CRD of an optional kind is created or deleted: any key may be concerned.
    """

    owner: ClusterId
    name: str
    watch: Watch
    add: Callable[[str], None]
    add_all: Callable[[], None]

    def take(self, change: Change[Any]) -> None:
        """Queue the keys that a change concerns."""
        for key in self.watch.keys(change):
            self.add(key)


class Lane(Protocol):
    """The part of a runtime's queue that holds the keys of one cluster."""

    def listener(self, controller: str, watch: Watch) -> Listener:
        """Return the listener that queues the keys of a controller of this cluster when a kind changes."""
        ...

    def wake(self, kind: type, key: str) -> None:
        """See `Cluster.wake`."""
        ...

    def forget(self, controller: str, key: str) -> None:
        """See `Cluster.forget`."""
        ...

    def resume(self) -> None:
        """Go on after an outage of the API server."""
        ...

    def has_work(self) -> bool:
        """See `Cluster.has_work`."""
        ...


class Cluster:
    """One API server, as the controllers of a runtime see it.

    Args:
        id: Its name in the runtime.
        client: Open while the cluster is in a runtime.
        clock: For events.
        instance: Which replica reports events.
    """

    def __init__(self, id: ClusterId, client: Client, *, clock: Clock, instance: str) -> None:  # noqa: A002 - its id
        self.id = id
        self.clock = clock
        self.live = Reader(client)
        self.writer = Writer(client, self)
        self.recorder = Recorder(self.writer, clock, instance)
        self.is_synced = False
        self.outage = Outage(id, clock)
        self.outage.listen(self._outage_changed)
        self._client = client
        self._informers: dict[Resource, Informer[Any] | ScopedInformer[Any]] = {}
        self._listeners: dict[Resource, list[Listener]] = {}
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._lane: Lane | None = None
        self._crds: Informer[CrdState] | None = None

    # -- caches ---------------------------------------------------------------------------------

    def cache(self, resource: Resource) -> Cache[Any]:
        """Return the cache of a kind that a controller watches."""
        return self._informers[resource].cache

    def cache_of(self, resource: Resource) -> Cache[Any] | None:
        """Return the cache of a kind; None for one that is not watched, or that the cluster does not have."""
        informer = self._informers.get(resource)
        return informer.cache if informer is not None else None

    def is_listed(self, resource: Resource) -> bool:
        """Return whether a kind is watched, and its cache has been in step: an optional kind may begin at any time."""
        informer = self._informers.get(resource)
        return informer is not None and informer.synced.is_set()

    async def listed(self, *resources: Resource) -> None:
        """Wait until the caches of kinds have been in step; a kind that is not watched needs nothing."""
        for resource in resources:
            informer = self._informers.get(resource)
            if informer is not None:
                await informer.synced.wait()

    def is_listed_in(self, resource: Resource, place: str) -> bool:
        """Return whether the cache of a kind has been in step in a place; see `Watch.scope`."""
        informer = self._informers.get(resource)
        return informer.is_listed(place) if isinstance(informer, ScopedInformer) else self.is_listed(resource)

    async def listed_in(self, resource: Resource, place: str, *, seconds: float = REQUIRE_SECONDS) -> None:
        """Wait until the cache of a kind has been in step in a place; a kind without a scope is in step in all.

        Args:
            resource: A kind that is watched.
            place: A place of its scope.
            seconds: The limit.

        Raises:
            KeyError: The kind is not watched, or its scope does not have the place.
            TimeoutError: The API server does not list the place in time, or the place leaves the scope.
        """
        informer = self._informers[resource]
        async with asyncio.timeout(seconds):
            await (informer.listed(place) if isinstance(informer, ScopedInformer) else informer.synced.wait())

    def observed_caches(self, resources: Iterable[Resource]) -> dict[Resource, Cache[Observed]]:
        """Return the caches of those kinds that the cluster has."""
        return {resource: self._informers[resource].cache for resource in resources if resource in self._informers}

    def lookup(self, resource: Resource, key: str) -> Observed | None:
        """Return the cached form of an object, for plans; None if there is none, or the kind is not watched."""
        informer = self._informers.get(resource)
        return informer.cache.get(key) if informer is not None else None

    def notify(self, resource: Resource, change: Change[Any]) -> None:
        """Queue the keys that a change concerns which a response revealed before the watch."""
        informer = self._informers.get(resource)
        if informer is not None:
            informer.on_change(change)

    def decode(self, resource: Resource, data: bytes) -> Any:  # noqa: ANN401 - each kind is cached in a form of its own
        """Return an object in the form in which its kind is cached."""
        informer = self._informers.get(resource)
        return informer.decode(msgspec.Raw(data)) if informer is not None else observe(resource, data)

    def monotonic(self) -> float:
        """Return seconds that never go back, for writes that remember for a time what they read."""
        return self.clock.monotonic()

    def count(self) -> dict[Resource, int]:
        """Return how many objects the cache of each kind holds."""
        return {resource: len(informer.cache) for resource, informer in self._informers.items()}

    def ages(self) -> dict[Resource, float]:
        """Return for how many seconds the API server has sent nothing for the cache of each kind."""
        return {resource: informer.age_seconds for resource, informer in self._informers.items()}

    # -- listening ------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Add a listener; if the kind is watched already, it gets every object of the cache as a change.

        Raises:
            ValueError: Another listener wants the kind in another form; both are named.
        """
        watch = listener.watch
        others = self._listeners.setdefault(watch.resource, [])
        for other in others:
            difference = _difference(other.watch, watch)
            if difference:
                raise ValueError(
                    f"controllers {other.name!r} and {listener.name!r} want different {difference} of"
                    f" {watch.resource.full_name} in cluster {self.id!r}; give both the same watch"
                )
        others.append(listener)
        informer = self._informers.get(watch.resource)
        if informer is not None:
            _index(informer, watch)
            for value in informer.cache:
                listener.take(Change(None, value))
        elif not watch.optional:
            self._begin(watch.resource)
        elif self._crds is not None:
            # Its CRD may have been reported before.
            state = self._crds.cache.get(watch.resource.full_name)
            if state is not None:
                self._crd_changed(Change(None, state))

    def leave(self, owner: ClusterId) -> None:
        """Remove the listeners of a cluster that leaves the runtime, and end watches without listeners."""
        for resource, listeners in self._listeners.items():
            listeners[:] = [each for each in listeners if each.owner != owner]
            if not listeners and resource in self._informers:
                self._end(resource)

    async def require(self, name: str, watch: Watch) -> Cache[Any]:
        """Return the synchronised cache of a kind, which is watched from the first call on.

        Args:
            name: The controller that listens to the kind.
            watch: The form in which it needs the kind.

        Raises:
            TimeoutError: The API server does not list the kind in time.
            ValueError: Another listener wants the kind in another form.
        """
        resource = watch.resource
        if not any(each.name == name for each in self._listeners.get(resource, ())):
            log.info("kind is needed now", extra={"cluster": self.id, "resource": resource.full_name})
            self.listen(self._joined().listener(name, watch))
        informer = self._informers[resource]
        if not informer.synced.is_set():
            async with asyncio.timeout(REQUIRE_SECONDS):
                await informer.synced.wait()
        return informer.cache

    def _begin(self, resource: Resource) -> None:
        """Watch a kind from now on."""
        # Any listener will do: `listen` has rejected those that want another form.
        first = self._listeners[resource][0].watch
        changed = partial(self._changed, resource)
        informer: Informer[Any] | ScopedInformer[Any]
        if first.scope is None:
            informer = Informer(
                resource, first.decode, changed, selectors=first.selectors, cluster=self.id, outage=self.outage
            )
        else:
            informer = ScopedInformer(
                resource,
                first.decode,
                changed,
                first.scope,
                selectors=first.selectors,
                cluster=self.id,
                outage=self.outage,
            )
        self._informers[resource] = informer
        for listener in self._listeners[resource]:
            _index(informer, listener.watch)
        if self._group is not None:
            self._tasks[resource] = self._group.create_task(informer.run(self._client))

    def _end(self, resource: Resource) -> None:
        # `run` may wait for its first list, which does not come any more.
        self._informers.pop(resource).end()
        task = self._tasks.pop(resource, None)
        if task is not None:
            task.cancel()

    def _changed(self, resource: Resource, change: Change[Any]) -> None:
        for listener in self._listeners[resource]:
            listener.take(change)

    # -- the runtime's queue --------------------------------------------------------------------

    def join(self, lane: Lane | None) -> None:
        """Connect the cluster to the queue of a runtime; None disconnects it."""
        self._lane = lane

    def wake(self, kind: type, key: str) -> None:
        """Queue a key at once, for a reason that no watch reports.

        Args:
            kind: A kind: every controller that reconciles it gets the key. Or the class of one controller.
            key: The key.
        """
        self._joined().wake(kind, key)

    @property
    def has_work(self) -> bool:
        """Return whether its keys are queued or being reconciled; those that wait for their time do not count."""
        return self._joined().has_work()

    def forget(self, controller: str, key: str) -> None:
        """Remove the back-off and rate of a key whose object is gone."""
        self._joined().forget(controller, key)

    def _joined(self) -> Lane:
        if self._lane is None:
            raise RuntimeError(f"cluster {self.id!r} is in no runtime")
        return self._lane

    # -- running --------------------------------------------------------------------------------

    async def run(self, synced: Callable[[], None]) -> None:
        """Keep the caches synchronised until cancelled.

        Args:
            synced: Called once all of them are that are awaited.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.recorder.run())
                group.create_task(self.outage.run(self._probe))
                for resource, informer in list(self._informers.items()):
                    self._tasks[resource] = group.create_task(informer.run(self._client))
                if any(each[0].watch.optional for each in self._listeners.values() if each):
                    await self._follow_crds(group)
                for resource, informer in list(self._informers.items()):
                    if any(each.watch.awaited for each in self._listeners[resource]):
                        await informer.synced.wait()
                self.is_synced = True
                log.info("caches are in step", extra={"cluster": self.id, "objects": sum(self.count().values())})
                synced()
        finally:
            self._group = None
            self._tasks.clear()
            for informer in self._informers.values():
                informer.synced.clear()  # if the cluster is served again, its caches are old until they are listed
            self.is_synced = False

    async def _probe(self) -> None:
        """Send one request that needs the rights of this client; it may have places in which nothing is granted yet."""
        listeners = self._listeners
        required = [self._informers[name] for name, found in listeners.items() if found and not found[0].watch.optional]
        # A place can be refused for a reason of its own: kinds that are listed everywhere come first.
        required.sort(key=lambda informer: isinstance(informer, ScopedInformer))
        probe = next((found for informer in required if (found := informer.probe()) is not None), None)
        if probe is not None:
            path, query = probe
            await self._client.request("GET", path, query=query)

    def _outage_changed(self) -> None:
        if self.outage.is_over and self._lane is not None:
            self._lane.resume()

    async def _follow_crds(self, group: asyncio.TaskGroup) -> None:
        """Follow the CRDs of optional kinds, and begin with those that are there now."""
        crds = self._crds = Informer(CRDS, observe_crd, self._crd_changed, cluster=self.id, outage=self.outage)
        group.create_task(crds.run(self._client))
        await crds.synced.wait()

    def _crd_changed(self, change: Change[CrdState]) -> None:
        state = change.after or change.before
        if state is None:
            return
        is_served = change.after is not None and change.after.established
        for resource, listeners in self._listeners.items():
            if resource.full_name != state.key or not listeners or not listeners[0].watch.optional:
                continue
            # Users of a cluster may have defined another kind of this name.
            served = is_served and state.namespaced == resource.namespaced and resource.version in state.versions
            if served and resource not in self._informers:
                log.info("kind is there now", extra={"cluster": self.id, "resource": resource.full_name})
                self._begin(resource)
            elif not served and resource in self._informers:
                log.info("kind is gone", extra={"cluster": self.id, "resource": resource.full_name})
                self._end(resource)
            else:
                continue
            for listener in listeners:
                listener.add_all()


def _index(informer: Informer[Any] | ScopedInformer[Any], watch: Watch) -> None:
    for name, function in (watch.indexes or {}).items():
        if not informer.cache.has_index(name):
            informer.cache.add_index(name, function)


def _difference(one: Watch, other: Watch) -> str:
    """Return the property that keeps two watches of a kind from sharing an informer; "" if they can share one."""
    if one.decode != other.decode:
        return "decodings"
    if one.selectors != other.selectors:
        return "selections"
    if one.optional != other.optional:
        return "optionality"
    if one.scope is not other.scope:
        return "scopes"
    ours, theirs = one.indexes or {}, other.indexes or {}
    return "indexes" if any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys()) else ""
