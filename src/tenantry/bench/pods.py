"""How fast pods are made in tenants' namespaces with rules on, beside namespaces that Tenantry does not manage.

    round:  POST N pods over the tenants' namespaces ─► until all run ─► delete, wait until gone
            the same over as many namespaces of nobody's; every other round the other way round

Both sides are written by one user, who owns the tenants and edits the other namespaces, with the same HTTP client and
connections: what policies spare administrators is not spared here. The user is served where Kubernetes' controllers
are, so that the rate is the API server's and not that of the level of all tenants.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from tenantry.api.errors import ApiError, InputError, NotFound, Unreachable
from tenantry.api.flowcontrol import PriorityLevelConfiguration
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.rules import Rules
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.bench.levels import routed, served_at, uid
from tenantry.bench.load import CONNECTIONS, GONE_SECONDS, RUN_LABEL, clean_up, ready_times, saturate
from tenantry.bench.objects import deadline, events, post, wait_until_gone
from tenantry.bench.policycost import PolicyCost, costs
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

Json = dict[str, Any]
Talk = Callable[[str], None]

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEVEL = "workload-high"
RUN_SECONDS = 1800.0
ADMITTED_SECONDS = 60.0
LOOK_SECONDS = 0.2
DELETERS = 8

RULES: Json = {
    "podSecurity": {"level": "Restricted"},
    "images": {"allowed": ["registry[.]example[.]com/.*"], "pullPolicies": ["IfNotPresent", "Always"]},
    "runtimeClasses": {"allowed": []},
    "priorityClasses": {"allowed": []},
    "scheduling": {"nodeName": "Refuse", "nodeSelectors": [], "tolerations": []},
    "containers": {"max": {"cpu": "1", "memory": "1Gi"}, "requiredLimits": ["memory"]},
}
"""Everything that rules can say of a pod."""

SPEC: Json = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/bench:1",
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
        }
    ],
}
"""A pod that these rules allow; no account is mounted, as in most that run untrusted code."""


class PodsSide(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on one side; medians over the rounds.

    Args:
        pods_per_second: How fast they were made.
        running_seconds: From the first POST until the last pod ran.
    """

    pods_per_second: float
    running_seconds: float


class PodsResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    Args:
        ratio: Of the rates at which pods were made, guarded to unguarded: the median over the rounds.
        running_ratio: Of the times until all ran, unguarded to guarded, likewise; 1 is as fast.
        tenants: How many namespaces there were on each side.
        pods: How many on each side, in all.
        rounds: How many there were.
        quota: Whether the tenants had a quota besides.
        guarded: In tenants' namespaces.
        unguarded: In others.
        policies: What each policy costs, the dearest first; null where it was not asked for.
    """

    ratio: float
    running_ratio: float
    tenants: int
    pods: int
    rounds: int
    quota: bool
    guarded: PodsSide
    unguarded: PodsSide
    policies: list[PolicyCost] | None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for.

    Args:
        tenants: How many namespaces on each side.
        pods: How many on each side, in all.
        rounds: How many times each side is measured.
        quota: The tenants have a quota besides, which Kubernetes counts at every pod.
        each_policy: Measure each policy, too.
    """

    tenants: int
    pods: int
    rounds: int
    quota: bool
    each_policy: bool


class _Made(msgspec.Struct, frozen=True):
    per_second: float
    running_seconds: float


async def pods(client: Client, load: Load, talk: Talk) -> PodsResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's, who may impersonate, with some connections beside `CONNECTIONS`.
        load: What is asked for.
        talk: Told what happens, for a person.

    Raises:
        InputError: The cluster's nodes have no room for so many pods.
        RetryableError: Something takes too long.
    """
    await _require_room(client, load.pods)
    run = f"{int(time.time()):x}"
    user = f"bench-{run}"
    guarded = [f"bench-{run}-{number}" for number in range(load.tenants)]
    free = [f"bench-free-{run}-{number}" for number in range(load.tenants)]
    rounds: list[tuple[_Made, _Made]] = []
    found: list[PolicyCost] | None = None
    try:
        await _tenants(client, run, user, guarded, quota=load.quota)
        await _namespaces(client, run, user, free)
        level = await uid(client, PriorityLevelConfiguration.resource, LEVEL)
        async with routed(client, guarded[0], (user,), LEVEL), _as_user(client.connection, user) as author:
            await served_at(author, wire.path(PODS, guarded[0]), level)
            await _admitted(author, (*guarded, *free))
            for number in range(1, load.rounds + 1):
                sides = (guarded, free) if number % 2 else (free, guarded)
                made = [await _side(client, author, f"{run}-{number}", names, load.pods) for names in sides]
                one, other = made if number % 2 else made[::-1]
                rounds.append((one, other))
                rates = f"{one.per_second:.0f}/s guarded, {other.per_second:.0f}/s not"
                talk(f"{number}/{load.rounds}: {load.pods} pods at {rates}")
            if load.each_policy:
                bodies = [(wire.path(PODS, name), pod(f"cost-{name}", name, run)) for name in guarded]
                found = await costs(client, author, tenants=guarded, requests=bodies, count=load.pods, talk=talk)
    finally:
        await asyncio.shield(_clean_up(client, run))
    return _result(load, rounds, found)


def _result(load: Load, rounds: Sequence[tuple[_Made, _Made]], found: list[PolicyCost] | None) -> PodsResult:
    def middle(values: Sequence[float]) -> float:
        return round(statistics.median(values), 3)

    one, other = (
        PodsSide(
            pods_per_second=middle([sides[side].per_second for sides in rounds]),
            running_seconds=middle([sides[side].running_seconds for sides in rounds]),
        )
        for side in range(2)
    )
    return PodsResult(
        ratio=middle([guarded.per_second / free.per_second for guarded, free in rounds]),
        running_ratio=middle([free.running_seconds / guarded.running_seconds for guarded, free in rounds]),
        tenants=load.tenants,
        pods=load.pods,
        rounds=load.rounds,
        quota=load.quota,
        guarded=one,
        unguarded=other,
        policies=found,
    )


# -- one side -------------------------------------------------------------------------------------


def pod(name: str, namespace: str, batch: str) -> bytes:
    """Return the body of the POST of a pod."""
    meta = {"name": name, "namespace": namespace, "labels": {RUN_LABEL: batch}}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": SPEC})


async def _side(client: Client, author: Client, batch: str, names: Sequence[str], count: int) -> _Made:
    """Make pods, wait until they run, and take them away."""
    places = [names[number % len(names)] for number in range(count)]
    # Other names than in other rounds: what plays the nodes may miss a pod that is there again at once [measured].
    requests = [
        (wire.path(PODS, place), pod(f"p-{batch}-{number}", place, batch)) for number, place in enumerate(places)
    ]
    began = time.perf_counter()
    running = asyncio.create_task(_all_run(client, batch, count))
    try:
        await saturate(lambda each: author.request("POST", each[0], body=each[1]), requests)
        seconds = time.perf_counter() - began
        await running
        took = time.perf_counter() - began
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await _remove(client, names)
    return _Made(per_second=count / seconds, running_seconds=took)


async def _all_run(client: Client, batch: str, count: int) -> None:
    only = {"labelSelector": f"{RUN_LABEL}={batch}", "fieldSelector": "status.phase=Running"}
    left = count
    async with (
        deadline(RUN_SECONDS, f"not all of {count} pods run"),
        aclosing(events(client, PODS, only)) as seen,
    ):
        running: set[tuple[str, str]] = set()
        async for _, body in seen:
            if body:
                meta = msgspec.json.decode(body, type=_Named).metadata
                running.add((meta.namespace, meta.name))
            if len(running) == left:
                return


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def _remove(client: Client, names: Sequence[str]) -> None:
    """Delete the pods of namespaces, and wait until they are gone."""
    at_once = asyncio.Semaphore(DELETERS)
    now = msgspec.json.encode({"gracePeriodSeconds": 0})

    async def empty(name: str) -> None:
        async with at_once:
            path = wire.path(PODS, name)
            while True:
                with contextlib.suppress(Unreachable):  # a collection can take longer than a request may
                    await client.request("DELETE", path, body=now)
                if not msgspec.json.decode(await client.request("GET", path, query={"limit": "1"}))["items"]:
                    return
                await asyncio.sleep(LOOK_SECONDS)  # a watch for each would cost more

    async with deadline(GONE_SECONDS, "pods of the benchmark are still there"):
        await asyncio.gather(*(empty(name) for name in names))


# -- where, and by whom ---------------------------------------------------------------------------


class _Taint(msgspec.Struct, frozen=True):
    effect: str


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[_Taint, ...] = ()


class _NodeCondition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[_NodeCondition, ...] = ()


class _Node(msgspec.Struct, frozen=True):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


async def _require_room(client: Client, count: int) -> None:
    """Refuse what the nodes cannot run.

    Raises:
        InputError: How much room there is.
    """
    room, nodes = 0, 0
    async for page in client.pages(NODES, _Node):
        for node in page.items:
            ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
            if (
                ready
                and not node.spec.unschedulable
                and not any(t.effect != "PreferNoSchedule" for t in node.spec.taints)
            ):
                nodes += 1
                room += int(node.status.allocatable.get("pods", "0"))
    async for page in client.pages(PODS, msgspec.Raw):
        room -= len(page.items)
    if room < count:
        raise InputError(
            f"--pods {count} are more than fit: {nodes} nodes have room for {max(room, 0)} more; on a local cluster"
            f" `tenantry up --nodes {-(-count // 100)}` makes enough"
        )


async def _tenants(client: Client, run: str, user: str, names: Sequence[str], *, quota: bool) -> None:
    spec = TenantSpec(
        owners=(Owner(kind=OwnerKind.USER, name=user),),
        quota=TenantQuota(hard={"cpu": "1000", "memory": "1000Gi", "pods": "20000"} if quota else {}),
        rules=msgspec.convert(RULES, Rules),
    )

    async def make(name: str) -> None:
        await client.create(Tenant(metadata=ObjectMeta(name=name, labels={RUN_LABEL: run}), spec=spec))

    async with ready_times(client, run) as ready:
        await saturate(make, names)
        await ready.wait_for(names)


async def _namespaces(client: Client, run: str, user: str, names: Sequence[str]) -> None:
    subject = {"kind": "User", "name": user, "apiGroup": RBAC_GROUP}

    async def make(name: str) -> None:
        await post(client, Namespace.resource, {"metadata": {"name": name, "labels": {RUN_LABEL: run}}})
        ref = {"kind": "ClusterRole", "name": "edit", "apiGroup": RBAC_GROUP}
        binding = {"metadata": {"name": "bench", "namespace": name}, "roleRef": ref, "subjects": [subject]}
        await post(client, RoleBinding.resource, binding)

    await saturate(make, names)


@asynccontextmanager
async def _as_user(connection: Connection, user: str) -> AsyncGenerator[Client]:
    """Be the user who owns all of it, with an administrator's credentials."""
    person = msgspec.structs.replace(connection, impersonate=user, impersonate_groups=("system:authenticated",))
    async with Client(person, field_manager="tenantry-bench", max_connections=CONNECTIONS) as client:
        yield client


async def _admitted(author: Client, names: Sequence[str]) -> None:
    """Wait until each namespace takes a pod: its account, the user's rights and the rules come after it.

    Raises:
        RetryableError: One does not; says why.
    """
    why: dict[str, str] = {}

    async def one(name: str) -> None:
        body = pod("bench-first", name, "first")
        while True:
            try:
                await author.request("POST", wire.path(PODS, name), query={"dryRun": "All"}, body=body)
            except ApiError as error:
                why[name] = str(error)
                await asyncio.sleep(LOOK_SECONDS)
            else:
                why.pop(name, None)
                return

    async with _explained(why), deadline(ADMITTED_SECONDS, "pods are refused"):
        await asyncio.gather(*(one(name) for name in names))


@asynccontextmanager
async def _explained(why: dict[str, str]) -> AsyncGenerator[None]:
    try:
        yield
    except Exception as error:
        if why:
            error.add_note(next(iter(why.values())))
        raise


async def _clean_up(client: Client, run: str) -> None:
    selectors = {"labelSelector": f"{RUN_LABEL}={run}"}
    free = [found.metadata.name for found in await client.list(Namespace, selectors=selectors)]

    async def delete(name: str) -> None:
        with contextlib.suppress(NotFound):
            await client.delete(Namespace.resource, "", name)

    await saturate(delete, free)
    await clean_up(client, run)
    async with deadline(GONE_SECONDS, "namespaces of the benchmark are still there"):
        await wait_until_gone(client, selectors)
