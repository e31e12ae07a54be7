"""Runs controllers: their informers, one queue, workers, and what they share.

Work begins when every cache is in step, and ends when the lease is lost or the process is told to stop: what is under
way may finish, nothing new is begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tenantry.api.errors import ApiError, NotFound, RetryableError, TenantryError
from tenantry.api.model import KubernetesObject, Resource
from tenantry.engine.apply import Applier
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import Clock
from tenantry.engine.crds import CrdState, observe_crd
from tenantry.engine.events import Recorder
from tenantry.engine.informer import Informer
from tenantry.engine.metrics import Metrics
from tenantry.engine.observed import Observed
from tenantry.engine.workqueue import WorkQueue
from tenantry.kube.client import Client

WORKERS = 128
RECONCILE_SECONDS = 120.0
"""A reconcile that takes longer is broken off, so that it does not hold a worker for ever."""

REQUIRE_SECONDS = 20.0
"""How long the first list of a kind may take that is watched on demand."""

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)

log = logging.getLogger(__name__)


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that a controller needs.

    Args:
        resource: The kind.
        decode: From JSON to what is cached.
        keys: From a change to the keys that it concerns.
        selectors: `labelSelector` and `fieldSelector`.
        indexes: See `Cache`.
        optional: The cluster may not have the kind; it comes and goes with its CRD.
    """

    resource: Resource
    decode: Callable[[msgspec.Raw], Any]
    keys: Callable[[Change[Any]], Iterable[str]]
    selectors: Mapping[str, str] | None = None
    indexes: dict[str, Callable[[Any], Iterable[str]]] | None = None
    optional: bool = False


class Controller(Protocol):
    """What the engine runs."""

    name: str

    def watches(self) -> Sequence[Watch]:
        """Return the kinds that wake it."""
        ...

    async def reconcile(self, engine: Engine, key: str, attempt: int) -> float | None:
        """Bring one key to what it should be; return in how many seconds to look again, None for never."""
        ...


Key = tuple[str, str]
"""A controller's name and its key."""


class Engine:
    """The shared parts of all controllers.

    Args:
        client: Its field manager signs every write.
        controllers: By name they share the queue and the workers.
        clock: The time.
        metrics: Counted into.
        recorder: Writes events.
    """

    def __init__(
        self, client: Client, controllers: Sequence[Controller], *, clock: Clock, metrics: Metrics, recorder: Recorder
    ) -> None:
        self.client = client
        self.clock = clock
        self.recorder = recorder
        self.applier = Applier(client, self._observed_cache, self.news)
        self.is_synced = False
        self._stopping = False
        self._metrics = metrics
        self._controllers = {controller.name: controller for controller in controllers}
        self._queue: WorkQueue[Key] = WorkQueue()
        self._wake = asyncio.Event()
        self._informers: dict[Resource, Informer[Any]] = {}
        self._optional: dict[Resource, list[tuple[str, Watch]]] = {}
        self._optional_tasks: dict[Resource, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._watching: list[asyncio.Task[None]] = []
        wanted: dict[Resource, list[tuple[str, Watch]]] = {}
        for controller in controllers:
            for watch in controller.watches():
                wanted.setdefault(watch.resource, []).append((controller.name, watch))
        for resource, listeners in wanted.items():
            if listeners[0][1].optional:
                self._optional[resource] = listeners
            else:
                self._informers[resource] = self._informer(listeners)

    # -- what controllers use -------------------------------------------------------------------

    def cache(self, resource: Resource) -> Cache[Any]:
        """Return the cache of a kind that some controller watches."""
        return self._informers[resource].cache

    def observed_caches(self, resources: Iterable[Resource]) -> dict[Resource, Cache[Observed]]:
        """Return the caches of those kinds that the cluster has."""
        return {resource: self._informers[resource].cache for resource in resources if resource in self._informers}

    def controller(self, name: str) -> Controller:
        """Return one of the controllers, for another one that needs its work done."""
        return self._controllers[name]

    def news(self, resource: Resource, change: Change[Any]) -> None:
        """Wake whoever a change concerns that came to light beside the watch."""
        informer = self._informers.get(resource)
        if informer is not None:
            informer.on_change(change)

    async def write_status(self, value: KubernetesObject) -> None:
        """PUT an object's status at the resourceVersion that it was read at, and take the answer into the cache.

        Raises:
            Conflict: The object has changed since; look at it again.
        """
        await self._write(value, self.client.replace(value, subresource="status"))

    async def patch_metadata(self, value: KubernetesObject, metadata: Mapping[str, Any]) -> None:
        """Change an object's metadata at the resourceVersion that it was read at, by a merge patch.

        Raises:
            Conflict: The object has changed since; look at it again.
        """
        meta = value.metadata
        patch = {"metadata": {**metadata, "resourceVersion": meta.resource_version}}
        await self._write(value, self.client.merge_patch(value.resource, meta.namespace, meta.name, patch))

    async def _write(self, value: KubernetesObject, answer: Awaitable[bytes]) -> None:
        """Await a write of ours, so that the watch's word of it wakes nobody; an object that is gone needs none."""
        informer = self._informers[value.resource]
        informer.cache.expect(value.key)
        found = None
        try:
            found = informer.decode(msgspec.Raw(await answer))
        except NotFound:
            log.debug("deleted before it was written", extra={"key": value.key})
        finally:
            change = informer.cache.settle(value.key, found)
            if change is not None:
                informer.on_change(change)

    async def delete(self, value: KubernetesObject) -> None:
        """Ask for the end of an object as it was seen: another one of its name stays."""
        meta = value.metadata
        try:
            await self.client.delete(value.resource, meta.namespace, meta.name, uid=meta.uid)
        except NotFound:
            log.debug("gone already", extra={"key": value.key})

    async def require(self, controller: str, watch: Watch) -> Cache[Any]:
        """Return the cache of a kind that is watched from the first time that somebody needs it, once it is in step.

        Raises:
            TimeoutError: The API server does not list the kind in time.
        """
        informer = self._informers.get(watch.resource)
        if informer is None:
            log.info("kind is needed now", extra={"resource": watch.resource.full_name})
            informer = self._informers[watch.resource] = self._informer([(controller, watch)])
            if self._group is None:
                raise RuntimeError("the engine does not run")
            self._watching.append(self._group.create_task(informer.run(self.client)))
        if not informer.synced.is_set():
            async with asyncio.timeout(REQUIRE_SECONDS):
                await informer.synced.wait()
        return informer.cache

    def wake(self, controller: str, key: str) -> None:
        """Have a key worked on as soon as possible, for a reason that no watch tells."""
        self._queue.add((controller, key), self.clock.monotonic())
        self._wake.set()

    def forget(self, controller: str, key: str) -> None:
        """Drop what the queue remembers of a key whose object is gone."""
        self._queue.forget((controller, key))

    # -- running --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop`, when what is under way finishes first; a cancellation breaks it off."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._watching.append(group.create_task(self.recorder.run()))
            for informer in list(self._informers.values()):
                self._watching.append(group.create_task(informer.run(self.client)))
            if self._optional:
                await self._watch_optional(group)
            for informer in list(self._informers.values()):
                await informer.synced.wait()
            self.is_synced = True
            log.info("caches are in step", extra={"objects": self.count()})
            await self._dispatch()
            for task in [*self._watching, *self._optional_tasks.values()]:
                task.cancel()

    def stop(self) -> None:
        """Begin nothing new; `run` returns when what is under way is done."""
        self._stopping = True
        self._wake.set()

    def count(self) -> int:
        """Return how many objects the caches hold, and tell the metrics."""
        for resource, informer in self._informers.items():
            self._metrics.cached.labels(resource.full_name).set(len(informer.cache))
        self._metrics.queue_depth.labels("tenantry").set(self._queue.ready)
        self._metrics.active_workers.labels("tenantry").set(self._queue.working)
        return sum(len(informer.cache) for informer in self._informers.values())

    async def _dispatch(self) -> None:
        """Hand keys to workers as they become free."""
        async with asyncio.TaskGroup() as workers:
            while not self._stopping:
                while self._queue.working < WORKERS:
                    key = self._queue.take(self.clock.monotonic())
                    if key is None:
                        break
                    workers.create_task(self._work(key))
                await self._wait()

    async def _wait(self) -> None:
        self._wake.clear()
        wake_at = self._queue.next_wake() if self._queue.working < WORKERS else None
        take_back = self.clock.call_at(wake_at, self._wake.set) if wake_at is not None else None
        try:
            await self._wake.wait()
        finally:
            if take_back is not None:
                take_back()

    async def _work(self, key: Key) -> None:
        name, item = key
        began = self.clock.monotonic()
        result = "success"
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                again = await self._controllers[name].reconcile(self, item, self._queue.failures(key))
            self._queue.done(key, self.clock.monotonic())
            if again is not None:
                result = "requeue_after"
                # Counted from the time that the controller saw: the clock has gone on while it wrote.
                self._queue.add_at(key, began + again)
        except TenantryError as error:
            result = "error"
            self._fail(key, error)
        except TimeoutError as error:
            result = "error"
            self._fail(key, error)
        except Exception as error:
            # The one place for this: a bug on one key must not end the work on all others.
            result = "error"
            log.exception("reconcile failed unexpectedly", extra={"controller": name, "key": item})
            self._fail(key, error)
        finally:
            self._metrics.observe_reconcile(name, result, self.clock.monotonic() - began)
            log.debug("reconciled", extra={"controller": name, "key": item, "result": result})
            self._wake.set()

    def _fail(self, key: Key, error: Exception) -> None:
        after = error.after_seconds if isinstance(error, RetryableError) else None
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            after = error.retry_after_seconds
        delay = self._queue.failed(key, self.clock.monotonic(), after)
        self._metrics.queue_retries.labels("tenantry").inc()
        level = logging.DEBUG if self._queue.failures(key) == 1 else logging.WARNING
        log.log(level, "reconcile will be tried again", extra={"key": key[1], "error": str(error), "seconds": delay})

    # -- caches ---------------------------------------------------------------------------------

    def _observed_cache(self, resource: Resource) -> Cache[Observed] | None:
        informer = self._informers.get(resource)
        return informer.cache if informer is not None else None

    def _informer(self, listeners: list[tuple[str, Watch]]) -> Informer[Any]:
        """Return one informer for all controllers that watch a kind; they agree on how it is read."""
        first = listeners[0][1]
        if any(watch.selectors != first.selectors for _, watch in listeners):
            raise ValueError(f"controllers watch different parts of {first.resource.full_name}")
        adds = self._metrics.queue_adds.labels("tenantry")

        def on_change(change: Change[Any]) -> None:
            now = self.clock.monotonic()
            for controller, watch in listeners:
                for key in watch.keys(change):
                    self._queue.add((controller, key), now)
                    adds.inc()
            self._wake.set()

        indexes = {name: index for _, watch in listeners for name, index in (watch.indexes or {}).items()}
        return Informer(first.resource, first.decode, on_change, selectors=first.selectors, indexes=indexes)

    # -- kinds that come and go -----------------------------------------------------------------

    async def _watch_optional(self, group: asyncio.TaskGroup) -> None:
        """Follow the CRDs of optional kinds, and begin with those that are there now."""
        crds: Informer[CrdState] = Informer(CRDS, observe_crd, self._crd_changed)
        self._watching.append(group.create_task(crds.run(self.client)))
        await crds.synced.wait()

    def _crd_changed(self, change: Change[CrdState]) -> None:
        state = change.after or change.before
        if state is None:
            return
        served = change.after is not None and change.after.established
        for resource in self._optional:
            if resource.full_name != state.key:
                continue
            if served and resource.version in state.versions and resource not in self._informers:
                self._begin(resource)
            elif not served and resource in self._informers:
                self._end(resource)

    def _begin(self, resource: Resource) -> None:
        log.info("kind is there now", extra={"resource": resource.full_name})
        informer = self._informers[resource] = self._informer(self._optional[resource])
        if self._group is not None:
            self._optional_tasks[resource] = self._group.create_task(informer.run(self.client))
        self._wake_listeners(resource)

    def _end(self, resource: Resource) -> None:
        log.info("kind is gone", extra={"resource": resource.full_name})
        del self._informers[resource]
        self._optional_tasks.pop(resource).cancel()
        self._wake_listeners(resource)

    def _wake_listeners(self, resource: Resource) -> None:
        for controller, _ in self._optional[resource]:
            self._wake_everybody(controller)

    def _wake_everybody(self, controller: str) -> None:
        """Look at everything again: what a kind's presence decides may be any key of its controller."""
        primary = self._controllers[controller].watches()[0]
        now = self.clock.monotonic()
        for value in self._informers[primary.resource].cache:
            self._queue.add((controller, value.key), now)
        self._wake.set()
