"""What the mirror adds to the start of pods, and how fast a change of a pod's status comes up.

one at a time:  POST a pod on the host ─► Running     POST a pod inside ─► Running inside      in turns
at once:        the same for many pods together, the host first
status:         PATCH the status of a pod on the host ─► the watch of the pod inside shows it
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, InputError
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.bench.figures import median, percentile
from tenantry.bench.load import RUN_LABEL, Progress, deadline, events, first_seen, of_run, saturate
from tenantry.bench.planes.run import PlaneRun, planes_of_run
from tenantry.bench.pods import remove_pods, require_room
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.tasks import in_background
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client

RUN_SECONDS = 300.0
CONNECTIONS = 32
_WHAT = {
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "registry.example.com/bench:1"}],
}


class BenchSide:
    """One side on which pods are started.

    Args:
        client: The client of an administrator of the side.
        namespace: Of the pods.
        prefix: Of their names.
        run: The id of the run.
    """

    def __init__(self, client: Client, namespace: str, prefix: str, run: str) -> None:
        self.client = client
        self.namespace = namespace
        self._prefix = prefix
        self._run = run
        self._count = 0

    def next_name(self) -> str:
        """Return a name that no pod of this side has had; simulated kubelets may miss one that is created again."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    async def start(self, name: str) -> None:
        """Create a pod."""
        meta = {"name": name, "namespace": self.namespace, "labels": {RUN_LABEL: self._run}}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _WHAT})
        while True:
            try:
                await self.client.request("POST", wire.path(Pod.resource, self.namespace), body=body)
            except AlreadyExists:
                raise
            except Conflict:  # many writers change the count of a quota: the API server gives up, and clients try again
                continue
            return

    async def delete(self, name: str) -> None:
        """Delete a pod."""
        await self.client.request("DELETE", wire.path(Pod.resource, self.namespace, name))

    async def one(self) -> float:
        """Return how many seconds a pod takes from its POST until it runs; it is deleted afterwards.

        Raises:
            RetryableError: It does not run in time.
        """
        name = self.next_name()
        async with in_background(self._running([name])) as seen:
            began = time.perf_counter()
            await self.start(name)
            took = next(iter((await seen).values())) - began
        await self.delete(name)
        return took

    async def many(self, count: int) -> list[float]:
        """Return how many seconds pods that are created together take from the first POST until each runs.

        Not from the POST of each: the host answers a POST when its quota has counted the pod, so that most of the wait
        would be that for one of our connections. An API server inside answers at once.
        """
        names = [self.next_name() for _ in range(count)]
        async with in_background(self._running(names)) as seen:
            began = time.perf_counter()
            await saturate(self.start, names, connections=CONNECTIONS)
            running = await seen
        await remove_pods(self.client, [self.namespace])
        return [at - began for at in running.values()]

    async def _running(self, names: Sequence[str]) -> dict[str, float]:
        only = f",metadata.name={names[0]}" if len(names) == 1 else ""
        selectors = {
            **of_run(self._run),
            "fieldSelector": f"metadata.namespace={self.namespace},status.phase=Running{only}",
        }
        keys = {f"{self.namespace}/{name}" for name in names}
        return await first_seen(self.client, Pod, keys, lambda _: True, selectors, "running", RUN_SECONDS)


class PlanePodsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        pods: How many pods were started on each side, one after the other.
        pod_direct_seconds_p50: From the POST of a pod on the host until it runs.
        pod_mirrored_seconds_p50: The same of a pod inside, seen inside.
        pod_extra_seconds_p50: The difference of the two.
        at_once: How many pods were started together on each side.
        at_once_direct_seconds_p99: From the first POST until each runs.
        at_once_mirrored_seconds_p99: The same.
        at_once_ratio: The second to the first.
        status_seconds_p50: From the change of a status on the host until the pod inside has it.
        status_seconds_p99: The same.
    """

    pods: int
    pod_direct_seconds_p50: float
    pod_mirrored_seconds_p50: float
    pod_extra_seconds_p50: float
    at_once: int
    at_once_direct_seconds_p99: float
    at_once_mirrored_seconds_p99: float
    at_once_ratio: float
    status_seconds_p50: float
    status_seconds_p99: float


async def pods(client: Client, count: int, at_once: int, changes: int, progress: Progress) -> PlanePodsResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster with simulated nodes.
        count: How many pods to start on each side, one after the other.
        at_once: How many to start together on each side.
        changes: How many changes of a status to measure.
        progress: Receives a line after each step.

    Raises:
        InputError: The nodes have no room for so many pods.
        RetryableError: A control plane is not usable, or a pod does not run, in time.
    """
    await require_room(client, max(at_once, 2))
    async with planes_of_run(client, 1) as run, AsyncExitStack() as stack:
        direct, inside = await sides(run, stack)
        one_direct, one_inside = await in_turns(direct, inside, count)
        progress(f"{count} pods on each side: direct {median(one_direct)} s, mirrored {median(one_inside)} s")
        all_direct, all_inside = await direct.many(at_once), await inside.many(at_once)
        late_direct, late_inside = percentile(all_direct, 0.99), percentile(all_inside, 0.99)
        progress(f"{at_once} pods at once: p99 direct {late_direct} s, mirrored {late_inside} s")
        shown = await _status_changes(direct, inside, changes)
    return PlanePodsResult(
        pods=count,
        pod_direct_seconds_p50=median(one_direct),
        pod_mirrored_seconds_p50=median(one_inside),
        pod_extra_seconds_p50=round(median(one_inside) - median(one_direct), 3),
        at_once=at_once,
        at_once_direct_seconds_p99=late_direct,
        at_once_mirrored_seconds_p99=late_inside,
        at_once_ratio=round(late_inside / late_direct, 2),
        status_seconds_p50=median(shown, 4),
        status_seconds_p99=percentile(shown, 0.99, 4),
    )


async def sides(run: PlaneRun, stack: AsyncExitStack) -> tuple[BenchSide, BenchSide]:
    """Create a control plane; return the side of the host, in the namespace of its tenant, and its own."""
    plane = await run.create()
    inside = await stack.enter_async_context(Client(plane.connection, max_connections=CONNECTIONS + 2))
    return (
        BenchSide(run.client, plane.namespace, "direct", run.run),
        BenchSide(inside, "default", "inside", run.run),
    )


async def in_turns(direct: BenchSide, inside: BenchSide, count: int) -> tuple[list[float], list[float]]:
    """Start pods on both sides in turns; return the seconds until each runs."""
    found: tuple[list[float], list[float]] = [], []
    # The first of each side opens connections and creates the node inside; it does not count.
    for number in range(count + 1):
        for side, seconds in zip((direct, inside), found, strict=True):
            took = await side.one()
            if number:
                seconds.append(took)
    return found


async def _status_changes(direct: BenchSide, inside: BenchSide, count: int) -> list[float]:
    """Change the status of one mirrored pod on the host; return how long each change takes to its pod inside."""
    name = inside.next_name()
    shown: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    async def follow() -> None:
        selectors = {"fieldSelector": f"metadata.namespace={inside.namespace},metadata.name={name}"}
        async with aclosing(events(inside.client, Pod.resource, selectors)) as stream:
            async for _, body in stream:
                if body:
                    at = time.perf_counter()
                    status: Json = msgspec.json.decode(body)["status"]
                    await shown.put((status.get("message") or status.get("phase", ""), at))

    async def until(wanted: str) -> float:
        async with deadline(RUN_SECONDS, f"the pod inside does not show {wanted!r}"):
            while True:
                told, at = await shown.get()
                if told == wanted:
                    return at

    found: list[float] = []
    async with in_background(follow()):
        await inside.start(name)
        await until("Running")
        path = f"{wire.path(Pod.resource, direct.namespace, await _lower_name(direct, name))}/status"
        for number in range(count):
            message = f"change {number}"
            body = msgspec.json.encode({"status": {"message": message}})
            began = time.perf_counter()
            await direct.client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            found.append(await until(message) - began)
    await inside.delete(name)
    return found


async def _lower_name(direct: BenchSide, name: str) -> str:
    async for page in direct.client.pages(Pod.resource, Pod, namespace=direct.namespace):
        for pod in page.items:
            if pod.metadata.annotations.get(f"{PREFIX}/name") == name:
                return pod.metadata.name
    raise InputError(f"pod {name!r} inside has no pod in namespace {direct.namespace!r}")
