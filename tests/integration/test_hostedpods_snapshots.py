"""The keeper of snapshots in a Pod as a process of this machine, with a real control plane (H02)."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError, StoreError
from tenantry.api.model import Resource
from tenantry.hostedpods.keeper import SnapshotKeeper
from tenantry.hosting import plane as hosting
from tenantry.hosting import sidecar, snapshots
from tenantry.hosting.plane import HostedPlane
from tenantry.kube.client import Client
from tenantry.local import build, pki
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import LocalPlacement
from tenantry.local.progress import SilentProgress
from testkit import ports
from testkit.api import SECONDS, Api
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
FILE = "on-its-way"


@asynccontextmanager
async def keeping(folder: Path, volume: Path, *flags: str) -> AsyncGenerator[SnapshotKeeper]:
    """The keeper of a volume, and its client with the keys of its Pod."""
    keys = folder / uuid.uuid4().hex
    pki.ensure(keys, sidecar.leaves(), dt.datetime.now(dt.UTC))
    for name, file in sidecar.FILES.items():
        (keys / name).write_bytes((keys / file).read_bytes())
    (port,) = ports.free(1)
    program = build.ensure(SilentProgress(), build.SIDECAR).sidecar
    command = (str(program), "-api=", f"-keeper=127.0.0.1:{port}", f"-keys={keys}", f"-volume={volume}", *flags)
    child = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        assert child.stderr is not None
        async with asyncio.timeout(SECONDS):
            assert b"ready" in await child.stderr.readline()
        yield SnapshotKeeper("127.0.0.1", sidecar.context(keys), "the volume", port)
    finally:
        child.kill()
        await child.wait()


def volume_of(tenancy: LocalCluster, plane: HostedPlane) -> tuple[Path, tuple[str, ...]]:
    """Return the folder that a Pod would have as its volume, and the flags of its keeper."""
    own = tenancy.paths.folder / "hosted" / plane.uid
    program = build.ensure(SilentProgress(), build.HOSTED).hosted
    return own, ("-folder=snapshots", f"-program={program}", f"-settings={own / hosting.SETTINGS}")


async def named(place: LocalPlacement, plane: HostedPlane) -> set[str]:
    """Return the names of the ConfigMaps of the test; the control plane is started."""
    async with Client((await place.start(plane)).connection) as client:
        inside = Api(client)
        await inside.default_account("default")
        found = await inside.list(CONFIG_MAPS, "default")
        return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}


async def test_a_keeper_takes_snapshots_of_a_process_that_runs_and_restores_them_when_it_does_not(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H02: through a second volume, as that of a destination; and files of local clusters are the same."""
    async with running(tenancy, name) as (place, plane, first), Client(first.connection) as client:
        inside = Api(client)
        await inside.default_account("default")
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
        volume, flags = volume_of(tenancy, plane)
        claim = tmp_path / "claim"
        claim.mkdir()
        async with keeping(tmp_path, volume, *flags) as own, keeping(tmp_path, claim) as destination:
            found = await own.take(FILE)
            file = tmp_path / "file"
            await own.receive(FILE, file)
            await own.discard(FILE)
            kept = snapshots.name(found.time, found.revision)
            await destination.send(file, kept)
            (listed,) = await destination.kept()
            assert (listed.name, listed.revision) == (kept, found.revision)
            assert await own.kept() == ()
            # The control plane has gone on meanwhile.
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "later"}}, "default")
            local = await place.snapshots.take(plane.uid)
            await destination.receive(kept, file)
            await own.send(file, FILE)
            with pytest.raises(StoreError, match="the control plane runs: end it"):
                await own.restore(FILE, foreign=False)
            assert (await own.verify(FILE)).revision == found.revision
            await place.stop(plane.uid)
            await own.restore(FILE, foreign=False)
            assert await named(place, plane) == {"kept"}
            # One that was taken locally.
            taken = tenancy.paths.folder / "hosted-snapshots" / plane.uid / local.name
            await own.send(taken, FILE)
            await place.stop(plane.uid)
            await own.restore(FILE, foreign=False)
            assert await named(place, plane) == {"kept", "later"}
            # The other way round.
            given = "given-00000000.snapshot"
            await own.receive(FILE, taken.with_name(given))
            await place.snapshots.restore(plane.uid, given)
            assert await named(place, plane) == {"kept", "later"}


async def test_a_keeper_refuses_what_cannot_be_restored(tenancy: LocalCluster, name: str, tmp_path: Path) -> None:
    """H02, H01: a damaged file, none, and one of another control plane; the process keeps its objects."""
    async with running(tenancy, name) as (place, plane, first):
        async with Client(first.connection) as client:
            await Api(client).default_account("default")
        volume, flags = volume_of(tenancy, plane)
        async with keeping(tmp_path, volume, *flags) as own:
            await own.take(FILE)
            file, damaged = tmp_path / "file", tmp_path / "damaged"
            await own.receive(FILE, file)
            damaged.write_bytes(file.read_bytes()[:-40])
            await own.send(damaged, "cut.snapshot")
            with pytest.raises(StoreError, match="the volume: the snapshot is cut short"):
                await own.verify("cut.snapshot")
            with pytest.raises(InputError, match="there is no snapshot of this name"):
                await own.verify("none.snapshot")
            settings = (volume / hosting.SETTINGS).read_bytes()
            await place.stop(plane.uid)
            # The settings of another control plane.
            other = replace(plane, uid=str(uuid.uuid4()))
            (volume / hosting.SETTINGS).write_bytes(settings.replace(plane.uid.encode(), other.uid.encode()))
            with pytest.raises(StoreError, match="the snapshot is of another control plane"):
                await own.restore(FILE, foreign=False)
            await own.restore(FILE, foreign=True)


async def test_a_keeper_without_a_control_plane_restores_none(tmp_path: Path) -> None:
    """H01: the Job of a destination has no database and no program."""
    (tmp_path / "claim").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    async with keeping(tmp_path, tmp_path / "claim") as destination:
        await destination.send(tmp_path / "file", "a.snapshot")
        for refused in (destination.verify("a.snapshot"), destination.take("a.snapshot")):
            with pytest.raises(StoreError, match="not a request to a keeper"):
                await refused
