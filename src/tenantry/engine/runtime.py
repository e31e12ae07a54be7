"""Run controllers over any number of clusters: one queue, one set of workers, one TaskGroup.

    Cluster.listen ─► keys ─► lane of the cluster (WorkQueue) ─► workers ─► Controller.reconcile(cluster, key)

Each cluster has a lane with a limit of its own: one that hangs, refuses or answers slowly occupies its own workers and
no others, and its lane backs off while its API server cannot be reached. A lane opens once the caches of its cluster
are in step. Clusters are added and removed while the runtime runs.

`Runtime.stop` lets running reconciles finish, and starts no others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from tenantry.api.errors import ApiError, RetryableError, TenantryError, Unreachable
from tenantry.engine.clock import Clock
from tenantry.engine.cluster import Cluster, ClusterId, Listener, Watch
from tenantry.engine.metrics import ClusterCounts, Metrics
from tenantry.engine.workqueue import BUSY_PER_SECOND, WorkQueue

WORKERS = 128
"""How many keys of one cluster are reconciled at once, unless the cluster is added with another limit."""

RECONCILE_SECONDS = 120.0
"""A reconcile that takes longer is cancelled, so that it does not occupy a worker indefinitely."""

FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 2.0
"""How long a lane waits after a reconcile could not reach the API server; twice as long each time in a row."""

LAST_SERVE_PAUSE_SECONDS = 60.0
"""The longest pause before a cluster is served again after its informers failed unexpectedly."""

log = logging.getLogger(__name__)


class Controller(Protocol):
    """A reconciler of one kind; each cluster has its own instance."""

    @property
    def name(self) -> str:
        """Return its name in logs and metrics."""
        ...

    @property
    def kind(self) -> type:
        """Return the kind that it reconciles, by which other controllers wake it; see `Cluster.wake`."""
        ...

    def watches(self) -> Sequence[Watch]:
        """Return the kinds whose changes queue its keys; the keys name objects of the first one."""
        ...

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Reconcile one key.

        Args:
            cluster: The cluster whose key it is.
            key: The key.
            attempt: How many tries failed before this one.

        Returns:
            Seconds until the next reconcile; None if only a change starts one.
        """
        ...


Item = tuple[str, str]
"""The name of a controller, and a key; the lane that holds it determines the cluster."""


class ClusterLane:
    """The waiting and running keys of one cluster.

    Args:
        cluster: The cluster of the keys.
        controllers: They reconcile the keys.
        workers: The maximum of concurrent reconciles.
        clock: The time.
        added: Called after a key was queued.
        busy_per_second: See `WorkQueue`.
    """

    def __init__(
        self,
        cluster: Cluster,
        controllers: Sequence[Controller],
        *,
        workers: int,
        clock: Clock,
        added: Callable[[], None],
        busy_per_second: float = BUSY_PER_SECOND,
    ) -> None:
        self.cluster = cluster
        self.controllers = {controller.name: controller for controller in controllers}
        self.queue: WorkQueue[Item] = WorkQueue(busy_per_second)
        self.limit = workers
        self.foreign = tuple(
            watch.cluster for each in controllers for watch in each.watches() if watch.cluster is not None
        )
        self.is_open = False
        self.is_required = True
        self.serving: asyncio.Task[None] | None = None
        self.working: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._added = added
        self._pause = 0.0
        self._paused_until = 0.0

    # -- what a Cluster asks for ----------------------------------------------------------------

    def listener(self, controller: str, watch: Watch) -> Listener:
        """Return the listener that queues the keys of a controller when a kind changes."""
        return Listener(
            owner=self.cluster.id,
            name=controller,
            watch=watch,
            add=partial(self.add, controller),
            add_all=partial(self._add_all, controller),
        )

    def wake(self, kind: type, key: str) -> None:
        """Queue a key for every controller of a kind, or for the controller of a class.

        Raises:
            ValueError: No controller matches: the key would be lost.
        """
        chosen = [each for each in self.controllers.values() if kind in (each.kind, type(each))]
        if not chosen:
            raise ValueError(f"no controller of cluster {self.cluster.id!r} reconciles {kind.__name__}")
        for controller in chosen:
            self.add(controller.name, key)

    def forget(self, controller: str, key: str) -> None:
        """Remove the back-off and rate of a key."""
        self.queue.forget((controller, key))

    def resume(self) -> None:
        """Go on after an outage of the API server."""
        self._added()

    def has_work(self) -> bool:
        """Return whether keys are queued or being reconciled; those that wait for their time do not count."""
        return bool(self.queue.ready or self.queue.working)

    def add(self, controller: str, key: str) -> None:
        """Queue a key."""
        self.queue.add((controller, key), self._clock.monotonic())
        self._added()

    def _add_all(self, controller: str) -> None:
        """Queue every key of a controller: the presence of a kind may matter for any of them."""
        primary = self.controllers[controller].watches()[0]
        for value in (primary.cluster or self.cluster).cache_of(primary.resource) or ():
            self.add(controller, value.key)

    # -- what the Runtime asks for --------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Return whether the caches are in step, also those of other clusters that the controllers read.

        During an outage of the API server they are not, and every request would fail.
        """
        return self.is_open and self.cluster.outage.is_over and all(each.is_synced for each in self.foreign)

    def take(self, now: float) -> Item | None:
        """Return the next key; None if there is none, all workers are busy, or the lane is paused."""
        if not self.is_ready or now < self._paused_until or self.queue.working >= self.limit:
            return None
        return self.queue.take(now)

    def next_wake(self, now: float) -> float | None:
        """Return the time of the next key; None if only a new key or the end of a reconcile matters."""
        if not self.is_ready or self.queue.working >= self.limit:
            return None
        if now < self._paused_until:
            return self._paused_until
        return self.queue.next_wake()

    def reached(self) -> None:
        """Record a response of the API server: the next pause is short again."""
        self._pause = 0.0

    def not_reached(self, now: float) -> None:
        """Pause the lane: the API server does not respond."""
        if now >= self._paused_until:
            self._pause = min(max(FIRST_PAUSE_SECONDS, 2 * self._pause), LAST_PAUSE_SECONDS)
            self._paused_until = now + self._pause


class Runtime:
    """Run controllers.

    Args:
        clock: The time.
        metrics: Counted into, by cluster.
    """

    def __init__(self, *, clock: Clock, metrics: Metrics) -> None:
        self.clock = clock
        self._metrics = metrics
        self._lanes: dict[ClusterId, ClusterLane] = {}
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def is_synced(self) -> bool:
        """Return whether the caches of every cluster are synchronised that is required."""
        return all(lane.is_ready for lane in self._lanes.values() if lane.is_required)

    def add(
        self,
        cluster: Cluster,
        controllers: Sequence[Controller],
        *,
        workers: int = WORKERS,
        busy_per_second: float = BUSY_PER_SECOND,
        is_required: bool = True,
    ) -> None:
        """Add a cluster with its controllers; they start at once, or with `run`. After an error, nothing of it is left.

        Args:
            cluster: Its client is open.
            controllers: Their watches may name other clusters, which must be in the runtime already.
            workers: How many of its keys are reconciled at once.
            busy_per_second: How often a key that changes all the time is reconciled.
            is_required: Whether `is_synced` waits for it: another cluster may be away for days.

        Raises:
            ValueError: There is a cluster of this id already, or two controllers want a kind in different forms.
        """
        if cluster.id in self._lanes:
            raise ValueError(f"cluster {cluster.id!r} is in the runtime already")
        adds = self._metrics.queue_added(cluster.id)

        def added() -> None:
            adds.inc()
            self._wake.set()

        lane = ClusterLane(
            cluster, controllers, workers=workers, busy_per_second=busy_per_second, clock=self.clock, added=added
        )
        lane.is_required = is_required
        cluster.join(lane)
        try:
            for controller in controllers:
                for watch in controller.watches():
                    (watch.cluster or cluster).listen(lane.listener(controller.name, watch))
        except BaseException:
            for each in (*self._lanes.values(), lane):
                each.cluster.leave(cluster.id)
            cluster.join(None)
            raise
        self._lanes[cluster.id] = lane
        if self._group is not None:
            lane.serving = self._group.create_task(self._serve(lane))

    def cluster(self, cluster_id: ClusterId) -> Cluster:
        """Return one of the clusters.

        Raises:
            KeyError: There is none of this id.
        """
        return self._lanes[cluster_id].cluster

    async def remove(self, cluster_id: ClusterId) -> None:
        """Remove a cluster: cancel its reconciles, close its watches, drop its caches."""
        lane = self._lanes.pop(cluster_id)
        lane.is_open = False
        for each in self._lanes.values():
            # Its controllers may listen to other clusters, whose watches continue.
            each.cluster.leave(cluster_id)
        tasks = [*lane.working, *([lane.serving] if lane.serving is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        lane.cluster.leave(cluster_id)
        lane.cluster.join(None)

    async def run(self) -> None:
        """Reconcile until `stop` is called and the running reconciles have ended; a cancellation cancels those, too."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for lane in self._lanes.values():
                    lane.serving = group.create_task(self._serve(lane))
                while not self._stopping:
                    self._begin(group)
                    await self._wait()
                busy = [task for lane in self._lanes.values() for task in lane.working]
                if busy:
                    await asyncio.wait(busy)
            finally:
                self._group = None
                for lane in self._lanes.values():
                    if lane.serving is not None:
                        lane.serving.cancel()

    def stop(self) -> None:
        """Start no more reconciles; `run` returns when the running ones have ended."""
        self._stopping = True
        self._wake.set()

    def counts(self) -> Iterator[ClusterCounts]:
        """Yield the sizes of the caches and the queue of each cluster."""
        for cluster_id, lane in self._lanes.items():
            yield ClusterCounts(
                cluster=cluster_id,
                cached=lane.cluster.count(),
                ages=lane.cluster.ages(),
                ready=lane.queue.ready,
                working=lane.queue.working,
            )

    # -- lanes ----------------------------------------------------------------------------------

    async def _serve(self, lane: ClusterLane) -> None:
        """Keep the caches of a cluster synchronised, and open its lane after the first list."""

        def synced() -> None:
            lane.is_open = True
            self._wake.set()

        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self.clock.monotonic()
            try:
                await lane.cluster.run(synced)
            except Exception:
                # A bug in what one cluster needs (the keys of a watch, say) must not end the work on all others.
                log.exception("serving a cluster failed unexpectedly", extra={"cluster": lane.cluster.id})
            finally:
                lane.is_open = False
            if self.clock.monotonic() - began > LAST_SERVE_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS  # it worked for a while: this is another failure
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_SERVE_PAUSE_SECONDS)

    def _begin(self, group: asyncio.TaskGroup) -> None:
        """Start reconciles, one of each lane in turn, until no lane has both a key and a free worker."""
        now = self.clock.monotonic()
        lanes = list(self._lanes.values())
        while lanes:
            busy: list[ClusterLane] = []
            for lane in lanes:
                item = lane.take(now)
                if item is not None:
                    task = group.create_task(self._work(lane, item))
                    lane.working.add(task)
                    task.add_done_callback(lane.working.discard)
                    busy.append(lane)
            lanes = busy

    async def _wait(self) -> None:
        self._wake.clear()
        now = self.clock.monotonic()
        times = [when for lane in self._lanes.values() if (when := lane.next_wake(now)) is not None]
        take_back = self.clock.call_at(min(times), self._wake.set) if times else None
        try:
            await self._wake.wait()
        finally:
            if take_back is not None:
                take_back()

    async def _work(self, lane: ClusterLane, item: Item) -> None:
        name, key = item
        began = self.clock.monotonic()
        result = "success"
        fields = {"cluster": lane.cluster.id, "controller": name, "key": key}
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                again = await lane.controllers[name].reconcile(lane.cluster, key, lane.queue.failures(item))
            lane.queue.done(item, self.clock.monotonic())
            lane.reached()
            if again is not None:
                result = "requeue_after"
                # Counted from the start: the controller computed the delay from the time that it saw then.
                lane.queue.add_at(item, began + again)
        except (TenantryError, TimeoutError) as error:
            result = "error"
            self._fail(lane, item, error)
        except Exception as error:
            # The only bare `except Exception`: a bug that one key triggers must not stop the reconciles of all others.
            result = "error"
            log.exception("reconcile failed unexpectedly", extra=fields)
            self._fail(lane, item, error)
        finally:
            self._metrics.observe_reconcile(lane.cluster.id, name, result, self.clock.monotonic() - began)
            log.debug("reconciled", extra={**fields, "result": result})
            self._wake.set()

    def _fail(self, lane: ClusterLane, item: Item, error: Exception) -> None:
        now = self.clock.monotonic()
        after = error.after_seconds if isinstance(error, RetryableError) else None
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            after = error.retry_after_seconds
        # The back-off of the lane: otherwise each of thousands of keys would try the dead server by itself.
        if isinstance(error, Unreachable):
            lane.not_reached(now)
        delay = lane.queue.failed(item, now, after)
        self._metrics.queue_retried(lane.cluster.id)
        # Most failures are conflicts that the second try resolves: only repeated ones deserve a warning.
        is_reported = isinstance(error, RetryableError) and error.is_reported
        is_known = is_reported or lane.queue.failures(item) == 1 or lane.cluster.outage.explains(error)
        level = logging.DEBUG if is_known else logging.WARNING
        fields = {"cluster": lane.cluster.id, "key": item[1], "error": str(error), "seconds": delay}
        log.log(level, "reconcile will be tried again", extra=fields)
