"""How fast pods are created in tenants' namespaces with rules on, beside namespaces that Tenantry does not manage.

    round:  POST pods one after another over the tenants' namespaces: how long each takes
            POST N pods at once over the same namespaces ─► until all run ─► delete, wait until gone
            the same over as many unmanaged namespaces; every other round in the opposite order

One user, who owns the tenants and edits the other namespaces, writes both sides with the same HTTP client and
connections: policies that exempt administrators apply to this user. The user is served at the priority level of
Kubernetes' controllers, so that the API server limits the rate and not the level of all tenants.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from tenantry.api.errors import ApiError, InputError, Unreachable
from tenantry.api.flowcontrol import PriorityLevelConfiguration
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.rules import Rules
from tenantry.bench.figures import median_of, percentile
from tenantry.bench.levels import routed, served_at, uid
from tenantry.bench.load import (
    GONE_SECONDS,
    POLL_SECONDS,
    POOL,
    RUN_LABEL,
    Json,
    Progress,
    clean_up,
    create_tenants,
    deadline,
    first_seen,
    new_run,
    new_tenant,
    of_run,
    post,
    saturate,
)
from tenantry.bench.policycost import PolicyCost, costs
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.tasks import all_of, in_background
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

PODS = Pod.resource
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEVEL = "workload-high"
RUN_SECONDS = 1800.0
ADMITTED_SECONDS = 60.0
DELETERS = 8
PACED = 200
"""Pods that are created one after another on each side of a round; two take longer than the 99th percentile."""
QUOTA = {"cpu": "1000", "memory": "1000Gi", "pods": "20000"}

RULES: Json = {
    "podSecurity": {"level": "Restricted"},
    "images": {"allowed": ["registry[.]example[.]com/.*"], "pullPolicies": ["IfNotPresent", "Always"]},
    "runtimeClasses": {"allowed": []},
    "priorityClasses": {"allowed": []},
    "scheduling": {"nodeName": "Refuse", "nodeSelectors": [], "tolerations": []},
    "containers": {"max": {"cpu": "1", "memory": "1Gi"}, "requiredLimits": ["memory"]},
}
"""Every rule about pods."""

SPEC: Json = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/bench:1",
            "imagePullPolicy": "Always",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
        }
    ],
}
"""A pod that these rules allow."""


class PodsSide(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one side: medians over the rounds.

    Args:
        pods_per_second: How fast pods were created.
        running_seconds: From the first POST until the last pod ran.
        p50_milliseconds: How long the creation of a pod took while no other pod was created: the median.
        p99_milliseconds: How long it took at most for 99 of 100 pods.
    """

    pods_per_second: float
    running_seconds: float
    p50_milliseconds: float
    p99_milliseconds: float


class PodsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        ratio: Guarded to unguarded rate of creation: the median over the rounds.
        running_ratio: Unguarded to guarded time until all pods ran: the median over the rounds; 1 is as fast.
        tenants: How many namespaces there were on each side.
        pods: How many pods there were on each side.
        rounds: How many rounds there were.
        quota: Whether the tenants had a quota.
        guarded: The side of tenants' namespaces.
        unguarded: The side of other namespaces.
        policies: What each policy costs, most expensive first; null if that was not measured.
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


class PodsLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load to produce.

    Args:
        tenants: How many namespaces on each side.
        pods: How many pods on each side.
        rounds: How many times each side is measured.
        quota: The tenants have a quota, which Kubernetes updates with every pod.
        each_policy: Measure each policy, too.
    """

    tenants: int
    pods: int
    rounds: int
    quota: bool
    each_policy: bool


async def pods(client: Client, load: PodsLoad, progress: Progress) -> PodsResult:
    """Run the benchmark and clean up after it.

    Args:
        client: The client of an administrator who may impersonate, with `load.POOL` connections.
        load: The load to produce.
        progress: Receives a line after each step.

    Raises:
        InputError: The cluster's nodes have no room for so many pods.
        RetryableError: A step takes too long.
    """
    await require_room(client, load.pods)
    run = new_run()
    user = f"bench-{run}"
    guarded = [f"bench-{run}-{number}" for number in range(load.tenants)]
    free = [f"bench-free-{run}-{number}" for number in range(load.tenants)]
    rounds: list[tuple[PodsSide, PodsSide]] = []
    found: list[PolicyCost] | None = None
    rules = msgspec.convert(RULES, Rules)
    tenants = [new_tenant(name, run, user=user, quota=QUOTA if load.quota else {}) for name in guarded]
    replace = msgspec.structs.replace
    try:
        await create_tenants(client, [replace(each, spec=replace(each.spec, rules=rules)) for each in tenants])
        await saturate(lambda name: _create_namespace(client, run, user, name), free)
        level = await uid(client, PriorityLevelConfiguration.resource, LEVEL)
        async with routed(client, guarded[0], (user,), LEVEL), _as_user(client.connection, user) as author:
            await served_at(author, wire.path(PODS, guarded[0]), level)
            await _admitted(author, (*guarded, *free))
            for number in range(1, load.rounds + 1):
                sides = (guarded, free) if number % 2 else (free, guarded)
                made = [await _side(client, author, f"{run}-{number}", names, load.pods) for names in sides]
                one, other = made if number % 2 else made[::-1]
                rounds.append((one, other))
                rates = f"{one.pods_per_second:.0f}/s guarded, {other.pods_per_second:.0f}/s not"
                progress(f"{number}/{load.rounds}: {load.pods} pods at {rates}")
            if load.each_policy:
                bodies = [(wire.path(PODS, name), pod(f"cost-{name}", name, run)) for name in guarded]
                found = await costs(
                    client, author, tenants=guarded, requests=bodies, count=load.pods, progress=progress
                )
    finally:
        await clean_up(client, run, of_run(run), by_hand=True)
    one, other = (
        PodsSide(
            pods_per_second=median_of(side, lambda each: each.pods_per_second),
            running_seconds=median_of(side, lambda each: each.running_seconds),
            p50_milliseconds=median_of(side, lambda each: each.p50_milliseconds),
            p99_milliseconds=median_of(side, lambda each: each.p99_milliseconds),
        )
        for side in zip(*rounds, strict=True)
    )
    return PodsResult(
        ratio=median_of(rounds, lambda both: both[0].pods_per_second / both[1].pods_per_second),
        running_ratio=median_of(rounds, lambda both: both[1].running_seconds / both[0].running_seconds),
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


async def _side(client: Client, author: Client, batch: str, names: Sequence[str], count: int) -> PodsSide:
    """Create pods, wait until they run, and delete them."""
    paced = await _paced(client, author, batch, names, min(count, PACED))
    # A new name in each round: kwok may miss a pod that is created again right after its deletion.
    pods = [(f"p-{batch}-{number}", names[number % len(names)]) for number in range(count)]
    requests = [(wire.path(PODS, namespace), pod(name, namespace, batch)) for name, namespace in pods]
    keys = {f"{namespace}/{name}" for name, namespace in pods}
    selectors = {**of_run(batch), "fieldSelector": "status.phase=Running"}
    began = time.perf_counter()
    running = first_seen(client, Pod, keys, lambda _: True, selectors, "running", RUN_SECONDS)
    async with in_background(running) as waiting:
        seconds = await saturate(lambda each: author.request("POST", each[0], body=each[1]), requests)
        took = max((await waiting).values()) - began
    await remove_pods(client, names)
    return PodsSide(
        pods_per_second=count / seconds,
        running_seconds=took,
        p50_milliseconds=percentile(paced, 0.5),
        p99_milliseconds=percentile(paced, 0.99),
    )


async def _paced(client: Client, author: Client, batch: str, names: Sequence[str], count: int) -> list[float]:
    """Create pods one after another, delete them, and return how many milliseconds the creation of each took."""
    found: list[float] = []
    for number in range(count):
        namespace = names[number % len(names)]
        body = pod(f"paced-{batch}-{number}", namespace, f"{batch}-paced")
        began = time.perf_counter()
        await author.request("POST", wire.path(PODS, namespace), body=body)
        found.append(1000 * (time.perf_counter() - began))
    await remove_pods(client, names)
    return found


async def remove_pods(client: Client, names: Sequence[str]) -> None:
    """Delete the pods of namespaces, and wait until they are gone.

    Raises:
        RetryableError: They are not in time.
    """
    at_once = asyncio.Semaphore(DELETERS)
    now = msgspec.json.encode({"gracePeriodSeconds": 0})

    async def empty(name: str) -> None:
        async with at_once:
            path = wire.path(PODS, name)
            while True:
                with contextlib.suppress(Unreachable):  # deleting a collection may take longer than a request may
                    await client.request("DELETE", path, body=now)
                if not msgspec.json.decode(await client.request("GET", path, query={"limit": "1"}))["items"]:
                    return
                await asyncio.sleep(POLL_SECONDS)  # a watch of each namespace would cost more

    async with deadline(GONE_SECONDS, "pods of the benchmark are still there"):
        await all_of(empty(name) for name in names)


# -- namespaces, and the user ---------------------------------------------------------------------


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


async def require_room(client: Client, count: int) -> None:
    """Check that the nodes have room for the pods.

    Raises:
        InputError: They do not; names the room that they have.
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
            f"--pods {count} are more than fit: {nodes} nodes have room for {max(room, 0)}; on a local cluster"
            f" `tenantry up --nodes {-(-count // 100)}` makes enough"
        )


async def _create_namespace(client: Client, run: str, user: str, name: str) -> None:
    await post(client, Namespace.resource, {"metadata": {"name": name, "labels": {RUN_LABEL: run}}})
    subject = {"kind": "User", "name": user, "apiGroup": RBAC_GROUP}
    role = {"kind": "ClusterRole", "name": "edit", "apiGroup": RBAC_GROUP}
    binding = {"metadata": {"name": "bench", "namespace": name}, "roleRef": role, "subjects": [subject]}
    await post(client, RoleBinding.resource, binding)


@asynccontextmanager
async def _as_user(connection: Connection, user: str) -> AsyncGenerator[Client]:
    """Yield a client that impersonates the user who owns all namespaces."""
    person = msgspec.structs.replace(connection, impersonate=user, impersonate_groups=("system:authenticated",))
    async with Client(person, field_manager="tenantry-bench", max_connections=POOL) as client:
        yield client


async def _admitted(author: Client, names: Sequence[str]) -> None:
    """Wait until each namespace admits a pod: the service account, rights and rules follow the namespace.

    Raises:
        RetryableError: A namespace does not; has the last refusal as a note.
    """
    why: dict[str, str] = {}

    async def one(name: str) -> None:
        body = pod("bench-first", name, "first")
        while True:
            try:
                await author.request("POST", wire.path(PODS, name), query={"dryRun": "All"}, body=body)
            except ApiError as error:
                why[name] = str(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                why.pop(name, None)
                return

    async with _explained(why), deadline(ADMITTED_SECONDS, "pods are refused"):
        await all_of(one(name) for name in names)


@asynccontextmanager
async def _explained(why: dict[str, str]) -> AsyncGenerator[None]:
    try:
        yield
    except Exception as error:
        if why:
            error.add_note(next(iter(why.values())))
        raise
