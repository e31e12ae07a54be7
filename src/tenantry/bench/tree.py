"""How fast a tenant's tree of namespaces is established, beside how fast the same objects can be written alone.

round:  operator leads ─► POST N Subnamespaces, each once its parent namespace exists ─► all Ready with their copies
        ─► change a Secret, wait until all have it ─► delete the tenant, wait until all are gone
        we hold its lease ─► POST what the operator had created ourselves ─► delete, wait until gone
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.bench.figures import median, median_of
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.load import (
    CONNECTIONS,
    READY_SECONDS,
    RUN_LABEL,
    Json,
    Progress,
    clean_up,
    create_tenants,
    deadline,
    events,
    first_seen,
    new_run,
    new_tenant,
    of_run,
    of_tenant,
    post,
    saturate,
)
from tenantry.bench.objects import CONFIG_MAPS, ROLES, SECRETS, collect, posts
from tenantry.bench.probe import OperatorMetrics, ProcessUsage, measured
from tenantry.controllers.tenant.desired import children
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import first_error
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType
from tenantry.world.naming import child_name

SOURCES: Mapping[str, tuple[Resource, str, Json]] = {
    "role": (ROLES, "roles", {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
    "rolebinding": (
        RoleBinding.resource,
        "roleBindings",
        {
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "bench"},
            "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": "bench-reader"}],
        },
    ),
    "secret": (SECRETS, "secrets", {"type": "Opaque", "data": {"password": "b25l"}}),
    "configmap": (CONFIG_MAPS, "configMaps", {"data": {"setting": "one"}}),
}
"""What can be inherited: its kind, its field in `spec.inheritance`, and its content."""

CHANGED = "dHdv"


class TreeShape(msgspec.Struct, frozen=True, kw_only=True):
    """The tree to create.

    Args:
        namespaces: How many below the core namespace.
        depth: How many levels.
        fanout: How many children each has, if there is more than one level.
        inherit: Keys of `SOURCES`.
        quota: The tenant has a quota, and every child a share of it.
    """

    namespaces: int
    depth: int
    fanout: int
    inherit: tuple[str, ...]
    quota: bool = False


class TreeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result: seconds are medians over the rounds.

    Args:
        namespaces: How many were created.
        depth: How many levels there were.
        fanout: How many children each had.
        tree_seconds: From the first POST until every Subnamespace was Ready with everything that it inherits.
        raw_seconds: To write the same objects without an operator.
        ratio: raw_seconds / tree_seconds; 1 is as fast as writing alone.
        objects: How many objects the tree consists of, the Subnamespaces included.
        operator_cpu_seconds: CPU time of the operator for the tree; null if its metrics cannot be read.
        operator_rss_mib: The operator's largest resident memory afterwards; null if it cannot be read.
        change_seconds: From the change of an inherited Secret until every child had it; null if none is inherited.
        deleted_seconds: From the Tenant's DELETE until the last namespace was gone.
    """

    namespaces: int
    depth: int
    fanout: int
    tree_seconds: float
    raw_seconds: float
    ratio: float
    objects: int
    operator_cpu_seconds: float | None
    operator_rss_mib: float | None
    change_seconds: float | None
    deleted_seconds: float


class _Round(msgspec.Struct, frozen=True):
    seconds: float
    usage: ProcessUsage | None
    change_seconds: float | None
    deleted_seconds: float
    objects: list[Json]


async def tree(
    client: Client, *, shape: TreeShape, rounds: int, metrics: OperatorMetrics | None, progress: Progress
) -> TreeResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client, with `load.POOL` connections.
        shape: The tree to create.
        rounds: How many times each side is measured.
        metrics: The operator's metrics; None if they cannot be read.
        progress: Receives a line after each step.

    Raises:
        InputError: So many namespaces do not fit into a tree of that shape.
        RetryableError: They are not Ready, or not gone, in time.
    """
    places = plan(shape)
    name = f"bench-{new_run()}"
    done: list[_Round] = []
    raw: list[float] = []
    try:
        for number in range(1, rounds + 1):
            await leading_operator(client)
            one = await _round(client, name, shape, places, metrics)
            done.append(one)
            change = "" if one.change_seconds is None else f", a change in {one.change_seconds:.2f} s"
            progress(
                f"{number}/{rounds}: {shape.namespaces} Ready in {one.seconds:.2f} s{change},"
                f" gone in {one.deleted_seconds:.1f} s"
            )
            async with held_operator(client):
                raw.append(await _write_alone(client, name, shape, one.objects))
                await clean_up(client, name, of_tenant(name), by_hand=True)
            progress(f"{number}/{rounds}: the same {len(one.objects)} objects written alone in {raw[-1]:.2f} s")
    finally:
        await clean_up(client, name, of_tenant(name), by_hand=True)
    seconds, raw_seconds = median_of(done, lambda each: each.seconds, 9), median(raw, 9)
    usages = [each.usage for each in done if each.usage is not None]
    changes = [each.change_seconds for each in done if each.change_seconds is not None]
    return TreeResult(
        namespaces=shape.namespaces,
        depth=shape.depth,
        fanout=shape.fanout,
        tree_seconds=round(seconds, 3),
        raw_seconds=round(raw_seconds, 3),
        ratio=round(raw_seconds / seconds, 3),
        objects=len(done[0].objects),
        operator_cpu_seconds=median_of(usages, lambda each: each.cpu_seconds) if usages else None,
        operator_rss_mib=round(max(each.rss_mib for each in usages), 1) if usages else None,
        change_seconds=median(changes) if changes else None,
        deleted_seconds=median_of(done, lambda each: each.deleted_seconds, 1),
    )


def plan(shape: TreeShape) -> list[list[int]]:
    """Return the children of each namespace by number; the core namespace is 0, the others count from 1.

    Raises:
        InputError: So many do not fit.
    """
    children: list[list[int]] = [[] for _ in range(shape.namespaces + 1)]
    level, number = [0], 1
    for _ in range(shape.depth):
        below: list[int] = []
        for parent in level:
            many = shape.namespaces if shape.depth == 1 else shape.fanout
            inner = list(range(number, min(number + many, shape.namespaces + 1)))
            children[parent] = inner
            below += inner
            number += len(inner)
        level = below
    if number <= shape.namespaces:
        raise InputError(
            f"{shape.namespaces} namespaces do not fit into {shape.depth} levels of {shape.fanout} each: at most"
            f" {number - 1} do; give a larger --depth or --fanout"
        )
    return children


# -- with the operator ----------------------------------------------------------------------------


async def _round(
    client: Client, name: str, shape: TreeShape, places: list[list[int]], metrics: OperatorMetrics | None
) -> _Round:
    await create_tenants(client, [_tenant(name, shape)])
    uid = (await client.get(Tenant, name)).metadata.uid
    for key in shape.inherit:
        resource, _, body = SOURCES[key]
        await post(client, resource, {"metadata": {"name": "bench", "namespace": name}, **body})
    seconds, usage = await measured(metrics, _Creation(client, name, uid, shape, places).run())
    objects = await collect(client, name)
    return _Round(
        seconds=seconds,
        usage=usage,
        change_seconds=await _change(client, name, shape) if "secret" in shape.inherit else None,
        deleted_seconds=await clean_up(client, name, of_tenant(name)),
        objects=objects,
    )


def _tenant(name: str, shape: TreeShape) -> Tenant:
    quota = {"pods": str(10 * shape.namespaces)} if shape.quota else {}
    return new_tenant(name, name, quota=quota, max_count=shape.namespaces, max_depth=shape.depth)


class _Creation:
    """Creates one tree from the top down: a child as soon as the namespace of its parent exists.

    Args:
        client: An administrator's client.
        name: The tenant.
        uid: The tenant's uid, which the names of all namespaces are derived from.
        shape: The tree to create.
        places: See `plan`.
    """

    def __init__(self, client: Client, name: str, uid: str, shape: TreeShape, places: list[list[int]]) -> None:
        self._client = client
        self._name = name
        self._shape = shape
        self._places = places
        self._names = {0: name}
        for number, inner in enumerate(places):  # parents have smaller numbers than their children
            self._names |= {child: child_name(uid, self._names[number], f"n{child}") for child in inner}
        self._weight = [1] * len(places)
        for number in range(len(places) - 1, -1, -1):
            self._weight[number] += sum(self._weight[inner] for inner in places[number])
        self._queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def run(self) -> float:
        """Return the seconds from the first POST until the whole tree is Ready."""
        began = time.perf_counter()
        self._ask_below(0)
        with first_error():
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(self._post()) for _ in range(CONNECTIONS)]
                if self._shape.depth > 1:
                    others.append(group.create_task(self._follow_namespaces()))
                await self._all_ready()
                took = time.perf_counter() - began
                for task in others:
                    task.cancel()
        return took

    def _ask_below(self, number: int) -> None:
        for child in self._places[number]:
            self._queue.put_nowait((number, child))

    async def _post(self) -> None:
        while True:
            parent, child = await self._queue.get()
            await self._client.create(self._subnamespace(self._names[parent], child))

    def _subnamespace(self, parent: str, number: int) -> Subnamespace:
        """Return a Subnamespace whose share is enough for everything below it."""
        shape = self._shape
        inheritance = {SOURCES[key][1]: InheritanceMode.SYNC for key in shape.inherit}
        spec = SubnamespaceSpec(
            mode=Mode.WORKSPACE,
            owners=() if "rolebinding" in shape.inherit else (Owner(kind=OwnerKind.USER, name="bench"),),
            inheritance=msgspec.convert(inheritance, Inheritance),
            quota=Quota(hard={"pods": str(self._weight[number])}) if shape.quota else Quota(),
        )
        metadata = ObjectMeta(name=f"n{number}", namespace=parent, labels={RUN_LABEL: self._name})
        return Subnamespace(metadata=metadata, spec=spec)

    async def _follow_namespaces(self) -> None:
        """Ask for the children of each namespace once it exists."""
        numbers = {namespace: number for number, namespace in self._names.items() if number}
        async with aclosing(events(self._client, Namespace.resource, of_tenant(self._name))) as seen:
            async for _, body in seen:
                number = numbers.pop(self._client.decode(Namespace, body).metadata.name, 0) if body else 0
                if number:
                    self._ask_below(number)

    async def _all_ready(self) -> None:
        keys = {f"{self._names[parent]}/n{child}" for parent, inner in enumerate(self._places) for child in inner}
        wanted = (reasons.READY, reasons.INHERITED) if self._shape.inherit else (reasons.READY,)

        def holds(found: Subnamespace) -> bool:
            return all(is_true(found.status.conditions, each) for each in wanted)

        await first_seen(self._client, Subnamespace, keys, holds, of_run(self._name), "Ready", READY_SECONDS)


async def _change(client: Client, name: str, shape: TreeShape) -> float:
    """Change the inherited Secret, and return the seconds until every child has it."""
    changed: set[str] = set()
    async with (
        deadline(READY_SECONDS, "a changed Secret has not reached every child"),
        aclosing(events(client, SECRETS, of_tenant(name))) as seen,
    ):
        began = 0.0
        async for type_, body in seen:
            if type_ is EventType.BOOKMARK and not began:
                began = time.perf_counter()
                await client.merge_patch(SECRETS, name, "bench", {"data": {"password": CHANGED}})
            if not body:
                continue
            found = msgspec.json.decode(body)
            if found["metadata"]["name"] == "bench" and found.get("data") == {"password": CHANGED}:
                changed.add(found["metadata"]["namespace"])
            if len(changed) == shape.namespaces:
                break
        return time.perf_counter() - began


async def _write_alone(client: Client, name: str, shape: TreeShape, objects: Sequence[Json]) -> float:
    """Write the tree's objects as fast as the client can, and return the seconds spent writing."""
    tenant = client.decode(Tenant, await client.create(_tenant(name, shape)))
    core = next(child.object for child in children(tenant, "") if isinstance(child.object, Namespace))
    await client.create(core)
    seconds = 0.0
    for namespaces in (True, False):
        requests = posts(value for value in objects if (value["kind"] == "Namespace") is namespaces)
        seconds += await saturate(lambda each: client.request("POST", each[0], body=each[1]), requests)
    return seconds
