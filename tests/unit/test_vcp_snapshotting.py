"""Snapshots as spec.snapshots requests them (H02, X11): decisions without a process."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import InputError, LocalError, RetryableError, StoreError, TenantryError, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.planesnapshots import PlaneSnapshots
from tenantry.api.snapshotdestinations import ControlPlaneDefaults, DestinationFolder, SnapshotDestination
from tenantry.api.tenancydefaults import TenancyDefaults, TenancyDefaultsSpec
from tenantry.api.virtualcontrolplane import (
    DatastoreKind,
    PlaneDatastore,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane import snapshotdestinations
from tenantry.controllers.virtualcontrolplane.snapshots import TURN_SECONDS, Snapshots, unusable
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting import snapshots
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import KeptSnapshot, UnusableSnapshot
from tenantry.local import hostedsnapshots
from tenantry.local.hostedsnapshots import LocalSnapshots
from tenantry.local.paths import ClusterPaths
from testkit.model import Json, World
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster

KEY = "acme/web"
SNAPSHOT, RESTORE = "request", "restore"
GIVEN = "given-0123456789abcdef.snapshot"
DEFAULTS = TenancyDefaults(
    metadata=ObjectMeta(name="default"),
    spec=TenancyDefaultsSpec(
        virtual_control_planes=ControlPlaneDefaults(
            snapshot_destinations=(SnapshotDestination(name="mounted", folder=DestinationFolder(path="/mnt")),)
        )
    ),
)


class Cabinet:
    """A place for snapshots without files; the revision of the datastore grows with each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.restored: list[str] = []
        self.trouble = ""
        self.kind: type[TenantryError] = LocalError
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def at(self, place: SnapshotPlace) -> Cabinet:
        """See `Placement.snapshots_at`."""
        assert place == SnapshotPlace(name="mounted", kind=SnapshotPlaceKind.FOLDER, folder="/mnt")
        return self

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        self._fail()
        self.names.append(snapshots.name(self.now, len(self.names) + 1, upgrade))
        return (await self.kept(uid))[-1]

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:  # noqa: ARG002 - there is one
        """See `SnapshotStore.kept`."""
        if self.kind is StoreError:
            self._fail()
        return tuple(each for name in self.names if (each := snapshots.read(name, 1)) is not None)

    async def discard(self, uid: str, name: str) -> None:  # noqa: ARG002 - there is one
        """See `SnapshotStore.discard`."""
        self.names.remove(name)

    async def restore(self, uid: str, name: str, version: str = "") -> None:  # noqa: ARG002 - there is one
        """See `SnapshotStore.restore`."""
        self._fail()
        if name not in self.names:
            raise UnusableSnapshot(f"there is no snapshot {name!r}")
        self.restored.append(name)

    def _fail(self) -> None:
        if self.trouble:
            raise self.kind(self.trouble)


class Keeper:
    """Does what the controller does about snapshots."""

    name = "keeper"
    kind = VirtualControlPlane

    def __init__(self, cabinet: Cabinet, distant: Cabinet, kinds: AbstractSet[SnapshotPlaceKind]) -> None:
        placement: Any = SimpleNamespace(snapshots=cabinet, snapshots_at=distant.at, snapshot_kinds=kinds)
        self._snapshots = Snapshots(placement)
        self.ended = 0

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.control_planes(watched.own_key), watched.defaults(lambda _: ())]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Restore, or take."""
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
        assert found is not None
        if self._snapshots.is_restore_due(found):
            await self._snapshots.restore(cluster, found, self._end)
        return await self._snapshots.take(cluster, found)

    async def _end(self) -> None:
        self.ended += 1


class Room:
    """A control plane, its snapshots, and an operator."""

    def __init__(self, spec: PlaneSnapshots | None = None, datastore: DatastoreKind = DatastoreKind.SQLITE) -> None:
        self.world = World()
        self.cabinet, self.distant = Cabinet(), Cabinet()
        self.distant.kind = StoreError
        self.world.create(DEFAULTS)
        meta = ObjectMeta(name="web", namespace="acme", creation_timestamp="2026-01-01T00:00:00Z")
        wanted = VirtualControlPlaneSpec(snapshots=spec or PlaneSnapshots(), datastore=PlaneDatastore(kind=datastore))
        self.world.put_in(Namespace.resource, {"metadata": {"name": "acme"}})
        self.world.create(VirtualControlPlane(metadata=meta, spec=wanted))
        self.fault = "none"
        self.kinds: AbstractSet[SnapshotPlaceKind] = hostedsnapshots.KINDS
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        self.keeper = Keeper(self.cabinet, self.distant, self.kinds)
        self.cluster = WorldCluster(self.world, [self.keeper], faults=lambda: self.fault)

    def ask(self, field: str, value: str) -> Json:
        """Request something, and return the status."""
        self.world.patch(VirtualControlPlane.resource, KEY, {"spec": {"snapshots": {field: value}}})
        self.cluster.settle(20)
        return self.status()

    def status(self) -> Json:
        """Return the status."""
        return self.world.get(VirtualControlPlane.resource, KEY).get("status", {})


def test_each_request_takes_one_snapshot() -> None:
    """H02: a value that was answered takes none, also of another operator; the oldest ones are deleted."""
    room = Room(PlaneSnapshots(keep=2))
    for value in ("a", "a", "b", "c"):
        found = room.ask(SNAPSHOT, value)
        assert found["lastSnapshot"]["requested"] == value
        assert found["lastSnapshot"]["snapshot"] == room.cabinet.names[-1]
        assert [each["name"] for each in found["snapshots"]] == room.cabinet.names
    assert [snapshots.read(each, 1) is not None for each in room.cabinet.names] == [True, True]
    before = list(room.cabinet.names)
    room.restart()
    room.cluster.settle(20)
    assert room.cabinet.names == before


def test_a_failure_is_reported_and_deletes_nothing() -> None:
    """H02: the next request tries again."""
    room = Room(PlaneSnapshots(keep=1))
    room.ask(SNAPSHOT, "a")
    room.cabinet.trouble = "the disk is full"
    found = room.ask(SNAPSHOT, "b")
    assert (found["lastSnapshot"]["message"], found["lastSnapshot"].get("snapshot", "")) == ("the disk is full", "")
    assert len(found["snapshots"]) == 1
    room.cabinet.trouble = ""
    assert not room.ask(SNAPSHOT, "c")["lastSnapshot"].get("message")


def test_a_restore_is_done_once() -> None:
    """X11: whatever else changes; the same snapshot again needs another value."""
    room = Room()
    name = room.ask(SNAPSHOT, "a")["lastSnapshot"]["snapshot"]
    found = room.ask(RESTORE, name)
    assert (found["lastRestore"]["snapshot"], room.keeper.ended) == (name, 1)
    room.ask(SNAPSHOT, "b")
    room.restart()
    room.ask(RESTORE, name)
    assert room.cabinet.restored == [name]
    room.ask(RESTORE, f"{name}@2")
    assert room.cabinet.restored == [name, name]


def test_a_restore_that_is_interrupted_is_done_again() -> None:
    """X11: before its process starts, so that nothing is lost."""
    room = Room()
    name = room.ask(SNAPSHOT, "a")["lastSnapshot"]["snapshot"]
    room.fault = "crash"
    with pytest.raises(Crash):
        room.ask(RESTORE, name)
    room.fault = "none"
    room.restart()
    room.cluster.settle(20)
    assert room.cabinet.restored == [name, name]
    assert room.status()["lastRestore"]["requested"] == name


@pytest.mark.parametrize("wanted", ["../other/20260101T000000Z-1.snapshot", "x", "20260101T000000Z-9.snapshot"])
def test_a_restore_of_nothing_says_so(wanted: str) -> None:
    """X11: a request names a snapshot of this control plane only."""
    room = Room()
    told = room.ask(RESTORE, wanted)["lastRestore"]["message"]
    assert "there is no snapshot" in told or "is not the name of a snapshot" in told
    # Its process runs on, and so does what follows it.
    assert (room.cabinet.restored, room.keeper.ended) == ([], 0)


def test_a_restore_that_fails_begins_anew() -> None:
    """X11: its process may have ended before."""
    room = Room()
    name = room.ask(SNAPSHOT, "a")["lastSnapshot"]["snapshot"]
    room.cabinet.trouble = "the disk is full"
    assert room.ask(RESTORE, name)["lastRestore"]["message"] == "the disk is full"
    assert room.keeper.ended == 1


@pytest.mark.parametrize("kind", [DatastoreKind.SHARED_ETCD, DatastoreKind.OWN_ETCD])
def test_a_restore_needs_no_kind_of_datastore(kind: DatastoreKind) -> None:
    """H02, X11: the objects of a snapshot go into each datastore."""
    room = Room(datastore=kind)
    name = room.ask(SNAPSHOT, "a")["lastSnapshot"]["snapshot"]
    found = room.ask(RESTORE, name)["lastRestore"]
    assert (found.get("message", ""), found["snapshot"]) == ("", name)
    assert room.cabinet.restored == [name]


def test_a_given_file_is_for_one_restore() -> None:
    """X11: an administrator's copy does not stay."""
    room = Room()
    room.cabinet.names.append(GIVEN)
    room.ask(RESTORE, f"{GIVEN}@1")
    assert (room.cabinet.restored, room.cabinet.names) == ([GIVEN], [])


def test_a_schedule_that_cannot_be_read_is_reported() -> None:
    """H02: the pattern of the field admits some."""
    room = Room(PlaneSnapshots(schedule="0 0 30 2 *"))
    room.cluster.settle(20)
    assert room.cabinet.names == []
    problem = unusable(msgspec.convert(room.world.get(VirtualControlPlane.resource, KEY), VirtualControlPlane))
    assert problem is not None
    assert "never comes" in problem.message


def test_a_schedule_repeats_no_request() -> None:
    """H02: each minute has one snapshot, and the request has one."""
    room = Room(PlaneSnapshots(schedule="* * * * *", keep=20))
    room.cluster.settle(1)
    before = len(room.cabinet.names)
    assert room.ask(SNAPSHOT, "a")["lastSnapshot"]["requested"] == "a"
    assert len(room.cabinet.names) == before + 1
    room.cluster.settle(600)
    assert before + 8 <= len(room.cabinet.names) <= before + 12
    assert room.status()["lastSnapshot"]["requested"] == "a"


def local(folder: Path) -> LocalSnapshots:
    """Return the snapshots of a local cluster on which no control plane was started."""

    async def stop(uid: str) -> None:
        pytest.fail(f"{uid} is stopped")

    def program(uid: str, version: str) -> str:
        pytest.fail(f"the program of {uid} {version} is run")

    return LocalSnapshots(ClusterPaths(folder), stop, program)


@pytest.mark.parametrize(
    "name", ["", "../x", "a/20260101T000000Z-1.snapshot", "given-.snapshot", ".unfinished", f"{GIVEN}\n"]
)
async def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    """X11: names come from fields that owners write."""
    store = local(tmp_path)
    with pytest.raises(InputError, match="is not the name of a snapshot"):
        await store.restore("a-1", name)
    with pytest.raises(InputError, match="is not the name of a snapshot"):
        await store.discard("a-1", name)
    with pytest.raises(InputError, match="is not the uid"):
        await store.discard("../up", GIVEN)


async def test_what_is_kept_is_read_from_the_names(tmp_path: Path) -> None:
    """X11: the oldest first; what an administrator put there, and what is unfinished, is not listed."""
    store = local(tmp_path)
    assert await store.kept("a-1") == ()
    folder = hostedsnapshots.folder(ClusterPaths(tmp_path), "a-1")
    folder.mkdir(parents=True)
    for name in ("20260102T000000Z-10.snapshot", "20260101T000000Z-9.snapshot", GIVEN, ".unfinished", "x"):
        (folder / name).write_bytes(b"12")
    found = await store.kept("a-1")
    assert [(each.revision, each.size) for each in found] == [(9, 2), (10, 2)]
    await store.discard("a-1", found[0].name)
    assert len(await store.kept("a-1")) == 1


def defaults(*destinations: Json) -> TenancyDefaults:
    """Return what an administrator has listed."""
    spec = {"virtualControlPlanes": {"snapshotDestinations": list(destinations)}}
    return msgspec.convert({"metadata": {"name": "default"}, "spec": spec}, TenancyDefaults)


STORE = {
    "name": "offsite",
    "s3": {"endpoint": "https://s3.example.com", "bucket": "abc", "secretRef": {"name": "s3"}},
}


def encoded(**values: str) -> Json:
    """Return a Secret."""
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


def test_a_destination_has_the_keys_of_its_secret() -> None:
    """H02: and shows none of them."""
    found = snapshotdestinations.find(defaults(STORE), "offsite")
    assert snapshotdestinations.secret_of(found) == "s3"
    place = snapshotdestinations.place_of(found, encoded(accessKey="AKIA", secretKey="hidden", ca="pem"))
    assert place.s3 is not None
    assert (place.s3.key.identifier, place.s3.key.secret, place.s3.ca) == ("AKIA", "hidden", "pem")
    assert "hidden" not in repr(place)


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (None, "does not exist"),
        ({}, "must have the keys accessKey and secretKey"),
        ({"data": {"accessKey": "a", "secretKey": "a"}}, "must have the keys accessKey and secretKey"),
        (encoded(accessKey="AKIA\n", secretKey="hidden"), "without a line break"),
        (encoded(accessKey="AKIA", secretKey=""), "visible characters"),
    ],
)
def test_a_secret_without_keys_says_so(secret: Json | None, words: str) -> None:
    """H02: without a value of it."""
    found = snapshotdestinations.find(defaults(STORE), "offsite")
    with pytest.raises(TerminalError, match=words) as caught:
        snapshotdestinations.place_of(found, secret)
    assert "hidden" not in str(caught.value)


def test_a_destination_that_cannot_be_used_is_a_problem() -> None:
    """H02: one of no such name, and one of a kind that the placement has not."""
    known = defaults(STORE, {"name": "volume", "claim": {"name": "a"}})
    kinds = hostedsnapshots.KINDS
    found = {name: snapshotdestinations.problem(known, name, kinds) for name in ("offsite", "volume", "x")}
    assert found["offsite"] is None
    assert found["volume"] is not None
    assert 'destination "volume" is a claim' in found["volume"].message
    assert found["x"] is not None
    assert '(known: "offsite", "volume")' in found["x"].message
    none = snapshotdestinations.problem(None, "x", kinds)
    assert none is not None
    assert "(known: none)" in none.message


async def test_a_folder_that_is_not_mounted_says_so(tmp_path: Path) -> None:
    """H02: the snapshot must not be written to the disk below."""
    place = SnapshotPlace(name="mounted", kind=SnapshotPlaceKind.FOLDER, folder=str(tmp_path / "missing"))
    store = local(tmp_path).at(place)
    with pytest.raises(StoreError, match='"mounted": its folder does not exist'):
        await store.take("a-1")
    assert not (tmp_path / "missing").exists()


async def test_a_claim_is_refused_on_this_machine(tmp_path: Path) -> None:
    """H02: a process here cannot mount it."""
    with pytest.raises(InputError, match="is a claim, which control planes here cannot have"):
        local(tmp_path).at(SnapshotPlace(name="volume", kind=SnapshotPlaceKind.CLAIM, claim="a"))


def test_a_destination_has_the_snapshots_of_its_name() -> None:
    """H02: the status names it first, so that none is left there; a failure is a condition until one succeeds."""
    room = Room(PlaneSnapshots(keep=1, destination="mounted"))
    room.distant.trouble = "the store does not answer"
    found = room.ask(SNAPSHOT, "a")
    assert found["snapshotDestinations"] == ["mounted"]
    assert found["lastSnapshot"]["message"] == "the store does not answer"
    told = [(each["type"], each["message"]) for each in found["conditions"]]
    assert told == [("SnapshotsFailing", "the store does not answer")]
    room.distant.trouble = ""
    for value in ("b", "c"):
        found = room.ask(SNAPSHOT, value)
    assert [each["name"] for each in found["snapshots"]] == room.distant.names
    assert (len(room.distant.names), room.cabinet.names) == (1, [])
    assert found.get("conditions", []) == []
    room.ask(RESTORE, room.distant.names[0])
    assert room.distant.restored == room.distant.names


def test_a_given_file_is_restored_beside_a_destination() -> None:
    """X11: an administrator puts it into the folder of the operator."""
    room = Room(PlaneSnapshots(destination="mounted"))
    room.cabinet.names.append(GIVEN)
    room.ask(RESTORE, GIVEN)
    assert (room.cabinet.restored, room.cabinet.names, room.distant.restored) == ([GIVEN], [], [])


def test_where_control_planes_have_volumes_a_given_file_is_at_the_destination() -> None:
    """X11: an administrator puts it into a claim, where it stays: the operator has no folder."""
    room = Room(PlaneSnapshots(destination="mounted"))
    room.kinds = hostedsnapshots.KINDS | {SnapshotPlaceKind.CLAIM}
    room.restart()
    room.distant.names.append(GIVEN)
    room.ask(RESTORE, GIVEN)
    assert (room.distant.restored, room.distant.names, room.cabinet.restored) == ([GIVEN], [GIVEN], [])


def cached(resource: Resource) -> dict[str, TenancyDefaults]:
    """Return the cache of TenancyDefaults, by name."""
    assert resource == TenancyDefaults.resource
    return {"default": DEFAULTS}


async def test_a_deletion_waits_for_a_destination() -> None:
    """H02: snapshots have all Secrets; an administrator can remove the destination instead."""
    distant = Cabinet()
    distant.kind, distant.trouble = StoreError, "the store does not answer"
    distant.names.append("20260101T000000Z-1.snapshot")
    found = VirtualControlPlane(
        metadata=ObjectMeta(name="web", namespace="acme", uid="a-1"),
        status=VirtualControlPlaneStatus(snapshot_destinations=("removed", "mounted")),
    )
    placement: Any = SimpleNamespace(snapshots_at=distant.at, snapshot_kinds=hostedsnapshots.KINDS)
    cluster: Any = SimpleNamespace(cache=cached)
    with pytest.raises(RetryableError, match="are deleted first, but the store does not answer"):
        await Snapshots(placement).remove(cluster, found)
    distant.trouble = ""
    await Snapshots(placement).remove(cluster, found)
    assert distant.names == []


@pytest.mark.parametrize("destination", ["", "mounted"])
async def test_slow_snapshots_occupy_two_workers_only(destination: str) -> None:
    """H02: others look again later, so that the control planes of all tenants are served meanwhile."""
    distant, entered, slow = Cabinet(), asyncio.Semaphore(0), asyncio.Event()

    async def take(uid: str, upgrade: str = "") -> KeptSnapshot:
        assert (uid, upgrade) != ("", "")
        entered.release()
        await slow.wait()
        raise StoreError("too slow")

    distant.take = take
    placement: Any = SimpleNamespace(snapshots=distant, snapshots_at=distant.at, snapshot_kinds=hostedsnapshots.KINDS)
    kept = Snapshots(placement)
    spec = VirtualControlPlaneSpec(snapshots=PlaneSnapshots(destination=destination, request="a"))
    planes = [
        VirtualControlPlane(
            metadata=ObjectMeta(name=f"web-{number}", namespace="acme", uid=f"a-{number}"),
            spec=spec,
            status=VirtualControlPlaneStatus(snapshot_destinations=("mounted",)),
        )
        for number in range(3)
    ]
    cluster: Any = SimpleNamespace(
        cache=cached,
        clock=SimpleNamespace(now=lambda: distant.now),
    )
    tasks = [asyncio.create_task(kept.take(cluster, each)) for each in planes[:2]]
    for _ in tasks:
        await entered.acquire()
    assert await kept.take(cluster, planes[2]) == TURN_SECONDS
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
