"""Tenants are made, changed, suspended and deleted while the operator and the control plane are killed at random."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, ApiError, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.tenant import Tenant
from tenantry.controllers.tenant.desired import children
from tenantry.engine.conditions import is_true
from tenantry.engine.observed import observe
from tenantry.engine.plan import differences
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.views.drift.state import read_limits
from testkit.api import tenant_json, until

SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
WRITERS = 6
NAMES = [f"chaos-{number}" for number in range(24)]
FOREIGN = ["chaos-3", "chaos-11"]
"""Namespaces of these names exist before any tenant, and belong to no tenant."""
VICTIMS = ["operator", "operator", "kube-apiserver", "kube-controller-manager", "etcd"]


def command(*arguments: str) -> str:
    """Run the user's command."""
    done = subprocess.run(
        [sys.executable, "-m", "tenantry", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"tenantry {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@asynccontextmanager
async def running(name: str) -> AsyncGenerator[LocalCluster]:
    """Run a local cluster with the operator in it, as a user starts it."""
    command("up", "--cluster", name, "--throwaway")
    try:
        yield LocalCluster(name)
    finally:
        command("down", "--cluster", name, "--purge", "--yes")


class Writer:
    """One person who keeps changing tenants, through an API server that comes and goes."""

    def __init__(self, client: Client, chance: random.Random, end: float) -> None:
        self._client = client
        self._chance = chance
        self._end = end
        self.done = 0

    async def run(self) -> None:
        """Change tenants until time is up."""
        verbs: list[Callable[[str], Coroutine[Any, Any, object]]] = [
            self._create,
            self._create,
            self._create,
            self._grow,
            self._suspend,
            self._delete,
        ]
        while time.monotonic() < self._end:
            try:
                await self._chance.choice(verbs)(self._chance.choice(NAMES))
                self.done += 1
            except (NotFound, AlreadyExists):
                continue
            except ApiError:
                await asyncio.sleep(0.2)  # the API server is being restarted: nothing tells when it is back

    async def _create(self, name: str) -> None:
        chance = self._chance
        spec = tenant_json(
            name,
            quota={"hard": {"cpu": chance.randint(1, 9), "memory": f"{chance.randint(1, 9)}Gi"}},
            isolation={"network": chance.choice(["Open", "Baseline", "Isolated"])},
        )
        body = {"apiVersion": Tenant.resource.api_version, "kind": "Tenant", **spec}
        await self._client.request("POST", wire.path(Tenant.resource), body=wire.encode_json(body))

    async def _grow(self, name: str) -> None:
        hard = {"cpu": str(self._chance.randint(10, 99)), "pods": self._chance.choice([None, "5"])}
        await self._client.merge_patch(Tenant.resource, "", name, {"spec": {"quota": {"hard": hard}}})

    async def _suspend(self, name: str) -> None:
        suspended = self._chance.random() < 0.5
        await self._client.merge_patch(Tenant.resource, "", name, {"spec": {"suspended": suspended}})

    async def _delete(self, name: str) -> None:
        await self._client.delete(Tenant.resource, "", name)


async def kill_at_random(cluster: LocalCluster, chance: random.Random, end: float) -> list[str]:
    """SIGKILL one process after the other, while the supervisor restarts them, and return which."""
    killed: list[str] = []
    while time.monotonic() < end - 3:
        await asyncio.sleep(chance.uniform(1.0, 3.0))
        victim = chance.choice(VICTIMS)
        component = cluster.status().component(victim)
        if component is None or not component.pid:
            continue
        try:
            os.kill(component.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.append(victim)
    return killed


async def settled(client: Client) -> bool:
    """Tell whether every tenant's status is about its spec, and whatever was deleted is gone."""
    tenants = {tenant.metadata.name: tenant for tenant in await client.list(Tenant)}
    for name, tenant in tenants.items():
        current = tenant.status.observed_generation == tenant.metadata.generation
        wanted = reasons.STALLED if name in FOREIGN else reasons.READY
        if tenant.metadata.deletion_timestamp or not current or not is_true(tenant.status.conditions, wanted):
            return False
    made = {
        found.metadata.name: found
        for found in await client.list(Namespace, selectors={"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"})
        if found.metadata.name in NAMES
    }
    return set(made) == set(tenants) - set(FOREIGN) and all(
        found.metadata.labels[marks.TENANT_UID] == tenants[name].metadata.uid and not found.metadata.deletion_timestamp
        for name, found in made.items()
    )


async def wrong(client: Client, cluster_uid: str) -> list[str]:
    """Return every object of every tenant that is not exactly as desired."""
    found: list[str] = []
    limits = await read_limits(client, None)
    for tenant in await client.list(Tenant):
        if tenant.metadata.name in FOREIGN:
            continue
        for child in children(tenant, cluster_uid, limits=limits):
            found += [f"{child.object.key}: {path}" for path in await _differences(client, child.object)]
    return found


async def _differences(client: Client, wanted: KubernetesObject) -> tuple[str, ...]:
    path = wire.path(wanted.resource, wanted.metadata.namespace, wanted.metadata.name)
    return differences(wanted, observe(wanted.resource, await client.request("GET", path)))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("tenantry_home")
async def test_the_world_is_right_after_everything_was_killed_at_random() -> None:
    """E01, E02: nothing is made twice, nothing is left over, and what is not ours is not touched."""
    chance = random.Random(SEED)
    print(f"CHAOS_SEED={SEED}")
    async with running("chaos") as cluster, Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        for name in FOREIGN:
            await client.create(Namespace(metadata=ObjectMeta(name=name, labels={"team": "legacy"})))
        before = {name: (await client.get(Namespace, name)).metadata for name in FOREIGN}
        cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
        end = time.monotonic() + SECONDS
        writers = [Writer(client, random.Random(chance.random()), end) for _ in range(WRITERS)]
        killing = asyncio.create_task(kill_at_random(cluster, chance, end))
        await asyncio.gather(*(writer.run() for writer in writers))
        killed = await killing
        everything = ("etcd", "kube-apiserver", "kube-controller-manager", "operator")
        await cluster.wait_ready(*everything, timeout_seconds=120)

        async def so() -> bool:
            try:
                return await settled(client)
            except (ApiError, KeyError):
                return False

        context = f"CHAOS_SEED={SEED}, killed {killed}"
        await until(so, f"every tenant is settled ({context})", seconds=240)
        assert await wrong(client, cluster_uid) == [], context
        after = {name: (await client.get(Namespace, name)).metadata for name in FOREIGN}
        assert {name: (meta.uid, meta.labels) for name, meta in after.items()} == {
            name: (meta.uid, meta.labels) for name, meta in before.items()
        }
        for name in FOREIGN:
            assert [found.key for found in await client.list(RoleBinding, namespace=name)] == []
        assert len(killed) >= SECONDS / 6, killed
        assert sum(writer.done for writer in writers) >= SECONDS / 2, "the writers got nothing done"
        good = sorted({tenant.metadata.name for tenant in await client.list(Tenant)} - set(FOREIGN))
        assert command("diff", "--cluster", "chaos", *good) == ""
