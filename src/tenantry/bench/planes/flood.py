"""What a control plane whose users flood it costs the others, and the host.

alone:    pods of a quiet control plane, one after the other; requests to the host
flooded:  the same, while another one creates and deletes pods, Services and ConfigMaps
alone:    the same again, when the objects of the flood are gone: the machine may do other things meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack
from functools import partial

import msgspec

from tenantry.api.errors import Conflict, TooManyRequests
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.bench.figures import median, percentile
from tenantry.bench.flood import FLOODING, Flood, FloodKind, flooding
from tenantry.bench.load import Progress, delete, post, saturate
from tenantry.bench.objects import CONFIG_MAPS
from tenantry.bench.planes.pods import BenchSide
from tenantry.bench.planes.run import A_TENANT, BenchPlane, planes_of_run
from tenantry.bench.pods import remove_pods
from tenantry.engine.tasks import in_background
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.mirror.kinds import services

SETTLE_SECONDS = 5.0
"""How long the flood runs before anything is measured."""

CONNECTIONS = 32
PAUSE_SECONDS = 0.02
"""Between requests to the host, so that these are no load of their own."""

_CONTAINER = {"name": "main", "image": "registry.example.com/bench:1"}
_POD = {"apiVersion": "v1", "kind": "Pod", "spec": {"terminationGracePeriodSeconds": 0, "containers": [_CONTAINER]}}
_SERVICE = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}], "selector": {"app": "flood"}}}
_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 100}}


class QuietFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the others see.

    Args:
        pod_seconds_p50: From the POST of a pod in the quiet control plane until it runs.
        host_seconds_p99: Of requests to the host's API server that read, create and delete a ConfigMap.
    """

    pod_seconds_p50: float
    host_seconds_p99: float


class PlaneFloodResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        objects: How many objects of each kind the flood creates before it deletes them.
        alone: Without the flood, before it and after it.
        flooded: With it.
        pod_ratio: Of the seconds of a pod, flooded to alone.
        host_ratio: Of the p99 of requests to the host, flooded to alone.
        flood_per_second: Requests of the flood that its control plane answered.
        flood_refused: Requests of the flood that it refused with 429.
    """

    objects: int
    alone: QuietFigures
    flooded: QuietFigures
    pod_ratio: float
    host_ratio: float
    flood_per_second: float
    flood_refused: int


async def flood(client: Client, objects: int, pods: int, progress: Progress) -> PlaneFloodResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster with simulated nodes.
        objects: How many objects of each kind the flood creates before it deletes them.
        pods: How many pods the quiet control plane starts, alone and flooded.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A control plane is not usable, or a pod does not run, in time.
    """
    # Two tenants: control planes of one tenant share its quota.
    async with planes_of_run(client, A_TENANT + 1) as run, AsyncExitStack() as stack:
        loud, quiet = await run.create(), await run.create()
        inside = await stack.enter_async_context(Client(quiet.connection, max_connections=4))
        side = BenchSide(inside, "default", "quiet", run.run)
        await side.one()
        before = await _measured(client, quiet.namespace, side, pods)
        progress(f"alone: {_told(before.figures)}")
        kinds = [
            FloodKind(path=f"/api/v1/namespaces/default/{plural}", value=value)
            for plural, value in (("pods", _POD), ("services", _SERVICE), ("configmaps", _CONFIG_MAP))
        ]
        wanted = Flood(
            connection=loud.connection,
            kinds=tuple(kinds),
            connections=CONNECTIONS,
            depth=max(1, objects // CONNECTIONS),
            reads=False,
        )
        async with flooding(wanted) as running:
            await asyncio.sleep(SETTLE_SECONDS)
            flooded = (await _measured(client, quiet.namespace, side, pods)).figures
            counted = await running.end()
        progress(f"flooded: {_told(flooded)}")
        await _clear(client, loud)
        after = await _measured(client, quiet.namespace, side, pods)
        progress(f"alone again: {_told(after.figures)}")
        alone = before.and_(after).figures
    return PlaneFloodResult(
        objects=wanted.depth * CONNECTIONS,
        alone=alone,
        flooded=flooded,
        pod_ratio=round(flooded.pod_seconds_p50 / alone.pod_seconds_p50, 2),
        host_ratio=round(flooded.host_seconds_p99 / alone.host_seconds_p99, 2),
        flood_per_second=round(counted.answered / counted.seconds, 1),
        flood_refused=counted.refused,
    )


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Measured(msgspec.Struct, frozen=True):
    """The seconds of each pod, and of each request to the host."""

    pods: list[float]
    host: list[float]

    def and_(self, other: _Measured) -> _Measured:
        return _Measured([*self.pods, *other.pods], [*self.host, *other.host])

    @property
    def figures(self) -> QuietFigures:
        return QuietFigures(pod_seconds_p50=median(self.pods), host_seconds_p99=percentile(self.host, 0.99, 4))


def _told(figures: QuietFigures) -> str:
    return f"a pod takes {figures.pod_seconds_p50} s, the host {1000 * figures.host_seconds_p99:.1f} ms"


async def _measured(client: Client, namespace: str, side: BenchSide, pods: int) -> _Measured:
    seconds: list[float] = []
    async with in_background(_ask_host(client, namespace, seconds)):
        took = [await side.one() for _ in range(pods)]
    return _Measured(took, seconds)


async def _delete(inside: Client, resource: Resource, name: str) -> None:
    await delete(inside, resource, name, "default")


async def _clear(client: Client, loud: BenchPlane) -> None:
    """Delete the objects of the flood, and wait until no pod of its control plane is left on the host."""
    async with Client(loud.connection, max_connections=CONNECTIONS) as inside:
        for resource in (services.RESOURCE, CONFIG_MAPS):
            found = [each.metadata.name async for each in inside.items(resource, _Named, namespace="default")]
            names = [name for name in found if name.startswith(FLOODING)]
            await saturate(partial(_delete, inside, resource), names, connections=CONNECTIONS)
        await remove_pods(inside, ["default"])
    await remove_pods(client, [loud.namespace])


async def _ask_host(client: Client, namespace: str, seconds: list[float]) -> None:
    """Send requests until cancelled, and add how long each took."""
    number = 0
    path = wire.path(Namespace.resource, "", namespace)
    while True:
        number += 1
        name = f"ask-{number}"
        value = {"metadata": {"name": name, "namespace": namespace}}
        for ask in (
            partial(client.request, "GET", path),
            partial(post, client, CONFIG_MAPS, value),
            partial(delete, client, CONFIG_MAPS, name, namespace),
        ):
            began = time.perf_counter()
            # The client gave up, or many writers changed the count of a quota: the time until then is the result.
            with contextlib.suppress(TooManyRequests, Conflict):
                await ask()
            seconds.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_SECONDS)
