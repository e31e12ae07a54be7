"""Hosted control planes with an etcd, of their own and shared: real ones, under the supervisor of a cluster (H02)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import ApiError, InputError
from tenantry.api.model import Json, Resource
from tenantry.hosting import stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.kube.client import Client
from tenantry.local import build, etcdadmin, etcds
from tenantry.local.cluster import LocalCluster
from tenantry.local.etcds import EtcdProcess
from tenantry.local.files import write_private
from tenantry.local.process import kill_if_same
from tenantry.local.state import Phase, read_state
from testkit.api import SECONDS, Api, until
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

MIB = 2**20
QUOTA = 32 * MIB
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SHARED = HostedStore(kind=StoreKind.SHARED_ETCD)
OWN = HostedStore(kind=StoreKind.OWN_ETCD)


async def process(tenancy: LocalCluster, component: str) -> tuple[int, int, bool]:
    """Return pid and start of a component, and whether it is ready; zeros if there is none."""
    state = read_state(tenancy.paths)
    found = state.component(component) if state is not None else None
    return (found.pid, found.start_ticks, found.phase is Phase.READY) if found is not None else (0, 0, False)


async def killed(tenancy: LocalCluster, component: str) -> None:
    """Kill a component, and wait until another process of it is ready."""
    pid, ticks, _ = await process(tenancy, component)
    assert kill_if_same(pid, ticks, signal.SIGKILL)

    async def again() -> bool:
        _, now, is_ready = await process(tenancy, component)
        return is_ready and now not in (0, ticks)

    await until(again, f"{component} runs again", seconds=3 * SECONDS)


async def answers(inside: Api, name: str) -> None:
    """Wait until a ConfigMap is there."""

    async def so() -> bool:
        try:
            return await inside.find(CONFIG_MAPS, name, "default") is not None
        except ApiError:
            return False

    await until(so, f"ConfigMap {name!r} is there", seconds=2 * SECONDS)


async def administer(tenancy: LocalCluster, client: str, *arguments: str) -> tuple[str, str]:
    """Administer the shared etcd with a certificate; return the output and the error, "" for success."""
    folder = etcds.folder(tenancy.paths, "", is_shared=True)
    access = folder / f"{client}-test.json"
    write_private(access, msgspec.json.encode(stores.access("pki", "etcd-ca", client)))
    program = build.built(build.HOSTED)
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        *(program.hosted, "etcd", access, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, told = await process.communicate()
    assert (process.returncode != 0) == bool(told)
    return out.decode().strip(), told.decode()


async def keys(tenancy: LocalCluster, plane: HostedPlane) -> int:
    """Return how many keys of a control plane are in the shared etcd."""
    out, told = await administer(tenancy, "root", "count", stores.prefix(plane.uid))
    assert told == ""
    return int(out)


async def hosted(*arguments: str | Path) -> tuple[bytes, str]:
    """Run the program of control planes until it ends; return the output and the error, "" for success."""
    program = build.built(build.HOSTED)
    assert program is not None
    started = await asyncio.create_subprocess_exec(
        program.hosted, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, told = await started.communicate()
    return out, told.decode() if started.returncode else ""


async def test_control_planes_share_an_etcd_and_see_only_their_own(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H02: two in one etcd; objects survive both processes; another's prefix is refused; deletion leaves no key."""
    async with contextlib.AsyncExitStack() as stack:
        _, plane, first = await stack.enter_async_context(running(tenancy, name, store=SHARED))
        inside = Api(await stack.enter_async_context(Client(first.connection)))
        async with running(tenancy, f"{name}-other", store=SHARED) as (_, other, second):
            async with Client(second.connection) as client:
                neighbour = Api(client)
                for each, side in (("mine", inside), ("theirs", neighbour)):
                    await side.default_account("default")
                    await side.create(CONFIG_MAPS, {"metadata": {"name": each}}, "default")
                assert await inside.find(CONFIG_MAPS, "theirs", "default") is None
                assert await neighbour.find(CONFIG_MAPS, "mine", "default") is None
            folder = tenancy.paths.folder / "hosted" / plane.uid
            # One connection: nothing of this process is elsewhere.
            assert (folder / stores.ETCD_SOCKET).resolve() == tenancy.paths.folder / "stores" / "shared" / "etcd.sock"
            assert not (folder / "state.db").exists()
            await _as_another(tenancy, plane, other, tmp_path)
        # The other one is deleted, and this one is not.
        assert await keys(tenancy, other) == 0
        assert await keys(tenancy, plane) > 10
        await killed(tenancy, "etcd@shared")
        await answers(inside, "mine")
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "later"}}, "default")
        await killed(tenancy, f"hosted@{name}")
        await answers(inside, "later")
        await _restored_elsewhere(folder, tmp_path)
        await _saved(tenancy)
        assert await administer(tenancy, "root", "defragment") == ("", "")
        assert (await administer(tenancy, "root", "relieve"))[1] == ""
    assert await keys(tenancy, plane) == 0
    assert not (tenancy.paths.folder / "hosted" / plane.uid).exists()
    assert not list((tenancy.paths.folder / "stores" / "shared" / "pki").glob("plane-*"))


async def _saved(tenancy: LocalCluster) -> None:
    """A copy is saved when the last one is too old, and not before."""
    backup = etcds.folder(tenancy.paths, "", is_shared=True) / etcdadmin.BACKUP
    # The supervisor may have saved one earlier.
    await etcdadmin.save_due(tenancy.paths, time.time() + etcdadmin.EVERY_SECONDS + 60)
    assert b"/configmaps/default/later" in backup.read_bytes()
    first = backup.stat().st_ino
    await etcdadmin.save_due(tenancy.paths, time.time())
    assert backup.stat().st_ino == first
    await etcdadmin.save_due(tenancy.paths, time.time() + etcdadmin.EVERY_SECONDS + 60)
    assert backup.stat().st_ino != first


async def _restored_elsewhere(folder: Path, empty: Path) -> None:
    """A snapshot is taken while the process runs, and restored into another datastore; not while the process runs."""
    settings: Json = msgspec.json.decode((folder / "settings.json").read_bytes())
    taken, copy = empty / "etcd.snapshot", empty / "sqlite.snapshot"
    out, told = await hosted("snapshot", folder / "settings.json", taken)
    assert told == ""
    header: Json = msgspec.json.decode(out)
    assert header["uid"] == settings["uid"]
    assert header["count"] > 10
    assert "the control plane runs" in (await hosted("restore", folder / "settings.json", taken))[1]
    own = {**settings, "uid": "another", "datastore": stores.settings(HostedStore(), "another")}
    write_private(empty / "settings.json", msgspec.json.encode(own))
    assert "of another control plane" in (await hosted("restore", empty / "settings.json", taken))[1]
    assert (await hosted("restore", empty / "settings.json", taken, "foreign"))[1] == ""
    out, told = await hosted("snapshot", empty / "settings.json", copy)
    assert told == ""
    found: Json = msgspec.json.decode(out)
    assert found["count"] == header["count"]
    assert found["revision"] > header["revision"]
    assert (await hosted("verify", copy))[1] == ""


async def _as_another(tenancy: LocalCluster, plane: HostedPlane, other: HostedPlane, empty: Path) -> None:
    """What a process could do whose certificate and key are known: nothing to the keys of another one."""
    own = stores.user(plane.uid)
    acts = (
        ("remove", stores.user(other.uid), stores.prefix(other.uid)),
        ("admit", own, stores.prefix(other.uid)),
        ("admit", "root", "/planes"),
        ("save", "stolen.db"),
        ("count", stores.prefix(other.uid)),
        ("count", "/planes"),
        ("defragment",),
        ("relieve",),
    )
    for act in acts:
        assert "permission denied" in (await administer(tenancy, own, *act))[1]
    # A process with the prefix of another one does not start.
    folder = tenancy.paths.folder / "hosted" / plane.uid
    settings: Json = msgspec.json.decode((folder / "settings.json").read_bytes())
    settings["datastore"]["etcd"]["prefix"] = stores.prefix(other.uid)
    # In a folder of its own: the first process has locked the other one.
    forged = empty / "forged"
    forged.mkdir()
    for each in ("pki", stores.ETCD_SOCKET):
        (forged / each).symlink_to((folder / each).resolve())
    write_private(forged / "settings.json", msgspec.json.encode(settings))
    assert "permission denied" in (await hosted(forged / "settings.json"))[1]


async def test_one_has_an_etcd_of_its_own(tenancy: LocalCluster, name: str) -> None:
    """H02: it starts, it is killed, and it is gone with the control plane."""
    async with running(tenancy, name, store=OWN) as (place, plane, first), Client(first.connection) as client:
        inside = Api(client)
        await inside.default_account("default")
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
        await killed(tenancy, f"etcd@{name}")
        await answers(inside, "mine")
        with pytest.raises(InputError, match="never changes"):
            await place.start(replace(plane, store=HostedStore()))
    assert await process(tenancy, f"etcd@{name}") == (0, 0, False)
    assert not (tenancy.paths.folder / "hosted" / plane.uid).exists()


@pytest.mark.long
async def test_an_etcd_that_is_full_recovers_by_itself(tenancy: LocalCluster, name: str) -> None:
    """VCP-41: former values fill it, and are removed; what is there fills it, and only deletions are served then."""
    async with running(tenancy, name, store=OWN) as (place, plane, _):
        at = etcds.folder(tenancy.paths, plane.uid, is_shared=False)
        await place.stop(plane.uid)
        assert await process(tenancy, f"etcd@{name}") == (0, 0, False)
        small = replace(msgspec.json.decode((at / etcds.STOPPED).read_bytes(), type=EtcdProcess), quota_bytes=QUOTA)
        write_private(at / etcds.STOPPED, msgspec.json.encode(small))
        async with Client((await place.start(plane)).connection) as client:
            inside = Api(client)
            await inside.default_account("default")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "one"}}, "default")
            last = ""
            for number in range(QUOTA // (MIB // 4)):
                value = {"data": {"a": f"{number}" + "x" * (MIB // 4)}}
                last = await written(inside, "one", value)
                if last:
                    break

            async def is_written() -> bool:
                return not await written(inside, "one", {"data": {"a": "1"}})

            # The supervisor makes room.
            await until(is_written, f"writes go on after {last!r}", seconds=2 * SECONDS)
            assert etcds.database(at).stat().st_size < QUOTA
            await _limited(tenancy, inside)


async def written(inside: Api, name: str, patch: Json) -> str:
    """Change a ConfigMap; return the error, "" for success."""
    try:
        await inside.patch(CONFIG_MAPS, name, patch, "default")
    except ApiError as error:
        return str(error)
    return ""


async def _limited(tenancy: LocalCluster, inside: Api) -> None:
    large = {"data": {"a": "x" * (MIB * 9 // 10)}}
    many = QUOTA // 2 // MIB + 3
    for number in range(many):
        await inside.create(CONFIG_MAPS, {"metadata": {"name": f"large-{number}"}, **large}, "default")
    await etcdadmin.relieve_due(tenancy.paths, time.time(), also_small=True)
    seen: list[str] = []

    labels = ({"metadata": {"labels": {"a": str(number)}}} for number in itertools.count())

    async def is_refused() -> bool:
        seen.append(await written(inside, "large-0", next(labels)))
        return "nearly full" in seen[-1]

    await until(is_refused, "the control plane has its part", seconds=SECONDS, seen=lambda: seen[-1:])
    for number in range(many):
        await inside.delete(CONFIG_MAPS, f"large-{number}", "default")
    await etcdadmin.relieve_due(tenancy.paths, time.time(), also_small=True)

    async def goes_on() -> bool:
        return not await written(inside, "one", next(labels))

    await until(goes_on, "the limit ends", seconds=SECONDS)
