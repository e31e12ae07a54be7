"""What Tenantry costs an API server: memory and CPU while idle, and CPU for each write.

    two throwaway control planes, one with Tenantry, side by side, so that both have the same load of the machine
    install: rest ─► memory of each API server, with the garbage of the installation
    idle:    restart both API servers ─► rest ─► memory of each, and its CPU over a window
    writes:  POST, PATCH and DELETE of N objects of each kind ─► CPU of the API server for each write
             on one side, then on the other; every other round in the opposite order

CPU is that of the API server's process and not the time that passes, because other work on the machine delays requests
and costs this process nothing. In clusters with Tenantry, quota counts objects of some kinds, and writes its status
for each of them. So these kinds have a ratio of their own. The control plane without Tenantry writes them in namespaces
with a quota, too: once with one key for each kind, and once with the keys of a tenant's quota.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import os
import statistics
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from operator import attrgetter
from pathlib import Path

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Json, Resource
from tenantry.bench.load import (
    POLL_SECONDS,
    POOL,
    RUN_LABEL,
    Progress,
    create_tenants,
    deadline,
    new_tenant,
    post,
    saturate,
)
from tenantry.bench.objects import CONFIG_MAPS, SECRETS
from tenantry.bench.probe import MIB
from tenantry.engine.tasks import all_of
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client
from tenantry.kube.kubeconfig import Connection
from tenantry.world.inheritance import SERVICE_ACCOUNTS

OWNER = "bench-owner"
NAMESPACES = 8
CONNECTIONS = 2
"""So few that no request waits in a queue of the priority level of all tenants: waiting is fairness, and costs CPU."""
READY_SECONDS = 60.0
_PLENTY = "1000000"
_PATCH = msgspec.json.encode({"metadata": {"annotations": {"bench": "1"}}})
_EVENTS = Resource("", "v1", "events", "Event")


class BenchWriter(enum.StrEnum):
    """The user who writes the objects of a kind."""

    OWNER = "owner"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class BenchKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that the benchmark writes.

    Args:
        resource: The kind.
        writer: The user.
        value: The object, except for its kind and its metadata.
    """

    resource: Resource
    writer: BenchWriter
    value: Json


KINDS = (
    BenchKind(resource=CONFIG_MAPS, writer=BenchWriter.OWNER, value={"data": {"key": "value"}}),
    BenchKind(resource=SECRETS, writer=BenchWriter.OWNER, value={"stringData": {"key": "value"}}),
    BenchKind(resource=SERVICE_ACCOUNTS, writer=BenchWriter.OWNER, value={}),
    BenchKind(
        resource=NetworkPolicy.resource, writer=BenchWriter.OWNER, value={"spec": {"podSelector": {}, "ingress": []}}
    ),
    BenchKind(resource=LimitRange.resource, writer=BenchWriter.OPERATOR, value={"spec": {"limits": []}}),
    BenchKind(resource=_EVENTS, writer=BenchWriter.ADMINISTRATOR, value={"involvedObject": {}, "reason": "Bench"}),
)
"""Kinds that need no node and have no controller that writes for each object."""


class FootprintCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane that the benchmark uses.

    Args:
        connection: An administrator's connection.
        pid: The process of its API server.
        restart: Restarts its API server, and returns the new process.
        tenantry: Whether Tenantry is installed and its operator runs.
    """

    connection: Connection
    pid: int
    restart: Callable[[], Awaitable[int]]
    tenantry: bool


class KindCost(msgspec.Struct, frozen=True, kw_only=True):
    """What writes of one kind cost, over all rounds.

    Args:
        kind: The kind.
        writer: The user who writes: owner, operator or administrator.
        counted: Whether a key of the tenants' quota counts the kind.
        plain_milliseconds: CPU of the API server for each write, without Tenantry.
        guarded_milliseconds: CPU of the API server for each write in a tenant's namespace.
        ratio: guarded_milliseconds / plain_milliseconds.
        one_key_milliseconds: CPU for each write without Tenantry, with a quota of one key for each kind; null if the
            kind is not counted.
        same_quota_milliseconds: The same with the keys of a tenant's quota.
    """

    kind: str
    writer: BenchWriter
    counted: bool
    plain_milliseconds: float
    guarded_milliseconds: float
    ratio: float
    one_key_milliseconds: float | None
    same_quota_milliseconds: float | None


class FootprintResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result. Memory is the proportional set size (PSS) of the API server, in MiB.

    Args:
        plain_megabytes: Memory of an idle API server without Tenantry.
        added_megabytes: How much more an idle API server with Tenantry has.
        added_before_restart_megabytes: The same before both API servers restarted: the heap of the one that Tenantry
            was installed into has gaps, because it has compiled the policies several times.
        idle_seconds: The length of the window of the idle CPU.
        plain_idle_cpu_cores: CPU of the idle API server without Tenantry; 1 is a whole core.
        idle_cpu_ratio: CPU of the idle API server with Tenantry, divided by that without.
        writes: How many objects of each kind were written on each side in a round.
        rounds: How many rounds there were.
        write_cost_ratio: CPU for writes of the kinds that no quota counts, with Tenantry divided by without: the
            median over the rounds.
        counted_write_cost_ratio: The same for kinds that quota counts, divided by writes without any quota; null if
            there are none, as the next four.
        one_key_write_cost_ratio: Writes of these kinds without Tenantry, with a quota of one key for each kind, divided
            by writes without any quota: the cost of Kubernetes' own quota.
        same_quota_write_cost_ratio: The same with the keys of a tenant's quota.
        counted_above_one_key_ratio: Writes with Tenantry, divided by writes without it with a quota of one key.
        counted_above_same_quota_ratio: The same, divided by writes with the keys of a tenant's quota.
        kinds: Each kind, over all rounds.
    """

    plain_megabytes: float
    added_megabytes: float
    added_before_restart_megabytes: float
    idle_seconds: float
    plain_idle_cpu_cores: float
    idle_cpu_ratio: float
    writes: int
    rounds: int
    write_cost_ratio: float | None
    counted_write_cost_ratio: float | None
    one_key_write_cost_ratio: float | None
    same_quota_write_cost_ratio: float | None
    counted_above_one_key_ratio: float | None
    counted_above_same_quota_ratio: float | None
    kinds: list[KindCost]


class WriteRound(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of the API servers for the writes of one kind in one round: without Tenantry, and with it.

    For kinds that quota counts also without Tenantry, with a quota of one key for each kind, and with a tenant's keys.
    """

    kind: str
    plain: float
    guarded: float
    one_key: float = 0.0
    same_quota: float = 0.0


class IdleUsage(msgspec.Struct, frozen=True, kw_only=True):
    """MiB and cores of an idle API server."""

    megabytes: float
    cores: float


async def footprint(
    plain: FootprintCluster,
    guarded: FootprintCluster,
    *,
    writes: int,
    rounds: int,
    idle_seconds: float,
    progress: Progress,
) -> FootprintResult:
    """Run the benchmark; what it creates stays in the clusters.

    Args:
        plain: A control plane without Tenantry.
        guarded: One with Tenantry.
        writes: How many objects of each kind to write on each side in a round.
        rounds: How many times the writes are measured.
        idle_seconds: How long both are left alone, first and after their restart, and the window of the idle CPU.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A step takes too long.
    """
    progress(f"waiting for {idle_seconds:.0f} s until the control planes are idle")
    await asyncio.sleep(idle_seconds)
    before, after = (_usage(each.pid).megabytes for each in (plain, guarded))
    progress(f"{before:.0f} MiB without Tenantry, {after:.0f} MiB with it, before the API servers restart")
    plain, guarded = [msgspec.structs.replace(each, pid=await each.restart()) for each in (plain, guarded)]
    await asyncio.sleep(idle_seconds)
    idle = [_usage(each.pid) for each in (plain, guarded)]
    progress(f"idle for {idle_seconds:.0f} s")
    await asyncio.sleep(idle_seconds)
    one, other = (
        IdleUsage(megabytes=now.megabytes, cores=(now.cores - began.cores) / idle_seconds)
        for began, now in zip(idle, [_usage(each.pid) for each in (plain, guarded)], strict=True)
    )
    progress(f"{one.megabytes:.0f} MiB without Tenantry, {other.megabytes:.0f} MiB with it")
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(_prepared(each)) for each in (plain, guarded)]
        found = await sides[1].administrator.list(ResourceQuota, namespace=sides[1].namespaces[0])
        quotas = [each.spec.hard for each in found]
        counted = _counted(quotas)
        single = [{f"count/{kind.resource.full_name}": _PLENTY} for kind in KINDS if kind.resource.kind in counted]
        sides += [await stack.enter_async_context(_prepared(plain, hard)) for hard in (single, quotas)]
        measured = [(kind, sides if kind.resource.kind in counted else sides[:2]) for kind in KINDS]
        done: list[list[WriteRound]] = []
        for number in range(1, rounds + 1):
            done.append([await _round(some, kind, number, writes) for kind, some in measured])
            times = _ratio(done[-1:], set(_names()))
            progress(f"{number}/{rounds}: a write costs {times} times as much with Tenantry")
    return result(
        one,
        other,
        done,
        added_before=after - before,
        counted=counted,
        writes=writes,
        idle_seconds=idle_seconds,
    )


def result(
    plain: IdleUsage,
    guarded: IdleUsage,
    done: Sequence[Sequence[WriteRound]],
    *,
    added_before: float,
    counted: frozenset[str],
    writes: int,
    idle_seconds: float,
) -> FootprintResult:
    """Return the result of measurements.

    Args:
        plain: The idle API server without Tenantry.
        guarded: The one with Tenantry.
        done: Each round: each kind.
        added_before: How many MiB more the API server with Tenantry had before the restart.
        counted: The kinds that quota counts.
        writes: How many objects of each kind were written on each side in a round.
        idle_seconds: The window of idle CPU.
    """
    names = set(_names())
    return FootprintResult(
        plain_megabytes=round(plain.megabytes, 1),
        added_megabytes=round(guarded.megabytes - plain.megabytes, 1),
        added_before_restart_megabytes=round(added_before, 1),
        idle_seconds=idle_seconds,
        plain_idle_cpu_cores=round(plain.cores, 4),
        # A window shorter than a tick of the kernel's clock shows no CPU at all.
        idle_cpu_ratio=round(guarded.cores / max(plain.cores, 1 / (_TICKS * idle_seconds)), 3),
        writes=writes,
        rounds=len(done),
        write_cost_ratio=_ratio(done, names - counted),
        counted_write_cost_ratio=_ratio(done, names & counted),
        one_key_write_cost_ratio=_ratio(done, names & counted, _ONE_KEY),
        same_quota_write_cost_ratio=_ratio(done, names & counted, _SAME_QUOTA),
        counted_above_one_key_ratio=_ratio(done, names & counted, _GUARDED, _ONE_KEY),
        counted_above_same_quota_ratio=_ratio(done, names & counted, _GUARDED, _SAME_QUOTA),
        kinds=[_cost(kind, done, counted, writes) for kind in KINDS],
    )


def _names() -> list[str]:
    return [kind.resource.kind for kind in KINDS]


_Spent = Callable[[WriteRound], float]
_PLAIN: _Spent = attrgetter("plain")
_GUARDED: _Spent = attrgetter("guarded")
_ONE_KEY: _Spent = attrgetter("one_key")
_SAME_QUOTA: _Spent = attrgetter("same_quota")


def _ratio(
    done: Sequence[Sequence[WriteRound]], kinds: set[str], spent: _Spent = _GUARDED, base: _Spent = _PLAIN
) -> float | None:
    """Return the median over rounds of the ratio of the CPU for some kinds; None for no kinds."""
    ratios: list[float] = []
    for each in done:
        some = [found for found in each if found.kind in kinds]
        if some:
            ratios.append(_divided(sum(map(spent, some)), sum(map(base, some))))
    return round(statistics.median(ratios), 3) if ratios else None


def _cost(kind: BenchKind, done: Sequence[Sequence[WriteRound]], counted: frozenset[str], writes: int) -> KindCost:
    name = kind.resource.kind
    mine = [found for each in done for found in each if found.kind == name]
    plain, guarded, one_key, same = (sum(map(spent, mine)) for spent in (_PLAIN, _GUARDED, _ONE_KEY, _SAME_QUOTA))
    # Each object is created, changed and deleted.
    each = 1000 / (3 * writes * len(done))
    return KindCost(
        kind=name,
        writer=kind.writer,
        counted=name in counted,
        plain_milliseconds=round(plain * each, 3),
        guarded_milliseconds=round(guarded * each, 3),
        ratio=round(_divided(guarded, plain), 3),
        one_key_milliseconds=round(one_key * each, 3) if name in counted else None,
        same_quota_milliseconds=round(same * each, 3) if name in counted else None,
    )


def _divided(guarded: float, plain: float) -> float:
    return guarded / max(plain, 1 / _TICKS)


# -- processes ------------------------------------------------------------------------------------

_TICKS = os.sysconf("SC_CLK_TCK")


def _usage(pid: int) -> IdleUsage:
    """Return the memory of a process and the CPU seconds that it has used; proc_pid_stat(5), proc_pid_smaps(5)."""
    line = next(line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return IdleUsage(megabytes=int(line.split()[1]) * 1024 / MIB, cores=_cpu_seconds(pid))


def _cpu_seconds(pid: int) -> float:
    # The name of the program, in parentheses, may have spaces; utime and stime are fields 14 and 15 of the line.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# -- writes ---------------------------------------------------------------------------------------


class _Side(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    namespaces: tuple[str, ...]
    administrator: Client
    writers: Mapping[BenchWriter, Client]


@asynccontextmanager
async def _prepared(cluster: FootprintCluster, quotas: Sequence[Mapping[str, str]] = ()) -> AsyncGenerator[_Side]:
    """Yield a control plane with namespaces in which the owner may write.

    Args:
        cluster: The control plane.
        quotas: The `spec.hard` of each ResourceQuota that every namespace gets.
    """
    run = uuid.uuid4().hex[:8]
    names = tuple(f"bench-{run}-{number}" for number in range(NAMESPACES))
    people = {
        BenchWriter.OWNER: (OWNER, ("system:authenticated",)),
        BenchWriter.OPERATOR: (marks.OPERATOR_USER, ("system:authenticated", "system:masters")),
    }
    async with AsyncExitStack() as stack:
        administrator = await stack.enter_async_context(Client(cluster.connection, max_connections=POOL))
        writers = {BenchWriter.ADMINISTRATOR: administrator}
        for writer, (user, groups) in people.items():
            as_user = msgspec.structs.replace(cluster.connection, impersonate=user, impersonate_groups=groups)
            writers[writer] = await stack.enter_async_context(Client(as_user, max_connections=POOL))
        if cluster.tenantry:
            await create_tenants(administrator, [new_tenant(name, run, user=OWNER) for name in names])
        else:
            await all_of(_create_namespace(administrator, run, name) for name in names)
        side = _Side(pid=cluster.pid, namespaces=names, administrator=administrator, writers=writers)
        await all_of(_limited(administrator, name, quotas) for name in names)
        await _admitted(side)
        yield side


async def _create_namespace(client: Client, run: str, name: str) -> None:
    await post(client, Namespace.resource, {"metadata": {"name": name, "labels": {RUN_LABEL: run}}})
    role = {"kind": "ClusterRole", "name": "admin", "apiGroup": RBAC_GROUP}
    subjects = [{"kind": "User", "name": OWNER, "apiGroup": RBAC_GROUP}]
    binding = {"metadata": {"name": "bench", "namespace": name}, "roleRef": role, "subjects": subjects}
    await post(client, RoleBinding.resource, binding)


async def _limited(client: Client, namespace: str, quotas: Sequence[Mapping[str, str]]) -> None:
    """Create ResourceQuotas that are in force at once.

    Kubernetes' quota controller fills in their status late: it lost its watches when the API server restarted.
    """
    for number, hard in enumerate(quotas):
        name = f"bench-{number}"
        metadata = {"name": name, "namespace": namespace}
        await post(client, ResourceQuota.resource, {"metadata": metadata, "spec": {"hard": dict(hard)}})
        status = msgspec.json.encode({"status": {"hard": dict(hard), "used": dict.fromkeys(hard, "0")}})
        path = wire.path(ResourceQuota.resource, namespace, name, "status")
        await client.request("PATCH", path, body=status, content_type=MERGE_PATCH)


async def _admitted(side: _Side) -> None:
    """Wait until the owner may write in each namespace: rights take effect a moment after their binding exists."""

    async def one(kind: BenchKind, namespace: str) -> None:
        path, body = _creation(kind, "bench-first", namespace)
        while True:
            try:
                await side.writers[kind.writer].request("POST", path, query={"dryRun": "All"}, body=body)
            except Forbidden as error:
                why[namespace] = str(error)
                await asyncio.sleep(POLL_SECONDS)  # no event reports it
            else:
                why.pop(namespace, None)
                return

    why: dict[str, str] = {}
    try:
        async with deadline(READY_SECONDS, "writes of the benchmark are refused"):
            await all_of(one(kind, name) for kind in KINDS for name in side.namespaces)
    except Exception as error:
        for text in [*why.values()][:1]:
            error.add_note(text)
        raise


def _counted(quotas: Sequence[Mapping[str, str]]) -> frozenset[str]:
    """Return the kinds that quotas count."""
    keys = {key for each in quotas for key in each}
    return frozenset(kind.resource.kind for kind in KINDS if is_counted(kind.resource, keys))


def is_counted(resource: Resource, keys: set[str]) -> bool:
    """Return whether a quota with these keys counts the objects of a kind.

    Source: Kubernetes, "Resource Quotas" (object count quota).
    """
    generic = f"count/{resource.plural}{'.' if resource.group else ''}{resource.group}"
    return generic in keys or (not resource.group and resource.plural in keys)


def _creation(kind: BenchKind, name: str, namespace: str) -> tuple[str, bytes]:
    """Return the path and the body of the POST of an object."""
    metadata = {"name": name, "namespace": namespace}
    value: Json = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": metadata}
    if kind.resource == _EVENTS:
        value["involvedObject"] = {"kind": "Namespace", "namespace": namespace, "name": namespace}
    return wire.path(kind.resource, namespace), msgspec.json.encode({**kind.value, **value})


async def _round(sides: Sequence[_Side], kind: BenchKind, number: int, writes: int) -> WriteRound:
    order = sides if number % 2 else sides[::-1]
    spent = [await _write(side, kind, number, writes) for side in order]
    plain, guarded, *with_quota = spent if number % 2 else spent[::-1]
    one_key, same_quota = with_quota or (0.0, 0.0)
    return WriteRound(kind=kind.resource.kind, plain=plain, guarded=guarded, one_key=one_key, same_quota=same_quota)


async def _write(side: _Side, kind: BenchKind, number: int, writes: int) -> float:
    """Create, change and delete objects of a kind, and return the CPU seconds of the API server."""
    client = side.writers[kind.writer]
    places = list(zip(range(writes), itertools.cycle(side.namespaces), strict=False))
    created = [_creation(kind, f"bench-{number}-{index}", namespace) for index, namespace in places]
    paths = [wire.path(kind.resource, namespace, f"bench-{number}-{index}") for index, namespace in places]
    began = _cpu_seconds(side.pid)
    await saturate(lambda each: client.request("POST", each[0], body=each[1]), created, connections=CONNECTIONS)
    await saturate(
        lambda path: client.request("PATCH", path, body=_PATCH, content_type=MERGE_PATCH),
        paths,
        connections=CONNECTIONS,
    )
    await saturate(lambda path: client.request("DELETE", path), paths, connections=CONNECTIONS)
    return _cpu_seconds(side.pid) - began
