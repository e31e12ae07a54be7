"""How fast a tenant's tree of namespaces is made, beside how fast the very same objects can be written alone.

round:  operator leads ─► POST N Subnamespaces, each as soon as its parent is there ─► all Ready with what they inherit
        ─► change a Secret, wait until all have it ─► delete the tenant, wait until all are gone
        we hold its lease ─► POST what the operator had made ourselves ─► delete, wait until gone
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.load import CONNECTIONS, READY_SECONDS, RUN_LABEL, saturate
from tenantry.bench.objects import (
    CONFIG_MAPS,
    ROLES,
    SECRETS,
    Json,
    clean_up,
    collect,
    deadline,
    events,
    of_tenant,
    post,
    prepared,
)
from tenantry.bench.probe import Probe, Usage
from tenantry.controllers.tenant.desired import children
from tenantry.engine.conditions import is_true
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType
from tenantry.world.naming import child_name

Talk = Callable[[str], None]

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
"""What can be inherited: its kind, its field in `spec.inheritance`, and what is in it."""

CHANGED = "dHdv"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for.

    Args:
        namespaces: How many below the core namespace.
        depth: How many levels.
        fanout: How many children each has, where there is more than one level.
        inherit: Keys of `SOURCES`.
        quota: The tenant has one, and every child a share.
    """

    namespaces: int
    depth: int
    fanout: int
    inherit: tuple[str, ...]
    quota: bool = False


class TreeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; seconds, medians over the rounds.

    Args:
        namespaces: How many were asked for.
        depth: How many levels there were.
        fanout: How many children each had.
        tree_seconds: From the first POST until every Subnamespace was Ready with everything that it inherits.
        raw_seconds: To write the same objects with no operator.
        ratio: raw_seconds / tree_seconds; 1 is as fast as writing itself.
        objects: How many the tree is made of, the Subnamespaces included.
        operator_cpu_seconds: What the operator's process used for the tree; null where its metrics cannot be read.
        operator_rss_mib: Its largest resident memory afterwards; null likewise.
        change_seconds: From the change of an inherited Secret until every child had it; null where none is inherited.
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
    usage: Usage | None
    change_seconds: float | None
    deleted_seconds: float
    objects: list[Json]


async def tree(client: Client, *, shape: Shape, rounds: int, probe: Probe | None, talk: Talk) -> TreeResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's, with `load.CONNECTIONS` connections.
        shape: What is asked for.
        rounds: How many times each side is measured.
        probe: Reads the operator's CPU and memory; None where its metrics cannot be reached.
        talk: Told what happens, for a person.

    Raises:
        InputError: So many do not fit into a tree of that shape.
        RetryableError: They do not become ready, or do not go away, in time.
    """
    places = plan(shape)
    name = f"bench-{int(time.time()):x}"
    done: list[_Round] = []
    raw: list[float] = []
    try:
        for number in range(1, rounds + 1):
            await leading_operator(client)
            made = await _round(client, name, shape, places, probe)
            done.append(made)
            change = "" if made.change_seconds is None else f", a change in {made.change_seconds:.2f} s"
            talk(
                f"{number}/{rounds}: {shape.namespaces} Ready in {made.seconds:.2f} s{change},"
                f" gone in {made.deleted_seconds:.1f} s"
            )
            async with held_operator(client):
                raw.append(await _write_alone(client, name, shape, made.objects))
                await clean_up(client, name, everything=True)
            talk(f"{number}/{rounds}: the same {len(made.objects)} objects written alone in {raw[-1]:.2f} s")
    finally:
        await asyncio.shield(clean_up(client, name, everything=True))
    tree_seconds, raw_seconds = statistics.median(each.seconds for each in done), statistics.median(raw)
    usages = [each.usage for each in done if each.usage is not None]
    changes = [each.change_seconds for each in done if each.change_seconds is not None]
    return TreeResult(
        namespaces=shape.namespaces,
        depth=shape.depth,
        fanout=shape.fanout,
        tree_seconds=round(tree_seconds, 3),
        raw_seconds=round(raw_seconds, 3),
        ratio=round(raw_seconds / tree_seconds, 3),
        objects=len(done[0].objects),
        operator_cpu_seconds=round(statistics.median(each.cpu_seconds for each in usages), 3) if usages else None,
        operator_rss_mib=round(max(each.rss_mib for each in usages), 1) if usages else None,
        change_seconds=round(statistics.median(changes), 3) if changes else None,
        deleted_seconds=round(statistics.median(each.deleted_seconds for each in done), 1),
    )


def plan(shape: Shape) -> list[list[int]]:
    """Return who is below whom: children of each by number; the core namespace is 0, the others count from 1.

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


async def _round(client: Client, name: str, shape: Shape, places: list[list[int]], probe: Probe | None) -> _Round:
    uid = await _make_tenant(client, name, shape)
    for key in shape.inherit:
        resource, _, body = SOURCES[key]
        await post(client, resource, {"metadata": {"name": "bench", "namespace": name}, **body})
    before = await probe.read() if probe is not None else None
    seconds = await _Asking(client, name, uid, shape, places).run()
    after = await probe.read() if probe is not None else None
    objects = await collect(client, name)
    change = await _change(client, name, shape) if "secret" in shape.inherit else None
    return _Round(
        seconds=seconds,
        usage=after.since(before) if before is not None and after is not None else None,
        change_seconds=change,
        deleted_seconds=await clean_up(client, name, everything=False),
        objects=objects,
    )


def _tenant(name: str, shape: Shape) -> Tenant:
    hard: dict[str, int | str] = {"pods": str(10 * shape.namespaces)} if shape.quota else {}
    owners = (Owner(kind=OwnerKind.USER, name="bench"),)
    spec = TenantSpec(owners=owners, quota=TenantQuota(hard=hard))
    return Tenant(metadata=ObjectMeta(name=name, labels={RUN_LABEL: name}), spec=spec)


async def _make_tenant(client: Client, name: str, shape: Shape) -> str:
    """Make the tenant, wait until it is ready, and return its uid."""
    await client.create(_tenant(name, shape))
    async with deadline(READY_SECONDS, "the benchmark's tenant is not Ready"):
        only = {"fieldSelector": f"metadata.name={name}"}
        async with aclosing(events(client, Tenant.resource, only)) as seen:
            async for _, body in seen:
                if not body:
                    continue
                tenant = client.decode(Tenant, body)
                if is_true(tenant.status.conditions, reasons.READY):
                    return tenant.metadata.uid
    raise AssertionError("the events do not end")


class _Asking:
    """One tree, asked for from the top down: a child as soon as the namespace of its parent is there.

    Args:
        client: An administrator's.
        name: The tenant.
        uid: The tenant's uid, from which the names of all namespaces follow.
        shape: What is asked for.
        places: See `plan`.
    """

    def __init__(self, client: Client, name: str, uid: str, shape: Shape, places: list[list[int]]) -> None:
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
        """Return the seconds from the first POST until all of it is there."""
        waiting = asyncio.create_task(self._ready())
        others = [asyncio.create_task(self._post()) for _ in range(CONNECTIONS)]
        if self._shape.depth > 1:
            others.append(asyncio.create_task(self._look()))
        began = time.perf_counter()
        self._is_there(0)
        try:
            async with deadline(READY_SECONDS, f"not all Subnamespaces of the tenant {self._name!r} are Ready"):
                # Only an error ends one of the others.
                done, _ = await asyncio.wait([waiting, *others], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            return time.perf_counter() - began
        finally:
            for task in (waiting, *others):
                task.cancel()
            await asyncio.gather(waiting, *others, return_exceptions=True)

    def _is_there(self, number: int) -> None:
        for child in self._places[number]:
            self._queue.put_nowait((number, child))

    async def _post(self) -> None:
        while True:
            parent, child = await self._queue.get()
            await self._client.create(self._subnamespace(self._names[parent], child))

    def _subnamespace(self, parent: str, number: int) -> Subnamespace:
        """Return a Subnamespace; its share is enough for everything below it."""
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

    async def _look(self) -> None:
        """See namespaces come, and ask for their children."""
        numbers = {namespace: number for number, namespace in self._names.items() if number}
        async with aclosing(events(self._client, Namespace.resource, of_tenant(self._name))) as seen:
            async for _, body in seen:
                number = numbers.pop(self._client.decode(Namespace, body).metadata.name, 0) if body else 0
                if number:
                    self._is_there(number)

    async def _ready(self) -> None:
        left = set(range(1, len(self._places)))
        wanted = (reasons.READY, reasons.INHERITED) if self._shape.inherit else (reasons.READY,)
        mine = {"labelSelector": f"{RUN_LABEL}={self._name}"}
        async with aclosing(events(self._client, Subnamespace.resource, mine)) as seen:
            async for _, body in seen:
                if not body:
                    continue
                found = self._client.decode(Subnamespace, body)
                if all(is_true(found.status.conditions, each) for each in wanted):
                    left.discard(int(found.metadata.name[1:]))
                if not left:
                    return


async def _change(client: Client, name: str, shape: Shape) -> float:
    """Change the inherited Secret, and return the seconds until every child has it."""
    there: set[str] = set()
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
                there.add(found["metadata"]["namespace"])
            if len(there) == shape.namespaces:
                break
        return time.perf_counter() - began


async def _write_alone(client: Client, name: str, shape: Shape, objects: Sequence[Json]) -> float:
    """Write the tree's objects as fast as the client can, and return the seconds spent writing."""
    tenant = client.decode(Tenant, await client.create(_tenant(name, shape)))
    core = next(child.object for child in children(tenant, "") if isinstance(child.object, Namespace))
    await client.create(core)
    seconds = 0.0
    for namespaces in (True, False):
        requests = prepared(value for value in objects if (value["kind"] == "Namespace") is namespaces)
        began = time.perf_counter()
        await saturate(lambda each: client.request("POST", each[0], body=each[1]), requests)
        seconds += time.perf_counter() - began
    return seconds
