"""One tenant at each level of isolation: as a namespace, with a virtual control plane, and with a cluster of its own.

    POST Tenant ─► first answer to its owner ─► first pod that runs       operator: requests that write
    rest ─► memory     objects ─► memory
    reads and writes of the owner, alone ─► while a neighbour of the same level floods
    audit of the tenant ─► score

The levels are measured one after the other, and everything is deleted before the next one. A figure that a cluster does
not have is None, and the result says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterSpec
from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, RetryableError, TooManyRequests
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import Isolation, Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.bench.figures import percentile
from tenantry.bench.flood import Flood, FloodKind, flooding
from tenantry.bench.load import (
    POLL_SECONDS,
    READY_SECONDS,
    RUN_LABEL,
    Progress,
    clean_up,
    create_tenants,
    deadline,
    delete,
    first_seen,
    new_run,
    new_tenant,
    of_run,
    post,
    saturate,
)
from tenantry.bench.objects import CONFIG_MAPS
from tenantry.bench.planes.pods import BenchSide
from tenantry.bench.planes.run import connection_of, is_ready
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.tasks import all_of, in_background
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

POD_SECONDS = 180.0
"""How long the first pod may take; a cluster that gets no node has none."""

SETTLE_SECONDS = 2.0
"""How long a flood runs before anything is measured."""

WORKERS = 4
"""Connections of the owner whose requests are measured; each waits for its answer."""

FLOOD_CONNECTIONS = 32
FLOOD_OBJECTS = 200
"""What the neighbour lists."""

_QUOTA = {"cpu": "2000", "memory": "8000Gi", "pods": "20000", "count/configmaps": "20000"}

LEVELS = {
    "namespace": ControlPlaneChoice.SHARED,
    "virtual": ControlPlaneChoice.VIRTUAL,
    "dedicated": ControlPlaneChoice.DEDICATED,
}

SHARED_MEMORY = "memory: a namespace has no process of its own"


class LadderLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Args:
        objects: How many ConfigMaps of 1 kB are created before the memory is measured again.
        seconds: How long requests are measured, alone and flooded.
        idle_seconds: How long to rest before memory is measured.
    """

    objects: int
    seconds: float
    idle_seconds: float


class LadderMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the cluster besides its API.

    Args:
        issue: Returns the connection of a user of the host.
        score: Returns the isolation score of a tenant, 0 to 100.
        memory: Returns the proportional memory of the processes of a control plane, by its namespace and name, in MiB;
            None if the processes are not on this machine.
        writes: Returns how many requests of the operator have written so far; None if its metrics cannot be read.
    """

    issue: Callable[[str], Awaitable[Connection]]
    score: Callable[[str], Awaitable[int]]
    memory: Callable[[str, str], float] | None
    writes: Callable[[], Awaitable[int]] | None


class LadderRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of the owner: a quarter of them create, a quarter delete, and half read."""

    per_second: float
    p99_milliseconds: float


class LadderStep(msgspec.Struct, frozen=True, kw_only=True):
    """A level.

    Args:
        level: Its name: namespace, virtual or dedicated.
        isolation_class: As the Tenant reports it.
        first_answer_seconds: From the POST of the Tenant until its owner gets an answer from its API server.
        first_pod_seconds: From the same POST until the first pod of the owner runs.
        idle_mebibytes: Proportional memory (PSS) of its own processes at rest.
        loaded_mebibytes: The same with the objects.
        alone: Requests without a neighbour.
        flooded: Requests while a neighbour floods.
        p99_ratio: Of the two p99.
        score: The isolation score of `tenantry audit`, from 0 to 100.
        writes: Requests of the operator that wrote, from the POST until the first pod runs.
        not_measured: What is None, and why.
    """

    level: str
    isolation_class: str
    first_answer_seconds: float
    first_pod_seconds: float | None
    idle_mebibytes: float | None
    loaded_mebibytes: float | None
    alone: LadderRequests
    flooded: LadderRequests
    p99_ratio: float
    score: int | None
    writes: int | None
    not_measured: tuple[str, ...]


class LadderResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the levels from the softest to the hardest, and the load."""

    steps: tuple[LadderStep, ...]
    load: LadderLoad


class _Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant of a level whose owner has got an answer."""

    name: str
    namespace: str
    connection: Connection
    began: float
    answered: float


async def ladder(client: Client, load: LadderLoad, machine: LadderMachine, progress: Progress) -> LadderResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client, with `load.POOL` connections.
        load: What is measured.
        machine: What is known of the cluster.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A tenant does not answer in time.
    """
    steps: list[LadderStep] = []
    for level, choice in LEVELS.items():
        run = f"{new_run()}-{level}"
        try:
            steps.append(await _step(client, run, level, choice, load, machine))
        finally:
            await clean_up(client, run)
        step = steps[-1]
        pod = "does not run" if step.first_pod_seconds is None else f"runs after {step.first_pod_seconds} s"
        progress(f"{level}: answers after {step.first_answer_seconds} s, a pod {pod}, score {step.score}")
    return LadderResult(steps=tuple(steps), load=load)


async def _step(  # noqa: PLR0917 - what the caller has of the level
    client: Client, run: str, level: str, choice: ControlPlaneChoice, load: LadderLoad, machine: LadderMachine
) -> LadderStep:
    missing: list[str] = []
    written = await machine.writes() if machine.writes is not None else 0
    quiet = await _created(client, run, "quiet", choice, machine)
    async with Client(quiet.connection, max_connections=16) as inside:
        side = BenchSide(inside, quiet.namespace, "first", run)
        try:
            # An owner may not watch pods of all namespaces.
            watcher = client if choice is ControlPlaneChoice.SHARED else inside
            pod = await _first_pod(side, run, watcher) - quiet.began
        except RetryableError as error:
            pod = None
            missing.append(f"first pod: {error}")
        writes = await machine.writes() - written if machine.writes is not None else None
        if machine.writes is None:
            missing.append("writes: the metrics of the operator cannot be read")
        await asyncio.sleep(load.idle_seconds)
        idle = _memory(machine, quiet, choice, missing)
        await _fill(inside, quiet.namespace, load.objects)
        await asyncio.sleep(load.idle_seconds)
        loaded = _memory(machine, quiet, choice, [])
        alone = await _requests(inside, quiet.namespace, load.seconds)
        async with _neighbour(client, run, choice, machine) as flood, flooding(flood):
            await asyncio.sleep(SETTLE_SECONDS)
            flooded = await _requests(inside, quiet.namespace, load.seconds)
    score = None
    try:
        score = await machine.score(quiet.name)
    except ApiError as error:
        missing.append(f"score: {error}")
    found = await client.get(Tenant, quiet.name)
    return LadderStep(
        level=level,
        isolation_class=str(found.status.isolation_class or ""),
        first_answer_seconds=round(quiet.answered - quiet.began, 2),
        first_pod_seconds=round(pod, 2) if pod is not None else None,
        idle_mebibytes=idle,
        loaded_mebibytes=loaded,
        alone=alone,
        flooded=flooded,
        p99_ratio=round(flooded.p99_milliseconds / alone.p99_milliseconds, 1),
        score=score,
        writes=writes,
        not_measured=tuple(missing),
    )


def _memory(machine: LadderMachine, of: _Tenant, choice: ControlPlaneChoice, missing: list[str]) -> float | None:
    if choice is ControlPlaneChoice.SHARED:
        missing.append(SHARED_MEMORY)
        return None
    if machine.memory is None:
        missing.append("memory: the processes of control planes do not run on this machine")
        return None
    return machine.memory(of.name, of.name)


# -- tenants --------------------------------------------------------------------------------------


async def _created(client: Client, run: str, what: str, choice: ControlPlaneChoice, machine: LadderMachine) -> _Tenant:
    """Create a tenant, and return it when its owner has an answer.

    Raises:
        RetryableError: It does not answer in time.
    """
    name = f"bench-{run.partition('-')[0]}-{what}"
    tenant = new_tenant(name, run, user=name, quota=_QUOTA)
    tenant = replace(tenant, spec=replace(tenant.spec, isolation=Isolation(control_plane=choice)))
    if choice is ControlPlaneChoice.SHARED:
        # Before the time is taken: the owner of a tenant has credentials already.
        own = await machine.issue(name)
        began = time.perf_counter()
        await client.create(tenant)
        await _answers(own, name)
        return _Tenant(name=name, namespace=name, connection=own, began=began, answered=time.perf_counter())
    began = time.perf_counter()
    await client.create(tenant)
    connection = await _plane_connection(client, name)
    await _answers(connection, "default")
    answered = time.perf_counter()
    return _Tenant(name=name, namespace="default", connection=connection, began=began, answered=answered)


async def _plane_connection(client: Client, name: str) -> Connection:
    """Wait for the control plane of a name in the namespace of the same name; return the connection of its users."""
    only = {"fieldSelector": f"metadata.namespace={name},metadata.name={name}"}
    await first_seen(client, VirtualControlPlane, {f"{name}/{name}"}, is_ready, only, "Ready", READY_SECONDS)
    return await connection_of(client, name, name)


async def _answers(connection: Connection, namespace: str) -> None:
    """Wait until an API server answers a user."""
    async with deadline(READY_SECONDS, f"namespace {namespace!r} does not answer"), Client(connection) as user:
        while True:
            try:
                await user.request("GET", wire.path(Pod.resource, namespace))
            except (Forbidden, NotFound):
                await asyncio.sleep(POLL_SECONDS / 2)  # no event reports to a user that it has rights now
            else:
                return


async def _first_pod(side: BenchSide, run: str, watcher: Client) -> float:
    """Start a pod; return when it runs.

    Raises:
        RetryableError: It does not run in time.
    """
    name, key = side.next_name(), side.namespace
    only = {**of_run(run), "fieldSelector": f"metadata.namespace={key},status.phase=Running,metadata.name={name}"}
    wanted = first_seen(watcher, Pod, {f"{key}/{name}"}, lambda _: True, only, "running", POD_SECONDS)
    async with in_background(wanted) as seen:
        async with deadline(POD_SECONDS, "a pod is not admitted"):
            while True:
                try:
                    await side.start(name)
                except (Forbidden, NotFound):
                    await asyncio.sleep(POLL_SECONDS / 2)  # the namespace gets its ServiceAccount a moment later
                else:
                    break
        return next(iter((await seen).values()))


@asynccontextmanager
async def _neighbour(
    client: Client, run: str, choice: ControlPlaneChoice, machine: LadderMachine
) -> AsyncGenerator[Flood]:
    """Yield the flood of another tenant of the same level."""
    if choice is ControlPlaneChoice.DEDICATED:
        # Its control plane is the neighbour: nodes of its own would only take some from the host.
        name = f"bench-{run.partition('-')[0]}-loud"
        await create_tenants(client, [replace(new_tenant(name, run, user=name, quota=_QUOTA))])
        meta = ObjectMeta(name=name, namespace=name, labels={RUN_LABEL: run})
        await client.create(DedicatedCluster(metadata=meta, spec=DedicatedClusterSpec(nodes=0)))
        connection, namespace = await _plane_connection(client, name), "default"
        await _answers(connection, namespace)
    else:
        loud = await _created(client, run, "loud", choice, machine)
        connection, namespace = loud.connection, loud.namespace
    async with Client(connection, max_connections=FLOOD_CONNECTIONS) as user:
        await _fill(user, namespace, FLOOD_OBJECTS)
    kind = FloodKind(path=wire.path(CONFIG_MAPS, namespace), value={"apiVersion": "v1", "kind": "ConfigMap"})
    yield Flood(connection=connection.detached(), kinds=(kind,), connections=FLOOD_CONNECTIONS)


# -- requests -------------------------------------------------------------------------------------


async def _fill(client: Client, namespace: str, count: int) -> None:
    async def create(number: int) -> None:
        value = {"metadata": {"name": f"fill-{number}", "namespace": namespace}, "data": {"text": "x" * 1000}}
        while True:
            # Many writers change the count of a quota: the API server gives up, and clients try again.
            try:
                await post(client, CONFIG_MAPS, value)
            except AlreadyExists:
                raise
            except Conflict:
                continue
            return

    await saturate(create, range(count), connections=16)


async def _requests(client: Client, namespace: str, seconds: float) -> LadderRequests:
    """Send requests for a time, each connection one after the other."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def worker(number: int) -> None:
        name = f"ask-{number}"
        value = {"metadata": {"name": name, "namespace": namespace}}
        read = wire.path(CONFIG_MAPS, namespace, name)
        while time.perf_counter() < end:
            for ask in (
                lambda: post(client, CONFIG_MAPS, value),
                lambda: client.request("GET", read),
                lambda: client.request("GET", read),
                lambda: delete(client, CONFIG_MAPS, name, namespace),
            ):
                began = time.perf_counter()
                with contextlib.suppress(TooManyRequests, Conflict, NotFound):  # a refusal counts with its time
                    await ask()
                took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await all_of(worker(number) for number in range(WORKERS))
    spent = time.perf_counter() - began
    return LadderRequests(
        per_second=round(len(took) / spent, 1), p99_milliseconds=percentile([1000 * each for each in took], 0.99, 1)
    )
