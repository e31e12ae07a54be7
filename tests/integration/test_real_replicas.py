"""Hosted control planes of several processes in PostgreSQL and MariaDB: each sees the writes of the others (H02)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tenantry.api.errors import ApiError, Conflict
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.stores import HostedStore, SqlDriver, StoreKind
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.watch import watch
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import processes
from tenantry.local.state import ComponentState, Phase, read_state
from testkit.api import CONFIG_MAPS, SECONDS, SECRETS, Api, until
from testkit.hosted import running
from testkit.planes import Planes
from testkit.sqlservers import missing, sql_server

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
AT_ONCE, EACH = 8, 25
"""How many clients write at each process, and how many objects each of them writes."""

MOST_WATCHES = 40


def states(cluster: LocalCluster, name: str) -> list[ComponentState]:
    """Return what the supervisor reports of the two processes of a control plane; fewer while they start."""
    state = read_state(cluster.paths)
    found = [state.component(f"hosted@{each}") for each in (name, f"{name}.2")] if state is not None else []
    return [each for each in found if each is not None and each.phase is Phase.READY]


async def both(cluster: LocalCluster, name: str) -> list[ComponentState]:
    """Wait until both processes of a control plane are ready."""

    async def so() -> list[ComponentState]:
        found = states(cluster, name)
        return found if len(found) == 2 else []

    return await until(so, "both processes are ready", seconds=3 * SECONDS)


@asynccontextmanager
async def each_process(cluster: LocalCluster, name: str, public: Connection) -> AsyncGenerator[list[Api]]:
    """Clients of the two processes, past the endpoint proxy."""
    ports = [each.port for each in processes(cluster.paths) if each.name in (f"hosted@{name}", f"hosted@{name}.2")]
    found = [structs.replace(public, server=f"https://127.0.0.1:{port}", files=(), reload=None) for port in ports]
    async with Client(found[0]) as first, Client(found[1]) as second:
        yield [Api(first), Api(second)]


async def listed(inside: Api, namespace: str) -> tuple[int, set[str]]:
    """Return the resourceVersion of a list, and the names in it."""
    found = msgspec.json.decode(await inside.client.request("GET", wire.path(CONFIG_MAPS, namespace)))
    return int(found["metadata"]["resourceVersion"]), {each["metadata"]["name"] for each in found["items"]}


async def seen(inside: Api, since: int, wanted: set[str]) -> None:
    """Watch from a resourceVersion until all wanted objects were added."""
    missing_ones = set(wanted)
    async for batch in watch(inside.client, CONFIG_MAPS, resource_version=str(since), namespace="default"):
        for event in batch:
            missing_ones.discard(msgspec.json.decode(event.object)["metadata"]["name"])
        if not missing_ones:
            return


async def write(inside: Api, names: list[str]) -> None:
    """Create ConfigMaps, one after the other."""
    for name in names:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")


async def retried(inside: Api, name: str) -> None:
    """Create an object as a client that tries again."""
    while True:
        try:
            await write(inside, [name])
        except Conflict:
            return  # The answer to the first try was lost with its process.
        except ApiError:
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("driver", list(SqlDriver))
async def test_each_process_sees_the_writes_of_the_other(tenancy: LocalCluster, name: str, driver: SqlDriver) -> None:
    """H02: lists at once, watches without a gap; a process may end, and its controllers go on in the other one."""
    if missing(driver):
        pytest.skip(missing(driver))
    with sql_server(driver) as server:
        store = HostedStore(kind=StoreKind.SQL, sql=server.server)
        async with running(tenancy, name, store=store, replicas=2) as (_, _, made), Client(made.connection) as client:
            await Api(client).default_account("default")
            await both(tenancy, name)
            async with each_process(tenancy, name, made.connection) as (first, second):
                for writer, reader in ((first, second), (second, first)):
                    for number in range(10):
                        mark = f"mark-{number}-{writer is first}".lower()
                        stored = await writer.create(CONFIG_MAPS, {"metadata": {"name": mark}}, "default")
                        version, names = await listed(reader, "default")
                        assert mark in names
                        # An empty list is of the same time.
                        empty, _ = await listed(reader, "kube-node-lease")
                        assert min(version, empty) >= int(stored["metadata"]["resourceVersion"])
                        at = {"resourceVersion": stored["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
                        await reader.client.request("GET", wire.path(CONFIG_MAPS, "kube-node-lease"), query=at)
                        current = await reader.get(CONFIG_MAPS, mark, "default")
                        guard = {"resourceVersion": current["metadata"]["resourceVersion"]}
                        await reader.patch(CONFIG_MAPS, mark, {"metadata": guard, "data": {"by": "reader"}}, "default")
                        with pytest.raises(Conflict):
                            await writer.patch(
                                CONFIG_MAPS, mark, {"metadata": guard, "data": {"by": "writer"}}, "default"
                            )
                        assert (await writer.get(CONFIG_MAPS, mark, "default"))["data"] == {"by": "reader"}
                await _no_event_is_lost(first, second)
            await _one_may_end(tenancy, name, Api(client))


async def _no_event_is_lost(first: Api, second: Api) -> None:
    """Lists at both processes, and watches from them on, show each object of many clients that write at both."""
    lists: list[tuple[Api, int, set[str]]] = []
    groups = {
        inside: [[f"{at}-{client}-{number}" for number in range(EACH)] for client in range(AT_ONCE)]
        for at, inside in (("a", first), ("b", second))
    }
    everything = {name for lines in groups.values() for line in lines for name in line}
    async with asyncio.timeout(5 * SECONDS), asyncio.TaskGroup() as group:
        writers = [group.create_task(write(inside, line)) for inside, lines in groups.items() for line in lines]
        while not all(each.done() for each in writers):
            # Lists between writes that are under way, which may end in another order than that of their revisions.
            lists += [(inside, *(await listed(inside, "default"))) for inside in (first, second)]
    async with asyncio.timeout(5 * SECONDS), asyncio.TaskGroup() as group:
        # Some of them: each is a watch that gets up to all events.
        for inside, version, names in lists[:: len(lists) // MOST_WATCHES + 1]:
            if everything - names:
                group.create_task(seen(inside, version, everything - names))
    for inside in (first, second):
        assert everything <= (await listed(inside, "default"))[1]


async def _one_may_end(cluster: LocalCluster, name: str, inside: Api) -> None:
    async def holder() -> str:
        found = await inside.find(LEASES, "kube-controller-manager", "kube-system")
        return found["spec"].get("holderIdentity", "") if found is not None else ""

    before = await until(holder, "the controllers of one have the lease", seconds=2 * SECONDS)
    for index in range(2):
        killed = (await both(cluster, name))[index]
        for number in range(40):
            if number == 10:
                os.kill(killed.pid, signal.SIGKILL)
            await asyncio.wait_for(retried(inside, f"write-{index}-{number}"), SECONDS)
    await both(cluster, name)
    wanted = {f"write-{index}-{number}" for index in range(2) for number in range(40)}
    assert wanted <= (await listed(inside, "default"))[1]

    async def moved() -> bool:
        try:
            return await holder() not in ("", before)
        except ApiError:
            return False

    await until(moved, "the other one has the lease", seconds=3 * SECONDS)
    # Its controllers work: a namespace gets its account.
    await inside.create(NAMESPACES, {"metadata": {"name": "later"}})
    await inside.default_account("later")


async def test_a_database_may_have_several_processes(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H02, VCP-38: the object names them, and each is charged; objects stay when their number changes."""
    if missing(SqlDriver.POSTGRES):
        pytest.skip(missing(SqlDriver.POSTGRES))
    kind = VirtualControlPlane.resource
    await planes.host.make_tenant(name)
    with sql_server(SqlDriver.POSTGRES) as server:
        values = msgspec.to_builtins(server.server)
        await planes.host.create(SECRETS, {"metadata": {"name": name}, "stringData": values}, "tenantry-system")
        spec: Json = {"replicas": 2, "datastore": {"kind": "External", "secretRef": {"name": name}}}
        await planes.host.create(kind, {"metadata": {"name": "web"}, "spec": spec}, name)
        made = await planes.ready(name, "web")
        assert made["status"]["charged"]["requests.cpu"] == "100m"
        await both(plane_cluster, f"{name}.web")
        async with planes.entered(name, "web") as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            await planes.host.patch(kind, "web", {"spec": {"replicas": 1}}, name)

            async def one() -> bool:
                found = (await planes.host.get(kind, "web", name))["status"].get("charged", {})
                return found.get("requests.cpu") == "50m" and len(states(plane_cluster, f"{name}.web")) == 1

            await until(one, "one process is left", seconds=3 * SECONDS)
            await planes.ready(name, "web")

            async def there() -> bool:
                try:
                    return await inside.find(CONFIG_MAPS, "mine", "default") is not None
                except ApiError:
                    return False

            await until(there, "the object is there", seconds=2 * SECONDS)
        await planes.delete(name, "web")
        await planes.host.delete(SECRETS, name, "tenantry-system")
