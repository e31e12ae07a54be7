"""Hosted control planes in PostgreSQL and MariaDB: real servers, on Unix sockets (H02)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from msgspec import structs

from tenantry.api.errors import ApiError, Forbidden, LocalError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.stores import HostedStore, SqlDriver, SqlServer, StoreKind
from tenantry.kube.client import Client
from tenantry.local import forwards
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest, order
from tenantry.local.hosted import LocalPlacement
from tenantry.local.state import read_state
from testkit.api import PODS, SECONDS, SECRETS, Api, until
from testkit.hosted import running
from testkit.planes import Planes, ready
from testkit.ports import free
from testkit.sqlservers import PASSWORD, SqlProcess, missing, sql_server

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


async def answers(inside: Api, name: str) -> None:
    """Wait until a ConfigMap is there."""

    async def so() -> bool:
        try:
            return await inside.find(CONFIG_MAPS, name, "default") is not None
        except ApiError:
            return False

    await until(so, f"ConfigMap {name!r} is there", seconds=3 * SECONDS)


def deployment() -> Json:
    """Return a Deployment of two pods, which controllers make by watches."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


@pytest.mark.parametrize("driver", list(SqlDriver))
async def test_a_sql_server_is_reached_by_tls(tenancy: LocalCluster, name: str, driver: SqlDriver) -> None:
    """VCP-42: by a forwarder of its own, which refuses loopback unless it is allowed; an unknown server is refused."""
    if missing(driver):
        pytest.skip(missing(driver))
    with sql_server(driver, port=free(1)[0]) as server:
        own = server.server
        for wrong, words in ((structs.replace(own, allowed=""), "EOF|does not answer"), (_unknown(own), "certificate")):
            with pytest.raises(LocalError, match=words):
                async with running(tenancy, f"{name}-x", store=HostedStore(kind=StoreKind.SQL, sql=wrong)):
                    pass
        store = HostedStore(kind=StoreKind.SQL, sql=own)
        async with running(tenancy, name, store=store) as (place, plane, first), Client(first.connection) as client:
            inside = Api(client)
            await inside.default_account("default")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            await _killed(server)
            await answers(inside, "mine")
            forwarder = f"{forwards.PREFIX}{name}"
            await order(tenancy.paths.socket, SupervisorRequest(verb="restart", component=forwarder), SECONDS)
            await answers(inside, "mine")
            await place.stop(plane.uid)
            state = read_state(tenancy.paths)
            assert state is not None
            assert state.component(forwarder) is None
            # It runs for the snapshot only.
            assert (await place.snapshots.take(plane.uid)).size > 0
            await place.start(plane)
            await answers(inside, "mine")


def _unknown(server: SqlServer) -> SqlServer:
    """Return a server whose authority is not the one that is given."""
    return structs.replace(server, ca="")


@pytest.mark.parametrize("driver", list(SqlDriver))
async def test_a_control_plane_is_in_a_sql_server(tenancy: LocalCluster, name: str, driver: SqlDriver) -> None:
    """H02: controllers work; objects survive a kill of both processes; no other control plane gets the database."""
    if missing(driver):
        pytest.skip(missing(driver))
    with sql_server(driver) as server:
        store = HostedStore(kind=StoreKind.SQL, sql=server.server)
        async with running(tenancy, name, store=store) as (place, plane, first), Client(first.connection) as client:
            inside = Api(client)
            await inside.default_account("default")
            await inside.create(DEPLOYMENTS, deployment(), "default")

            async def both() -> bool:
                return len(await inside.list(PODS, "default")) == 2

            await until(both, "the Deployment has its pods", seconds=2 * SECONDS)
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            await _killed(server)
            await answers(inside, "mine")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "later"}}, "default")
            await order(tenancy.paths.socket, SupervisorRequest(verb="restart", component=f"hosted@{name}"), SECONDS)
            await answers(inside, "later")
            # Another one would read its Secrets.
            await _refused(tenancy, f"{name}-other", store, plane.uid)
            logs = list(tenancy.paths.logs.glob(f"hosted@{name}*.log"))
            assert len(logs) > 1
            assert not [log for log in logs if PASSWORD in log.read_text()]
            assert (await place.start(plane)).server == first.server
            await _restored(place, plane.uid, inside, lambda: place.start(plane))
        # The database stays, and is refused to others until an administrator empties it.
        await _refused(tenancy, f"{name}-next", store, plane.uid)


async def test_administrators_name_a_database(planes: Planes, name: str) -> None:
    """H02: a Secret of the operator's namespace, which owners do not read, leads a control plane to its database."""
    if missing(SqlDriver.POSTGRES):
        pytest.skip(missing(SqlDriver.POSTGRES))
    await planes.host.make_tenant(name)
    with sql_server(SqlDriver.POSTGRES) as server:
        values = msgspec.to_builtins(server.server)
        await planes.host.create(SECRETS, {"metadata": {"name": name}, "stringData": values}, SYSTEM_NAMESPACE)
        spec: Json = {"datastore": {"kind": "External", "secretRef": {"name": name}}}
        kind = VirtualControlPlane.resource
        await planes.host.create(kind, {"metadata": {"name": "web"}, "spec": spec}, name)
        uid = (await planes.ready(name, "web"))["metadata"]["uid"]
        await planes.host.create(kind, {"metadata": {"name": "other"}, "spec": spec}, name)
        seen: Json = {}

        async def is_refused() -> bool:
            seen.update(ready(await planes.host.get(kind, "other", name)))
            return f"has the objects of {uid}" in seen.get("message", "")

        await until(is_refused, "the second control plane is refused", seconds=2 * SECONDS, seen=lambda: seen)
        async with planes.entered(name, "web") as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
        async with Client(structs.replace(planes.host.client.connection, impersonate="alice")) as client:
            with pytest.raises(Forbidden):
                await Api(client).get(SECRETS, name, SYSTEM_NAMESPACE)
        for each in ("other", "web"):
            await planes.delete(name, each)
        await planes.host.delete(SECRETS, name, SYSTEM_NAMESPACE)


async def _restored(place: LocalPlacement, uid: str, inside: Api, start: Callable[[], Awaitable[object]]) -> None:
    """Later objects are gone, earlier ones are back, and revisions go on after all that clients know."""
    taken = await place.snapshots.take(uid)
    await inside.delete(CONFIG_MAPS, "mine", "default")
    lost = await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
    for _ in range(2):
        await place.snapshots.restore(uid, taken.name)
        await start()
        found = await inside.get(CONFIG_MAPS, "mine", "default")
        assert int(found["metadata"]["resourceVersion"]) > int(lost["metadata"]["resourceVersion"])
        assert await inside.find(CONFIG_MAPS, "lost", "default") is None
        lost = await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
        assert int(lost["metadata"]["resourceVersion"]) > int(found["metadata"]["resourceVersion"])
    assert len(await inside.list(PODS, "default")) == 2


async def _killed(server: SqlProcess) -> None:
    await asyncio.to_thread(server.crash)
    await asyncio.to_thread(server.start)


async def _refused(tenancy: LocalCluster, name: str, store: HostedStore, owner: str) -> None:
    with pytest.raises(LocalError, match=f"has the objects of {owner}"):
        async with running(tenancy, name, store=store):
            pass
