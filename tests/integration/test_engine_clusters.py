"""Several API servers in one runtime: what happens to one of them is no matter of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.controllers.watched import own_key
from tenantry.engine.cache import Change
from tenantry.engine.clock import SystemClock
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.kube.client import Client
from tenantry.local.light import LightCluster, LightClusters, light_clusters
from testkit.api import SECONDS

NAMES = ("alpha", "beta", "gamma")
MARK = "tenantry.dev/seen"

_decode = msgspec.json.Decoder(Namespace).decode


class Marker:
    """Puts a label on each namespace whose name begins with "t-", and remembers which it has seen."""

    name = "marker"
    kind = Namespace

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.changed = asyncio.Event()

    def watches(self) -> Sequence[Watch]:
        """Return what it listens to."""
        return [Watch(resource=Namespace.resource, decode=_decode, keys=own_key)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Label one namespace."""
        found: Namespace | None = cluster.cache(Namespace.resource).get(key)
        if found is None:
            self.seen.pop(key, None)
        elif key.startswith("t-"):
            if MARK not in found.metadata.labels:
                await cluster.writer.patch(Namespace.resource, "", key, {"metadata": {"labels": {MARK: cluster.id}}})
            self.seen[key] = cluster.id
        self.changed.set()
        return None

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition is met."""
        async with asyncio.timeout(SECONDS):
            while not met():
                self.changed.clear()
                await self.changed.wait()


class Many:
    """One runtime and its clusters, with a marker for each."""

    def __init__(self, lights: LightClusters, stack: AsyncExitStack) -> None:
        self.lights = lights
        self.metrics = Metrics()
        self.runtime = Runtime(clock=SystemClock(), metrics=self.metrics)
        self.markers: dict[str, Marker] = {}
        self._stack = stack

    async def add(self, name: str) -> None:
        """Run a marker on one of the clusters."""
        client = await self._stack.enter_async_context(Client(self.lights[name].connection))
        cluster = Cluster(ClusterId(name), client, clock=SystemClock(), instance="test")
        self.markers[name] = Marker()
        self.runtime.add(cluster, [self.markers[name]], workers=4)

    def text(self) -> bytes:
        """Return the page of metrics."""
        self.metrics.show(self.runtime.counts())
        return self.metrics.text()

    async def flows(self, name: str, namespace: str) -> None:
        """Create a namespace in one cluster, and wait until it was reconciled there."""
        await create(self.lights[name], namespace)
        marker = self.markers[name]
        await marker.until(lambda: marker.seen.get(namespace) == name)


async def create(light: LightCluster, namespace: str) -> None:
    """Create a namespace as an administrator."""
    async with Client(light.connection) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))


@pytest_asyncio.fixture(scope="module")
async def lights() -> AsyncGenerator[LightClusters]:
    """Three API servers that share an etcd."""
    async with light_clusters(*NAMES) as clusters:
        yield clusters


@asynccontextmanager
async def running(lights: LightClusters) -> AsyncGenerator[Many]:
    """A runtime with all three clusters; it stops in the end."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        many = Many(lights, stack)
        for name in NAMES:
            await many.add(name)
        task = group.create_task(many.runtime.run())
        yield many
        many.runtime.stop()
        await task


@pytest.mark.long
async def test_work_flows_on_two_clusters_while_the_third_hangs_and_on_all_when_it_goes_on(
    lights: LightClusters,
) -> None:
    async with running(lights) as many:
        for name in NAMES:
            await many.flows(name, "t-first")
        lights["beta"].pause()
        try:
            # More than its workers: each hangs in a write that gets no answer.
            lane_keys = [f"t-hung-{number}" for number in range(8)]
            for key in lane_keys:
                many.runtime.cluster(ClusterId("beta")).wake(Namespace, key)
            for number in range(5):
                await many.flows("alpha", f"t-while-{number}")
                await many.flows("gamma", f"t-while-{number}")
        finally:
            lights["beta"].resume()
        await many.flows("beta", "t-after")


async def test_work_flows_on_while_one_cluster_is_killed_and_goes_on_when_it_is_back_with_other_data(
    lights: LightClusters,
) -> None:
    async with running(lights) as many:
        await many.flows("beta", "t-lost")
        await lights["beta"].kill()
        await many.flows("alpha", "t-killed")
        await many.flows("gamma", "t-killed")
        await lights["beta"].restart(empty=True)
        await many.flows("beta", "t-new")
        marker = many.markers["beta"]
        await marker.until(lambda: "t-lost" not in marker.seen)
        assert many.runtime.cluster(ClusterId("beta")).cache(Namespace.resource).get("t-lost") is None


async def test_clusters_come_and_go_while_the_runtime_runs(lights: LightClusters) -> None:
    async with running(lights) as many:
        await many.flows("gamma", "t-before")
        assert b'tenantry_cached_objects{cluster="gamma"' in many.text()
        await many.runtime.remove(ClusterId("gamma"))
        assert b'tenantry_cached_objects{cluster="gamma"' not in many.text()
        await create(lights["gamma"], "t-unseen")
        await many.flows("alpha", "t-gone")
        await many.add("gamma")
        marker = many.markers["gamma"]
        await marker.until(lambda: marker.seen.get("t-unseen") == "gamma")
        assert b'tenantry_cached_objects{cluster="gamma"' in many.text()


class Faulty(Marker):
    """A marker with a bug: the first change of a namespace of this name ends its informer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.unhandled = {name}

    def watches(self) -> Sequence[Watch]:
        """Return what it listens to."""
        return [Watch(resource=Namespace.resource, decode=_decode, keys=self._keys)]

    def _keys(self, change: Change[Namespace]) -> list[str]:
        keys = list(own_key(change))
        if self.unhandled.intersection(keys):
            self.unhandled.clear()
            raise LookupError(f"no key for {keys}")
        return keys


async def test_a_bug_in_what_one_cluster_needs_ends_no_work(lights: LightClusters) -> None:
    """The other clusters go on, and that one begins anew with a list."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        many = Many(lights, stack)
        await many.add("alpha")
        client = await stack.enter_async_context(Client(lights["beta"].connection))
        many.markers["beta"] = Faulty("t-unhandled")
        many.runtime.add(
            Cluster(ClusterId("beta"), client, clock=SystemClock(), instance="test"), [many.markers["beta"]], workers=4
        )
        task = group.create_task(many.runtime.run())
        await many.flows("beta", "t-before-the-bug")
        await create(lights["beta"], "t-unhandled")
        await many.flows("alpha", "t-beside-the-bug")
        await many.flows("beta", "t-after-the-bug")
        many.runtime.stop()
        await task
