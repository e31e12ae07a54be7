"""The load that benchmarks put on a cluster: tenants asked for, the same objects written alone, and all removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Gone, NotFound, RetryableError, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.controllers.tenant.desired import children
from tenantry.engine.conditions import is_true
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

T = TypeVar("T")

CONNECTIONS = 64
READY_SECONDS = 600.0
GONE_SECONDS = 1800.0
RUN_LABEL = "tenantry-bench"
"""On every Tenant of a run, with the run's id; not one of Tenantry's own marks."""


def tenant_named(name: str, run: str) -> Tenant:
    """Return a tenant with a compute quota and everything else as by default."""
    return Tenant(
        metadata=ObjectMeta(name=name, labels={RUN_LABEL: run}),
        spec=TenantSpec(
            owners=(Owner(kind=OwnerKind.USER, name="bench"),),
            quota=TenantQuota(hard={"cpu": "4", "memory": "8Gi", "pods": "100"}),
        ),
    )


def _selector(run: str) -> dict[str, str]:
    return {"labelSelector": f"{RUN_LABEL}={run}"}


class ReadyTimes:
    """When each tenant was first seen Ready."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.changed = asyncio.Event()

    async def wait_for(self, names: Sequence[str]) -> dict[str, float]:
        """Return the times, once all are there."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while any(name not in self.times for name in names):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError as error:
            missing = [name for name in names if name not in self.times]
            raise RetryableError(
                f"{len(missing)} of {len(names)} tenants are not Ready after {READY_SECONDS:.0f} s, {missing[0]!r}"
                " is one; see `tenantry describe tenant` and the operator's log"
            ) from error
        return self.times


@asynccontextmanager
async def ready_times(client: Client, run: str) -> AsyncGenerator[ReadyTimes]:
    """Watch a run's tenants while the context is open."""
    ready = ReadyTimes()
    version = ""
    async for page in client.pages(Tenant.resource, msgspec.Raw, selectors=_selector(run)):
        version = page.metadata.resource_version
    task = asyncio.create_task(_follow(client, run, version, ready))
    try:
        yield ready
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(client: Client, run: str, version: str, ready: ReadyTimes) -> None:
    decode = msgspec.json.Decoder(Tenant).decode
    while True:
        try:
            stream = watch(client, Tenant.resource, resource_version=version, selectors=_selector(run))
            async for events in stream:
                now = time.perf_counter()
                for event in events:
                    if event.type not in {EventType.ADDED, EventType.MODIFIED}:
                        continue
                    tenant = decode(event.object)
                    version = tenant.metadata.resource_version
                    if is_true(tenant.status.conditions, reasons.READY):
                        ready.times.setdefault(tenant.metadata.name, now)
                ready.changed.set()
        except Unreachable:
            continue  # the watch goes on from the last version seen


# -- asking, and writing alone ---------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True):
    """Tenants that were asked for.

    Args:
        seconds: From the first POST until the last was seen Ready.
        latencies: For each, from its own POST.
    """

    seconds: float
    latencies: list[float]


async def ask(client: Client, run: str, names: Sequence[str], *, spread_seconds: float = 0.0) -> Asked:
    """Create tenants, all at once or spread evenly, and wait until an operator has made all of them Ready.

    Raises:
        RetryableError: They are not in time.
    """
    posted: dict[str, float] = {}
    async with ready_times(client, run) as ready:
        began = time.perf_counter()

        async def post(number: int) -> None:
            if spread_seconds:
                await asyncio.sleep(max(0.0, began + spread_seconds * number / len(names) - time.perf_counter()))
            posted[names[number]] = time.perf_counter()
            await client.create(tenant_named(names[number], run))

        await saturate(post, range(len(names)))
        seen = await ready.wait_for(names)
    times = {name: seen[name] for name in names}
    return Asked(max(times.values()) - began, [times[name] - posted[name] for name in names])


async def write_alone(client: Client, run: str, names: Sequence[str], cluster_uid: str) -> float:
    """Write tenants and what they are made of as fast as the client can, and return the seconds spent writing.

    Preparing the objects is not counted.
    """
    made: list[Tenant] = []

    async def make(name: str) -> None:
        made.append(msgspec.json.decode(await client.create(tenant_named(name, run)), type=Tenant))

    began = time.perf_counter()
    await saturate(make, names)
    seconds = time.perf_counter() - began
    everything = [child for tenant in made for child in children(tenant, cluster_uid)]
    for wave in sorted({child.wave for child in everything}):
        objects: list[KubernetesObject] = [child.object for child in everything if child.wave == wave]
        began = time.perf_counter()
        await saturate(client.create, objects)
        seconds += time.perf_counter() - began
    return seconds


async def saturate(write: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
    """Keep every connection busy until all items are written."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await write(item)

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))


# -- cleaning up ----------------------------------------------------------------------------------


async def clean_up(client: Client, run: str) -> float:
    """Delete the run's tenants, wait until their namespaces are gone, and return how many seconds that took."""
    began = time.perf_counter()
    names = {tenant.metadata.name for tenant in await client.list(Tenant, selectors=_selector(run))}

    async def delete(name: str) -> None:
        try:
            await client.delete(Tenant.resource, "", name)
        except NotFound:
            return

    await saturate(delete, names)
    try:
        async with asyncio.timeout(GONE_SECONDS):
            await _wait_until_gone(client, names)
    except TimeoutError as error:
        raise RetryableError(
            f"namespaces of the benchmark are still there after {GONE_SECONDS:.0f} s; they have the label"
            f" {marks.TENANT} with a value beginning bench-{run}"
        ) from error
    return time.perf_counter() - began


async def _wait_until_gone(client: Client, names: set[str]) -> None:
    ours = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
    while True:
        left: set[str] = set()
        version = ""
        async for page in client.pages(Namespace.resource, Namespace, selectors=ours):
            left |= {found.metadata.name for found in page.items} & names
            version = page.metadata.resource_version
        try:
            if not left:
                return
            async for events in watch(client, Namespace.resource, resource_version=version, selectors=ours):
                for event in events:
                    if event.type is EventType.DELETED:
                        left.discard(msgspec.json.decode(event.object, type=Namespace).metadata.name)
                if not left:
                    return
        except (Gone, Unreachable):
            continue
