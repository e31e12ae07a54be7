"""Children are made, grown and deleted by many at once while the operator is killed: no sum is ever too large."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import ApiError, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.quota.index import share_quota, share_request, tree_namespace
from tenantry.engine.observed import ObservedQuota, observe
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.world.shares.amounts import read
from testkit.api import SECRETS, Api
from testkit.ledger import End, Ledger
from testkit.operators import Operator, running

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
SECONDS = float(os.environ.get("CHAOS_SECONDS", "10"))
WRITERS = 50
MOST = 60
"""How many Subnamespaces there are at once."""
SETTLE_SECONDS = 180.0
LEAST = 2
"""How often each does what it does, however slow the machine is."""
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ADA: Json = {"kind": "User", "name": "ada"}
WHOLE: Json = {"cpu": 40, "memory": "64Gi", "count/secrets": 60}


class Writer:
    """One person who keeps changing the tree."""

    def __init__(self, api: Api, tenant: str, chance: random.Random, children: dict[str, tuple[str, str]]) -> None:
        self._api = api
        self._tenant = tenant
        self._chance = chance
        self._children = children
        self.done = 0

    async def run(self, end: float) -> None:
        """Change the tree until time is up."""
        verbs: list[Callable[[], Coroutine[Any, Any, object]]] = [
            self._make,
            self._make,
            self._resize,
            self._resize,
            self._delete,
            self._use,
            self._free,
            self._change_whole,
        ]
        while time.monotonic() < end or self.done < LEAST:
            try:
                await self._chance.choices(verbs, weights=[4, 4, 6, 6, 3, 3, 2, 0.3])[0]()
                self.done += 1
            except ApiError:
                await asyncio.sleep(0.02)  # refused, gone, or changed by another client

    def _hard(self) -> Json:
        chance = self._chance
        hard: Json = {"cpu": chance.randint(0, 8), "memory": f"{chance.randint(0, 12)}Gi"}
        return {**hard, "count/secrets": chance.randint(0, 9)} if chance.random() < 0.7 else hard

    async def _namespace(self) -> str:
        if not self._children or self._chance.random() < 0.3:
            return self._tenant
        parent, name = self._chance.choice(list(self._children.values()))
        live = await self._api.get(Subnamespace.resource, name, parent)
        return live.get("status", {}).get("namespace") or self._tenant

    async def _make(self) -> None:
        if len(self._children) >= MOST:
            return
        parent, name = await self._namespace(), f"n{self._chance.randint(0, 30)}"
        spec: Json = {"mode": "Workspace", "owners": [ADA], "quota": {"hard": self._hard()}}
        made = await self._api.create(Subnamespace.resource, {"metadata": {"name": name}, "spec": spec}, parent)
        self._children[made["metadata"]["uid"]] = (parent, name)

    async def _resize(self) -> None:
        if self._children:
            parent, name = self._chance.choice(list(self._children.values()))
            patch = {"spec": {"quota": {"hard": {"count/secrets": None, **self._hard()}}}}
            await self._api.patch(Subnamespace.resource, name, patch, parent)

    async def _delete(self) -> None:
        if self._children:
            uid, (parent, name) = self._chance.choice(list(self._children.items()))
            try:
                await self._api.patch(Subnamespace.resource, name, {"spec": {"allowCascadingDeletion": True}}, parent)
                await self._api.client.delete(Subnamespace.resource, parent, name, uid=uid)
            finally:
                self._children.pop(uid, None)

    async def _use(self) -> None:
        name = f"s{self._chance.randint(0, 99)}"
        await self._api.create(SECRETS, {"metadata": {"name": name}}, await self._namespace())

    async def _free(self) -> None:
        namespace = await self._namespace()
        for secret in (await self._api.list(SECRETS, namespace))[:2]:
            await self._api.delete(SECRETS, secret["metadata"]["name"], namespace)

    async def _change_whole(self) -> None:
        hard = {"cpu": self._chance.randint(20, 60), "count/secrets": self._chance.randint(30, 80)}
        await self._api.patch(Tenant.resource, self._tenant, {"spec": {"quota": {"hard": hard}}})


async def _disturb(api: Api, operators: list[Operator], chance: random.Random, end: float) -> int:
    """Kill an operator every few seconds, or pause it in the middle of its work; return how often.

    The lease goes each time: another one leads at once, and the one that was paused goes on beside it for a while.
    """
    times = 0
    while (left := end - time.monotonic()) > 0 or times < LEAST:
        await asyncio.sleep(min(max(0.0, left), chance.uniform(0.5, 4.0)))  # it is hit wherever it is then
        operator = chance.choice(operators)
        if chance.random() < 0.5:
            await operator.kill()
            await operator.start()
        else:
            operator.pause()
        await api.delete(LEASES, "tenantry-operator", "tenantry-system")
        await asyncio.sleep(min(max(0.0, end - time.monotonic()), chance.uniform(0.1, 2.5)))
        operator.go_on()
        times += 1
    return times


async def _end(api: Api, name: str) -> tuple[End, list[str]]:
    """Return the tree as it is, and what is still going on."""
    tenant = await api.tenant(name)
    namespaces = {
        found.name: found
        for value in await api.list(Namespace.resource)
        if (found := observe(Namespace.resource, msgspec.json.encode(value)))
        and (found := tree_namespace(found, tenant)) is not None
    }
    quotas = {
        found.namespace: share_quota(found)
        for value in await api.list(ResourceQuota.resource)
        if isinstance(found := observe(ResourceQuota.resource, msgspec.json.encode(value)), ObservedQuota)
        and found.name == "tenantry-quota"
        and found.namespace in namespaces
    }
    data = await api.client.request("GET", wire.path(Subnamespace.resource))
    found_children = msgspec.json.decode(data, type=wire.Page[Subnamespace]).items
    children = [share_request(found) for found in found_children if found.metadata.namespace in namespaces]
    try:
        tenant_quota = await api.client.get(TenantResourceQuota, name)
    except NotFound:
        return End({}, {}, {}, {}, ()), ["no TenantResourceQuota"]
    going = [f"{child.parent}/{child.name} goes" for child in children if child.deleting]
    going += [f"{found.name} goes" for found in namespaces.values() if found.terminating]
    adjusted = {key: int(value) for key, value in read(dict(_normal(tenant))).items()}
    return End(adjusted, read(tenant_quota.status.hard), namespaces, quotas, children), going


def _normal(tenant: Tenant) -> dict[str, str | int]:
    long = {"cpu": "requests.cpu", "memory": "requests.memory"}
    return {long.get(key, key): value for key, value in tenant.spec.quota.hard.items()}


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * SECONDS + SETTLE_SECONDS)
async def test_no_sum_is_ever_more_than_the_whole(
    api: Api, operator: Operator, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E09: at every resourceVersion, read by an auditor of its own; and the end is exactly what the specs say."""
    print(f"CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    await api.make_tenant(name, quota={"hard": WHOLE})
    children: dict[str, tuple[str, str]] = {}
    writers = [Writer(api, name, random.Random(chance.random()), children) for _ in range(WRITERS)]
    async with (
        running(tenancy.paths.kubeconfig("operator"), tmp_path / "log") as other,
        Client(kubeconfig.load([tenancy.kubeconfig_path])) as client,
        Ledger(client).watching() as ledger,
    ):
        end = time.monotonic() + SECONDS
        disturbing = _disturb(api, [operator, other], chance, end)
        hits, *_ = await asyncio.gather(disturbing, *(writer.run(end) for writer in writers))
        wrong = await _settled(api, name)
        await ledger.catch_up(api)
    breaches = ledger.breaches()
    done = sum(writer.done for writer in writers)
    print(f"{done} changes, {hits} times disturbed, {ledger.checked} states checked", *wrong, sep="\n")
    assert breaches == []
    assert wrong == []
    assert hits is not None
    assert hits > 1
    assert ledger.checked > 50
    assert done > WRITERS


async def _settled(api: Api, name: str) -> list[str]:
    """Wait until the tree is at rest and exact; return what is wrong with it if it never is."""
    until = time.monotonic() + SETTLE_SECONDS
    wrong = ["never looked at"]
    while wrong and time.monotonic() < until:
        await asyncio.sleep(0.5)
        end, going = await _end(api, name)
        wrong = going or end.inexact()
    return wrong and [*wrong, *[_told(value) for value in await api.list(Subnamespace.resource, name)]]


def _told(value: Json) -> str:
    return f"{value['metadata']['name']}: {value['metadata']['uid']} {value.get('status')}"
