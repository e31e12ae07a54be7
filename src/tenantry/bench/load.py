"""The load that benchmarks put on a cluster: requests on every connection, waits for results, and the clean-up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Gone, NotFound, RetryableError, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, KubernetesObject, ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quantity
from tenantry.api.tenant import NamespaceRules, Tenant, TenantQuota, TenantSpec
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import all_of, in_background
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

Progress = Callable[[str], None]
"""Receives a line for a person whenever a step of a benchmark is done."""

CONNECTIONS = 64
"""How many requests are under way at once."""

POOL = CONNECTIONS + 4
"""Connections of a client: beside those of the requests, two watches, the lease and one to spare."""

READY_SECONDS = 600.0
GONE_SECONDS = 1800.0
POLL_SECONDS = 0.1
"""How often something is tried that no watch reports."""

RUN_LABEL = "tenantry-bench"
"""The label of every object of a run, with the run's id; not a mark of Tenantry."""


MANAGED = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}


def new_run() -> str:
    """Return the id of a run."""
    return f"{int(time.time()):x}"


def of_run(run: str) -> dict[str, str]:
    """Return the selector of a run's objects."""
    return {"labelSelector": f"{RUN_LABEL}={run}"}


def of_tenant(name: str) -> dict[str, str]:
    """Return the selector of the objects that Tenantry creates for a tenant."""
    return {"labelSelector": f"{marks.TENANT}={name}"}


def new_tenant(
    name: str,
    run: str,
    *,
    user: str = "bench",
    quota: Mapping[str, Quantity] | None = None,
    max_count: int = 0,
    max_depth: int = 0,
) -> Tenant:
    """Return a tenant of one user; everything else has its default."""
    spec = TenantSpec(
        owners=(Owner(kind=OwnerKind.USER, name=user),),
        quota=TenantQuota(hard=dict(quota or {})),
        namespaces=NamespaceRules(max_count=max_count, max_depth=max_depth),
    )
    return Tenant(metadata=ObjectMeta(name=name, labels={RUN_LABEL: run}), spec=spec)


# -- requests -------------------------------------------------------------------------------------


async def saturate(
    write: Callable[[T], Awaitable[object]], items: Iterable[T], *, connections: int = CONNECTIONS
) -> float:
    """Keep every connection busy until all items are written, and return the seconds."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await write(item)

    began = time.perf_counter()
    await all_of(worker() for _ in range(connections))
    return time.perf_counter() - began


async def post(client: Client, resource: Resource, value: Json) -> None:
    """Create an object."""
    body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    await client.request("POST", wire.path(resource, value["metadata"].get("namespace", "")), body=body)


async def delete(client: Client, resource: Resource, name: str, namespace: str = "") -> None:
    """Delete an object that may be gone already."""
    with contextlib.suppress(NotFound):
        await client.delete(resource, namespace, name)


async def create_tenants(client: Client, tenants: Sequence[Tenant]) -> None:
    """Create the tenants of one run and wait until the operator has made all of them Ready.

    Raises:
        RetryableError: They are not Ready in time.
    """
    async with in_background(tenants_ready(client, tenants)) as ready:
        await saturate(client.create, tenants)
        await ready


async def tenants_ready(client: Client, tenants: Sequence[Tenant]) -> dict[str, float]:
    """Return when each tenant of one run was first seen Ready; see `first_seen`."""
    selectors = of_run(tenants[0].metadata.labels[RUN_LABEL])
    return await first_seen(client, Tenant, {each.key for each in tenants}, is_ready, selectors, "Ready", READY_SECONDS)


def is_ready(tenant: Tenant) -> bool:
    """Return whether a tenant has the condition Ready."""
    return is_true(tenant.status.conditions, reasons.READY)


# -- waiting --------------------------------------------------------------------------------------


async def events(
    client: Client, resource: Resource, selectors: Mapping[str, str]
) -> AsyncGenerator[tuple[EventType, bytes | msgspec.Raw]]:
    """Yield the objects that exist, a BOOKMARK after the last of them, and then every change; it does not end."""
    while True:
        try:
            version = ""
            async for page in client.pages(resource, msgspec.Raw, selectors=selectors):
                version = page.metadata.resource_version
                for item in page.items:
                    yield EventType.ADDED, item
            yield EventType.BOOKMARK, b""
            async for batch in watch(client, resource, resource_version=version, selectors=selectors):
                for event in batch:
                    if event.type is not EventType.BOOKMARK:
                        yield event.type, event.object
        except (Gone, Unreachable):
            continue


async def first_seen(  # noqa: PLR0917 - what to wait for, and how long
    client: Client,
    kind: type[K],
    keys: Collection[str],
    holds: Callable[[K], bool],
    selectors: Mapping[str, str],
    state: str,
    seconds: float,
) -> dict[str, float]:
    """Return when each object was first seen in a state: key to `time.perf_counter`.

    Args:
        client: An administrator's client.
        kind: The kind of the objects.
        keys: The keys of the objects, which may not exist yet.
        holds: Whether an object is in the state.
        selectors: Select the objects.
        state: The state's name, for the error.
        seconds: How long to wait.

    Raises:
        RetryableError: Some are not in time.
    """
    seen: dict[str, float] = {}
    try:
        async with asyncio.timeout(seconds), aclosing(events(client, kind.resource, selectors)) as stream:
            async for type_, body in stream:
                if type_ in {EventType.ADDED, EventType.MODIFIED}:
                    found = client.decode(kind, body)
                    if found.key in keys and holds(found):
                        seen.setdefault(found.key, time.perf_counter())
                if len(seen) == len(keys):
                    break
    except TimeoutError as error:
        missing = [key for key in keys if key not in seen]
        raise RetryableError(
            f"{len(missing)} of {len(keys)} {kind.resource.plural} are not {state} after {seconds:.0f} s,"
            f" {missing[0]!r} among them; see `tenantry describe` and the operator's log"
        ) from error
    return seen


@asynccontextmanager
async def deadline(seconds: float, problem: str) -> AsyncGenerator[None]:
    """Limit the time of a block.

    Raises:
        RetryableError: The time is over; names the problem.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RetryableError(f"{problem} after {seconds:.0f} s; see the operator's log") from error


# -- cleaning up ----------------------------------------------------------------------------------


async def clean_up(
    client: Client, run: str, namespaces: Mapping[str, str] | None = None, *, by_hand: bool = False
) -> float:
    """Delete the tenants of a run, wait until their namespaces are gone, and return how many seconds that took.

    Args:
        client: An administrator's client.
        run: The run's id.
        namespaces: Selects more namespaces to wait for; none if not given.
        by_hand: Delete those, too, because no operator does.
    """
    began = time.perf_counter()
    names = {tenant.metadata.name for tenant in await client.list(Tenant, selectors=of_run(run))}
    await saturate(lambda name: delete(client, Tenant.resource, name), names)
    if namespaces and by_hand:
        found = await client.list(Namespace, selectors=namespaces)
        await saturate(lambda each: delete(client, Namespace.resource, each.metadata.name), found)
    problem = f"namespaces of the benchmark are still there (label {RUN_LABEL} or {marks.TENANT})"
    async with deadline(GONE_SECONDS, problem):
        await _until_gone(client, MANAGED, names)
        if namespaces:
            await _until_gone(client, namespaces)
    return time.perf_counter() - began


async def _until_gone(client: Client, selectors: Mapping[str, str], names: Collection[str] | None = None) -> None:
    """Wait until no selected namespace is left; only those of the given names count, if any are given."""
    while True:
        left: set[str] = set()
        version = ""
        async for page in client.pages(Namespace.resource, Namespace, selectors=selectors):
            found = {each.metadata.name for each in page.items}
            left |= found if names is None else found & set(names)
            version = page.metadata.resource_version
        # After a watch that ended, a new list shows the deletions that happened meanwhile.
        with contextlib.suppress(Gone, Unreachable):
            if not left:
                return
            async for batch in watch(client, Namespace.resource, resource_version=version, selectors=selectors):
                gone = [event.object for event in batch if event.type is EventType.DELETED]
                left -= {client.decode(Namespace, body).metadata.name for body in gone}
                if not left:
                    return
