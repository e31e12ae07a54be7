"""Datastores of control planes in Pods: the objects of the API server, and the containers as processes here."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from tenantry.api.errors import ApiError, InputError, LocalError
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import objects, sharedetcd, sqlservers
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.placement import PodPlacement
from tenantry.hosting import sidecar, stores
from tenantry.hosting.destinations import Refused
from tenantry.hosting.gate import Gate
from tenantry.hosting.plane import GATE, HostedPlane
from tenantry.hosting.stores import HostedStore, SqlDriver, SqlServer, StoreKind
from tenantry.install import planestore
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.files import write_private
from testkit import ports
from testkit.api import PODS, SECONDS, SECRETS, Api, until
from testkit.etcdaccess import administer, opens_only_its_prefix
from testkit.hostedplanes import (
    installed,
    listens,
    loopback,
    pod_of,
    programs,
    proxied,
    served,
    short_folder,
    started,
    unproxied,
)
from testkit.podprocesses import PodProcesses
from testkit.sqlservers import missing, sql_server

IMAGE = "registry.example/hosted:1"
OPTIONS = PodOptions(image=IMAGE, has_etcd=True)
SETTINGS = PodSettings(image=IMAGE, has_etcd=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LOOPBACK = {"store": ("127.0.0.0/8",)}
"""A forwarder refuses addresses of its own machine."""

ABSENT = "given-00000000.snapshot"
KINDS = (objects.SECRETS, objects.SERVICES, objects.CLAIMS, objects.STATEFUL_SETS, PODS)


# Fixtures.
__all__ = ("programs", "short_folder")

SHARED = HostedStore(kind=StoreKind.SHARED_ETCD)


def plane(name: str, store: HostedStore = SHARED) -> HostedPlane:
    """Return a control plane with a uid of its own."""
    return HostedPlane(
        uid=str(uuid.uuid4()),
        name=f"{name}.web",
        issuer=f"https://{name}.example",
        owner=f"owner:{name}",
        store=store,
    )


@pytest_asyncio.fixture
async def operator(admin: Client) -> AsyncGenerator[Client]:
    """The ServiceAccount of the operator, with the rights of this installation only; nothing is left at the end."""
    async with installed(admin, OPTIONS) as client:
        yield client
    host = Api(admin)
    await unproxied(host)
    await host.delete(objects.STATEFUL_SETS, planestore.NAME, PROCESS_NAMESPACE)
    await host.delete(objects.SERVICES, planestore.NAME, PROCESS_NAMESPACE)
    for name in (planestore.NAME, sharedetcd.KEYS):
        await host.delete(SECRETS, name, PROCESS_NAMESPACE)

    async def gone() -> bool:
        found = await host.list(PODS, PROCESS_NAMESPACE)
        return not [each for each in found if planestore.SELECTOR.items() <= each["metadata"]["labels"].items()]

    await until(gone, "the Pod of the etcd is gone", seconds=SECONDS)


@asynccontextmanager
async def etcd(host: Api, folder: Path, programs: dict[str, Path]) -> AsyncGenerator[PodProcesses]:
    """The Pod of the etcd, which is ready."""
    pod = await pod_of(host, planestore.SELECTOR)

    async def told() -> bool:
        return await host.find(SECRETS, planestore.NAME, PROCESS_NAMESPACE) is not None

    await until(told, "the operator has written the certificates of the etcd")
    processes = PodProcesses(host, folder, loopback(), programs, {})
    async with processes.running(pod):
        for port in (planestore.CLIENT_PORT, planestore.KEEPER_PORT):
            await listens(processes.address, port)
        await processes.ready(pod)
        yield processes


async def led(host: Api, server: PodProcesses, folder: Path, programs: dict[str, Path]) -> PodProcesses:
    """Return the place for a Pod of a control plane, which reaches the etcd."""
    service = await host.get(objects.SERVICES, planestore.NAME, PROCESS_NAMESPACE)
    (port,) = ports.free(1)
    leads_to = {
        # No kube-proxy translates addresses of Services here.
        f"{service['spec']['clusterIP']}:{planestore.CLIENT_PORT}": f"{server.address}:{planestore.CLIENT_PORT}",
        str(sidecar.INTERNAL_PORT): str(port),
    }
    return PodProcesses(host, folder, loopback(), programs, leads_to, further=LOOPBACK)


async def foreign(
    place: PodPlacement,
    own: HostedPlane,
    server: PodProcesses,
    local: PodProcesses,
    programs: dict[str, Path],
) -> None:
    """What a process could do whose certificate and key are known: nothing to the keys of others."""
    pki = local.volume("pki")
    access = local.volume("tmp") / "access.json"
    way = {**stores.access(str(pki), stores.ETCD_AUTHORITY, stores.ETCD_CLIENT), "socket": str(local.volume("sockets"))}
    write_private(access, msgspec.json.encode({**way, "socket": f"{way['socket']}/{stores.ETCD_SOCKET}"}))
    await opens_only_its_prefix(programs[objects.PROGRAM], access, own.uid)
    # The keeper is for the operator.
    connection = Connection(
        server=f"https://{server.address}:{planestore.KEEPER_PORT}",
        source="the keeper",
        ca=(server.volume("keeper") / "ca.crt").read_bytes(),
        tls_server_name=planestore.KEEPER,
        certificate=(pki / f"{stores.ETCD_CLIENT}.crt").read_bytes(),
        key=(pki / f"{stores.ETCD_CLIENT}.key").read_bytes(),
    )
    asked = msgspec.json.encode({"user": stores.user(own.uid), "prefix": stores.prefix(own.uid)})
    async with Client(connection, max_connections=1) as client:
        with pytest.raises(ApiError):
            await client.request("POST", "/remove", body=asked)
    await opens_only_its_prefix(programs[objects.PROGRAM], access, own.uid)
    # The datastore never changes.
    with pytest.raises(InputError, match="its objects are in sharedEtcd: a datastore never changes"):
        await place.start(replace(own, store=HostedStore()))


async def test_a_control_plane_in_a_pod_has_its_objects_in_the_shared_etcd(
    admin: Client, operator: Client, short_folder: Path, tmp_path: Path, programs: dict[str, Path]
) -> None:
    """H03: objects survive the Pod; a foreign prefix and the keeper are refused; a deletion leaves no key."""
    host, own = Api(admin), plane("a")
    place = PodPlacement(operator, SETTINGS, tmp_path)
    for each in ("e", "a", "x"):
        (short_folder / each).mkdir()
    proxy = proxied(host, short_folder / "x", programs)
    async with in_background(place.keep()), proxy, etcd(host, short_folder / "e", programs) as server:
        local = await led(host, server, short_folder / "a", programs)
        async with started(place, own, local, host) as (running, pod), Client(running.connection) as client:
            inside = Api(client)
            await inside.default_account("default")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            # Another operator has become the leader.
            await PodPlacement(operator, SETTINGS, tmp_path / "next").snapshots.discard(own.uid, ABSENT)
            runs = await host.get(objects.STATEFUL_SETS, objects.name(own.uid), PROCESS_NAMESPACE)
            assert runs["spec"]["replicas"] == 1
        await host.delete(PODS, pod["metadata"]["name"], PROCESS_NAMESPACE)
        async with started(place, own, local, host, pod["metadata"]["uid"]) as (running, _):
            async with Client(running.connection) as client:
                assert await Api(client).find(CONFIG_MAPS, "mine", "default") is not None
            await foreign(place, own, server, local, programs)
        root = server.volume("root") / planestore.ACCESS
        count, told = await administer(programs[objects.PROGRAM], root, "count", stores.prefix(own.uid))
        assert (told, int(count or 0) > 10) == ("", True)
        assert await host.find(objects.CLAIMS, objects.name(own.uid), PROCESS_NAMESPACE) is None
        await place.remove(own.uid)
        # Again, as after a crash.
        await place.remove(own.uid)
        left = await administer(programs[objects.PROGRAM], root, "count", stores.prefix(own.uid))
        assert left == ("0", "")
        for kind in KINDS:
            names = [each["metadata"]["name"] for each in await host.list(kind, PROCESS_NAMESPACE)]
            assert [each for each in names if own.uid in each] == []
        kept = objects.files_of(await host.get(SECRETS, sharedetcd.KEYS, PROCESS_NAMESPACE))
        assert [name for name in kept if name.startswith("plane-")] == []


@pytest.mark.long
async def test_several_pods_share_the_etcd_and_the_operator_follows_them(
    admin: Client, operator: Client, short_folder: Path, tmp_path: Path, programs: dict[str, Path]
) -> None:
    """H12: the gate is behind each Pod; the operator connects to a second one, and goes on without the first one."""
    host, own = Api(admin), replace(plane("r"), replicas=2)
    place = PodPlacement(operator, SETTINGS, tmp_path)
    for each in ("e", "a", "b", "x"):
        (short_folder / each).mkdir()
    selector = {objects.UID_LABEL: own.uid}
    proxy = proxied(host, short_folder / "x", programs)
    async with in_background(place.keep()), proxy, etcd(host, short_folder / "e", programs) as server:
        first, second = [await led(host, server, short_folder / each, programs) for each in ("a", "b")]
        async with started(place, own, first, host) as (running, pod), Client(running.connection) as client:
            await Api(client).create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            assert not await place.has_moved(own.uid)
            other = await pod_of(host, selector, pod["metadata"]["uid"])
            async with served(other, second):
                assert await place.has_moved(own.uid)
                await place.start(own)
                assert not await place.has_moved(own.uid)
                gate = Gate(place.gate(own.uid), lambda host, port: Refused(reason=f"no way to {host} at {port}"))
                async with gate.serve(), place.connected(own.uid):
                    for each in (first, second):
                        assert b"no way to 192.0.2.9 at 443" in await asked(each)
                await host.delete(PODS, pod["metadata"]["name"], PROCESS_NAMESPACE)
                assert await place.has_moved(own.uid)
                found = await place.start(own)
                assert second.address in found.connection.server
                async with Client(found.connection) as later:
                    assert await Api(later).find(CONFIG_MAPS, "mine", "default") is not None
        # One that elects no leader does not run beside the others.
        single = replace(own, replicas=1)
        former = [each["metadata"]["uid"] for each in (pod, other)]
        third = await pod_of(host, selector, *former)
        async with started(place, single, first, host, *former, third["metadata"]["uid"]) as (_, last):
            pods = await host.list(PODS, PROCESS_NAMESPACE)
            mine = [each for each in pods if selector.items() <= each["metadata"]["labels"].items()]
            assert [each["metadata"]["uid"] for each in mine] == [last["metadata"]["uid"]]
        await place.remove(own.uid)


async def asked(processes: PodProcesses) -> bytes:
    """Return how the gate answers the API server of a Pod."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_unix_connection(str(processes.volume("sockets") / GATE))
        writer.write(b"CONNECT 192.0.2.9:443 HTTP/1.1\r\nHost: 192.0.2.9:443\r\n\r\n")
        found = await reader.read()
        writer.close()
        return found


async def test_without_the_etcd_the_operator_says_how_to_install_it(
    admin: Client, operator: Client, tmp_path: Path
) -> None:
    """H03: the message names the command, and nothing of the control plane starts."""
    host, own = Api(admin), plane("c")
    await host.delete(objects.SERVICES, planestore.NAME, PROCESS_NAMESPACE)
    place = PodPlacement(operator, SETTINGS, tmp_path)
    with pytest.raises(InputError, match="`tenantry install --virtual-control-planes --hosted-etcd`"):
        await place.start(own)
    assert await host.find(objects.STATEFUL_SETS, objects.name(own.uid), PROCESS_NAMESPACE) is None
    await place.remove(own.uid)


async def test_an_etcd_that_does_not_answer_keeps_what_is_to_be_deleted(
    admin: Client, operator: Client, tmp_path: Path
) -> None:
    """H03: the keys of a control plane are deleted with it, also if that takes several attempts."""
    host, own = Api(admin), plane("d")
    place = PodPlacement(operator, SETTINGS, tmp_path)
    with pytest.raises(LocalError, match="Pod hosted-etcd-0 in 'tenantry-vcp', the shared etcd, is not ready"):
        await place.start(own)
    with pytest.raises(LocalError, match="is not ready"):
        await place.remove(own.uid)
    assert await host.find(SECRETS, objects.keys_name(own.uid), PROCESS_NAMESPACE) is not None
    # An administrator has removed the etcd with everything in it.
    await host.delete(SECRETS, sharedetcd.KEYS, PROCESS_NAMESPACE)
    await place.remove(own.uid)
    assert await host.find(SECRETS, objects.keys_name(own.uid), PROCESS_NAMESPACE) is None


@pytest.mark.long
@pytest.mark.parametrize("driver", list(SqlDriver))
async def test_a_control_plane_in_a_pod_reaches_one_sql_server(
    admin: Client, operator: Client, short_folder: Path, programs: dict[str, Path], driver: SqlDriver
) -> None:
    """H03: its NetworkPolicy opens one address; objects survive the Pod; the way is closed with the control plane."""
    if why := missing(driver):
        pytest.skip(why)
    port, internal = ports.free(2)
    host = Api(admin)
    place = PodPlacement(operator, SETTINGS, short_folder / "operator")
    async with contextlib.AsyncExitStack() as stack:
        found = stack.enter_context(sql_server(driver, port=port))
        own = plane("s", HostedStore(kind=StoreKind.SQL, sql=found.server))
        for each in ("a", "operator", "x"):
            (short_folder / each).mkdir()
        local = PodProcesses(
            host, short_folder / "a", loopback(), programs, {str(sidecar.INTERNAL_PORT): str(internal)}
        )
        await stack.enter_async_context(in_background(place.keep()))
        await stack.enter_async_context(proxied(host, short_folder / "x", programs))
        async with started(place, own, local, host) as (running, pod), Client(running.connection) as client:
            inside = Api(client)
            await inside.default_account("default")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
        policy = await host.get(sqlservers.POLICIES, objects.name(own.uid), PROCESS_NAMESPACE)
        to = {"to": [{"ipBlock": {"cidr": "127.0.0.1/32"}}], "ports": [{"protocol": "TCP", "port": port}]}
        assert policy["spec"]["egress"] == [to]
        assert not await place.has_moved(own.uid)
        await host.delete(PODS, pod["metadata"]["name"], PROCESS_NAMESPACE)
        again = started(place, own, local, host, pod["metadata"]["uid"])
        async with again as (running, _), Client(running.connection) as client:
            assert await Api(client).find(CONFIG_MAPS, "mine", "default") is not None
        await place.remove(own.uid)
        assert await host.find(sqlservers.POLICIES, objects.name(own.uid), PROCESS_NAMESPACE) is None


@pytest.mark.long
async def test_several_pods_share_one_sql_server(
    admin: Client, operator: Client, short_folder: Path, programs: dict[str, Path]
) -> None:
    """H12: each Pod lists what the other one has written, and the control plane goes on without the first one."""
    if why := missing(SqlDriver.POSTGRES):
        pytest.skip(why)
    port, *internal = ports.free(3)
    host = Api(admin)
    place = PodPlacement(operator, SETTINGS, short_folder / "operator")
    async with contextlib.AsyncExitStack() as stack:
        found = stack.enter_context(sql_server(SqlDriver.POSTGRES, port=port))
        own = replace(plane("v", HostedStore(kind=StoreKind.SQL, sql=found.server)), replicas=2)
        for each in ("a", "b", "operator", "x"):
            (short_folder / each).mkdir()
        first, second = (
            PodProcesses(host, short_folder / name, loopback(), programs, {str(sidecar.INTERNAL_PORT): str(own_port)})
            for name, own_port in zip(("a", "b"), internal, strict=True)
        )
        await stack.enter_async_context(in_background(place.keep()))
        await stack.enter_async_context(proxied(host, short_folder / "x", programs))
        async with started(place, own, first, host) as (running, pod), Client(running.connection) as client:
            await Api(client).create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
            other = await pod_of(host, {objects.UID_LABEL: own.uid}, pod["metadata"]["uid"])
            async with served(other, second):
                await place.start(own)
                await host.delete(PODS, pod["metadata"]["name"], PROCESS_NAMESPACE)
                found_again = await place.start(own)
                assert second.address in found_again.connection.server
                async with Client(found_again.connection) as later:
                    assert await Api(later).find(CONFIG_MAPS, "mine", "default") is not None
        await place.remove(own.uid)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"address": "/run/postgresql/.s.PGSQL.5432"}, 'must be "HOST:PORT" where control planes run in Pods'),
        ({"ca": ""}, "must have the key ca where control planes run in Pods"),
        ({"address": "169.254.169.254:5432"}, "has only addresses that are refused"),
    ],
)
async def test_a_sql_server_that_no_pod_may_reach_is_refused(
    admin: Client, operator: Client, tmp_path: Path, change: dict[str, str], problem: str
) -> None:
    """H03: no NetworkPolicy opens the metadata of a node; nothing starts."""
    server = SqlServer(
        driver=SqlDriver.POSTGRES, address="192.0.2.9:5432", database="d", user="u", password="p", ca="c"
    )
    host, own = Api(admin), plane("t", HostedStore(kind=StoreKind.SQL, sql=replace(server, **change)))
    place = PodPlacement(operator, SETTINGS, tmp_path)
    with pytest.raises((InputError, LocalError), match=problem):
        await place.start(own)
    for kind in (sqlservers.POLICIES, objects.STATEFUL_SETS):
        assert await host.find(kind, objects.name(own.uid), PROCESS_NAMESPACE) is None
    await place.remove(own.uid)
