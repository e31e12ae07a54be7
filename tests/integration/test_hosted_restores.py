"""Snapshots of hosted control planes restored into each kind of datastore, under the supervisor of a cluster (H02)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from tenantry.api.errors import Conflict, Gone
from tenantry.api.model import Json, Resource
from tenantry.hosting import stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.snapshots import KeptSnapshot, UnusableSnapshot
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.kube.client import Client
from tenantry.kube.watch import watch
from tenantry.local import etcdadmin, etcds, hostedsnapshots
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import LocalPlacement
from tenantry.local.state import read_state
from testkit.api import SECONDS, Api
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
FAR = 1_000_000_000
GIVEN = "given-00000000.snapshot"


@contextlib.asynccontextmanager
async def entered(place: LocalPlacement, plane: HostedPlane) -> AsyncGenerator[Api]:
    """An administrator inside a control plane, which is started if it does not run."""
    found = await place.start(plane)
    async with Client(found.connection) as client:
        inside = Api(client)
        await inside.default_account("default")
        yield inside


def version(value: Json) -> int:
    """Return the resourceVersion of an object."""
    return int(value["metadata"]["resourceVersion"])


async def named(inside: Api) -> set[str]:
    """Return the names of the ConfigMaps of the tests."""
    found = await inside.list(CONFIG_MAPS, "default")
    return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}


async def watched(inside: Api, resource: Resource, since: int) -> str:
    """Return the name of the first object that a watch reports.

    Raises:
        Gone: The watch begins too early.
    """
    async with asyncio.timeout(SECONDS):
        async for events in watch(inside.client, resource, resource_version=str(since), namespace="default"):
            first: Json = msgspec.json.decode(events[0].object)
            return str(first["metadata"]["name"])
    raise AssertionError("the watch ends without an event")


async def far(place: LocalPlacement, tenancy: LocalCluster, plane: HostedPlane) -> KeptSnapshot:
    """Return a snapshot of a control plane with revisions that no etcd of the tests has."""
    async with entered(place, plane) as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "1"}}, "default")
    first = await place.snapshots.take(plane.uid)
    await place.stop(plane.uid)
    for file in (tenancy.paths.folder / "hosted" / plane.uid).glob("state.db*"):
        file.unlink()
    # Without the database, a restore numbers on far after the snapshot.
    await place.snapshots.restore(plane.uid, first.name)
    async with entered(place, plane) as inside:
        found = await inside.get(CONFIG_MAPS, "kept", "default")
        assert version(found) > FAR
        event: Json = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "Kept"}
        await inside.create(EVENTS, event, "default")
        return await place.snapshots.take(plane.uid)


@pytest.mark.parametrize("kind", [StoreKind.SHARED_ETCD, StoreKind.OWN_ETCD])
async def test_a_snapshot_moves_objects_into_an_etcd(tenancy: LocalCluster, name: str, kind: StoreKind) -> None:
    """H02, X11: revisions go on after those of the snapshot; older ones are gone; again, and during a crash."""
    async with contextlib.AsyncExitStack() as stack:
        place, source, _ = await stack.enter_async_context(running(tenancy, f"{name}-source"))
        taken = await far(place, tenancy, source)
        _, plane, _ = await stack.enter_async_context(running(tenancy, name, store=HostedStore(kind=kind)))
        folder = hostedsnapshots.folder(tenancy.paths, plane.uid)
        folder.mkdir(mode=0o700, parents=True)
        shutil.copy(hostedsnapshots.folder(tenancy.paths, source.uid) / taken.name, folder / GIVEN)
        async with entered(place, plane) as inside:
            before = version(await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default"))
            assert before < FAR
        await place.snapshots.restore(plane.uid, GIVEN)
        async with entered(place, plane) as inside:
            back = await inside.get(CONFIG_MAPS, "kept", "default")
            assert back["data"] == {"a": "1"}
            assert version(back) > taken.revision
            assert await named(inside) == {"kept"}
            # Events have no cache: their watch arrives at the datastore.
            for resource in (CONFIG_MAPS, EVENTS):
                for since in (before, taken.revision):
                    with pytest.raises(Gone):
                        await watched(inside, resource, since)
            stale = {"metadata": {"name": "kept", "resourceVersion": str(before)}}
            with pytest.raises(Conflict):
                await inside.patch(CONFIG_MAPS, "kept", stale, "default")
            changed = await inside.patch(CONFIG_MAPS, "kept", {"data": {"a": "2"}}, "default")
            assert version(changed) > version(back)
            events = await inside.list(EVENTS, "default")
            assert "Kept" in {each.get("reason") for each in events}
            last = await inside.create(EVENTS, {**events[0], "metadata": {"name": "later"}}, "default")
            assert await watched(inside, EVENTS, version(last) - 1) == "later"
        # Its own, while it rests; then it goes on from there, without anything that was left.
        await place.stop(plane.uid)
        second = await place.snapshots.take(plane.uid)
        assert second.revision >= version(last)
        own = etcds.folder(tenancy.paths, plane.uid, is_shared=False)
        # It ends with the process, and has run for the snapshot only.
        assert not _is_component(tenancy, f"{etcds.PREFIX}{name}")
        assert (own / etcds.STOPPED).exists() == (kind is StoreKind.OWN_ETCD)
        async with entered(place, plane) as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
        (folder / GIVEN).write_bytes((folder / second.name).read_bytes()[:-10])
        with pytest.raises(UnusableSnapshot, match="cut short"):
            await place.snapshots.restore(plane.uid, GIVEN)
        await place.snapshots.restore(plane.uid, second.name)
        async with entered(place, plane) as inside:
            found = await inside.get(CONFIG_MAPS, "kept", "default")
            assert found["data"] == {"a": "2"}
            assert version(found) > second.revision
            assert await named(inside) == {"kept"}
        await _only_one_generation(tenancy, plane, kind)


def _is_component(tenancy: LocalCluster, component: str) -> bool:
    state = read_state(tenancy.paths)
    assert state is not None
    return state.component(component) is not None


async def _only_one_generation(tenancy: LocalCluster, plane: HostedPlane, kind: StoreKind) -> None:
    """The keys before the restores are deleted: all are below the second prefix, beside the key that says so."""
    at = etcds.folder(tenancy.paths, plane.uid, is_shared=kind is StoreKind.SHARED_ETCD)
    record = next(each for each, folder in etcds.processes(tenancy.paths) if folder == at)
    prefix = stores.prefix(plane.uid)
    # At one revision: the process goes on writing.
    prefixes = (prefix, f"{prefix}/@2", f"{prefix}/@1")
    told = await etcdadmin.administer(Path(record.administrator), at, "count", *prefixes, seconds=60)
    whole, second, first = map(int, told.split())
    assert (whole, first) == (second + 1, 0)
    assert second > 1
