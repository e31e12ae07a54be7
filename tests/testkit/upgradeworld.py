"""A control plane whose version changes: the operator's own controller, and a place without processes.

The place checks what must hold whatever fails: the program of a version never finds objects of a later one, or of one
more than a minor version before, and a snapshot has the objects from before the first start of each version.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import InputError, LocalError, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE, PlanePhase, VirtualControlPlane, VirtualControlPlaneSpec
from tenantry.controllers.operator import controllers
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.virtualcontrolplane import apiservice
from tenantry.controllers.virtualcontrolplane.controller import VirtualControlPlaneController
from tenantry.controllers.virtualcontrolplane.egress import HostRanges
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController
from tenantry.controllers.virtualcontrolplane.link import Host, MirroredObjects
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.hosting import snapshots, versions
from tenantry.hosting.placement import Placement, RunningPlane
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.snapshots import KeptSnapshot
from tenantry.hosting.versions import HostedVersion
from testkit.model import Json, World
from testkit.treeworld import world_of
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID

KEY = "acme/web"
KNOWN = (
    HostedVersion(name="1.34", kubernetes="1.34.9"),
    HostedVersion(name="1.35", kubernetes="1.35.4"),
    HostedVersion(name="1.36", kubernetes="1.36.3", is_default=True),
)


class Forge:
    """A place for one control plane, whose processes never answer: links are not part of these tests."""

    def __init__(self) -> None:
        self.known: tuple[HostedVersion, ...] = KNOWN
        self.missing: set[str] = set()
        self.trouble = ""
        self.place_trouble: TenantryError | None = None
        """Why a snapshot has no place."""
        self.ends = 0
        """How often the process was ended."""
        self.runs = ""
        """The version of the process."""
        self.objects = ""
        """The version whose process has written last."""
        self.emulates = ""
        """The version that this process behaves as."""
        self.starts: list[str] = []
        self.kept_files: dict[str, tuple[KeptSnapshot, str, int]] = {}
        self.writes = 0
        """Grows with each start: what a process writes."""

    @property
    def snapshots(self) -> Forge:
        """See `Placement.snapshots`."""
        return self

    @property
    def authorities(self) -> Forge:
        """See `Placement.authorities`."""
        return self

    async def read(self, uid: str) -> dict[str, bytes]:  # noqa: ARG002 - it issues none
        """See `AuthorityFiles.read`."""
        return {}

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`."""
        return self.known

    async def provide(self, version: str) -> None:
        """See `Placement.provide`."""
        if version in self.missing:
            raise LocalError(f"{version} is not built")

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        version = versions.find(self.known, plane.version).kubernetes
        if self.objects and versions.minor(version) != versions.minor(self.objects):
            versions.check_way(self.objects, version)
            # What it has written while it behaved as the version before, that one reads, too.
            soaks = bool(plane.emulates or self.emulates)
            assert any(
                kept.upgrade == version and (of, writes if not soaks else self.writes) == (self.objects, self.writes)
                for kept, of, writes in self.kept_files.values()
            ), f"no snapshot has the objects of {self.objects}, which {version} changes"
        if self.runs != version:
            self.starts.append(version)
        self.runs = version
        self.emulates = plane.emulates
        # One that behaves as the version before writes what that one reads.
        self.objects = version if not plane.emulates else self.objects
        self.writes += 1
        raise LocalError("it does not answer")

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        assert uid
        self.ends += 1
        self.runs = ""

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        await self.stop(uid)

    async def kubeconfig(self, uid: str) -> str:
        """See `Placement.kubeconfig`."""
        assert uid
        return "kubeconfig"

    async def encryption(self, uid: str) -> bytes:
        """See `Placement.encryption`."""
        assert uid
        return b""

    async def open(self, uid: str, *, is_open: bool) -> None:
        """See `Placement.open`."""
        assert uid
        assert is_open

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        await asyncio.Event().wait()
        assert uid

    def endpoint(self, uid: str) -> None:
        """See `Placement.endpoint`."""
        assert uid

    # -- snapshots --------------------------------------------------------------------------------

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        assert uid
        if self.place_trouble is not None:
            raise self.place_trouble

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        await self.check(uid)
        if upgrade:
            assert not self.runs, "what is written meanwhile would be lost"
        if self.trouble:
            raise LocalError(self.trouble)
        time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=len(self.kept_files))
        name = snapshots.name(
            time, 1 + max((each.revision for each, *_ in self.kept_files.values()), default=0), upgrade
        )
        read = snapshots.read(name, 1)
        assert read is not None
        self.kept_files[name] = (read, self.objects, self.writes)
        return read

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        assert uid
        return tuple(each for each, *_ in sorted(self.kept_files.values(), key=lambda each: each[0].revision))

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        assert uid
        self.kept_files.pop(name, None)

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        if name not in self.kept_files:
            raise InputError(f"there is no snapshot {name!r}")
        _, of, _ = self.kept_files[name]
        reader = versions.find(self.known, version).kubernetes if version else self.objects
        if versions.is_before(reader, of):
            raise InputError(f"the snapshot is of Kubernetes {of}")
        await self.stop(uid)
        # The program writes them anew.
        self.objects = reader
        self.writes += 1


class Workshop:
    """The control plane web of the tenant acme, whose operator may be restarted."""

    def __init__(self, version: str = "") -> None:
        self.world: World = world_of()
        self.world.put_in(apiservice.SERVICES, {"metadata": {"name": "first", "namespace": "acme"}})
        self.world.put_in(Namespace.resource, {"metadata": {"name": MIRRORS_NAMESPACE}})
        self.forge = Forge()
        meta = ObjectMeta(name="web", namespace="acme", creation_timestamp="2026-01-01T00:00:00Z", generation=1)
        self.world.create(VirtualControlPlane(metadata=meta, spec=VirtualControlPlaneSpec(version=version)))
        self.fault: Callable[[], str] = lambda: "none"
        self.restart()

    def restart(self) -> None:
        """Start another operator; it has not reconciled yet."""
        unused: Any = None

        def faults() -> str:
            return self.fault()

        watched = WorldCluster(self.world, [UnplacedController()])
        lower = WorldCluster(self.world, [MirroredObjects(HostRanges("https://192.0.2.1"))])
        lower.is_synced = True
        host = Host(
            home=unused,
            lower=lower,
            kept=WorldCluster(self.world, [HostObjectController(watched)], faults=faults),
            connection=unused,
            runtime=unused,
            placement=cast("Placement", self.forge),
            ranges=HostRanges("https://192.0.2.1"),
            instance="test",
        )
        verdicts = Verdicts()
        planes = VirtualControlPlaneController(host, cast("asyncio.TaskGroup", _Ended()), verdicts)
        self.cluster = WorldCluster(self.world, [*controllers(CLUSTER_UID, None, verdicts), planes], faults=faults)

    def settle(self, seconds: float = 60.0) -> Json:
        """Run the operator, and return the status.

        Raises:
            Crash: A fault ended it.
        """
        for _ in range(3):
            self.cluster.settle(seconds / 4)
            self.world.count_quotas()
        self.cluster.settle(seconds / 4)
        return self.status()

    def change(self, version: str, restore: str = "") -> None:
        """Change the spec, as the API server admits it."""
        found = self.get()
        running = found.status.version
        if version and running and versions.is_before(version, running):
            assert restore, "the API server refuses this"
        snapshots_of = replace(found.spec.snapshots, restore=restore or found.spec.snapshots.restore)
        spec = replace(found.spec, version=version, snapshots=snapshots_of)
        if spec != found.spec:
            generation = {"generation": found.metadata.generation + 1}
            patch = {"metadata": generation, "spec": msgspec.to_builtins(spec)}
            self.world.patch(VirtualControlPlane.resource, KEY, patch)

    def soak(self, seconds: int) -> None:
        """Change how long the next version behaves as the one before."""
        patch = {"spec": {"upgrade": {"soakSeconds": seconds}}}
        self.world.patch(VirtualControlPlane.resource, KEY, patch)

    def sleep(self) -> None:
        """Have it sleep: its process has ended."""
        self.forge.runs = ""
        status = {
            "phase": PlanePhase.ASLEEP.value,
            "nextWake": "2030-01-01T00:00:00Z",
            "observedGeneration": self.get().metadata.generation,
            "kubeconfigSecret": "web-kubeconfig",
        }
        self.world.patch(VirtualControlPlane.resource, KEY, {"status": status})

    def wake(self) -> None:
        """Have it wake: its time has come."""
        self.world.patch(VirtualControlPlane.resource, KEY, {"status": {"nextWake": "2000-01-01T00:00:00Z"}})

    def complete(self) -> None:
        """Record that users can work inside, as the controller does for a link."""
        last = self.status().get("lastUpgrade", {})
        if last.get("soaks"):
            patch = {"status": {"lastUpgrade": {"soaked": last["started"]}}}
            self.world.patch(VirtualControlPlane.resource, KEY, patch)
            return
        if last.get("started") and not last.get("completed"):
            patch = {"status": {"lastUpgrade": {"completed": last["started"]}}}
            self.world.patch(VirtualControlPlane.resource, KEY, patch)

    def get(self) -> VirtualControlPlane:
        """Return the control plane."""
        return msgspec.convert(self.world.get(VirtualControlPlane.resource, KEY), VirtualControlPlane)

    def status(self) -> Json:
        """Return the status."""
        return self.world.get(VirtualControlPlane.resource, KEY).get("status", {})

    def told(self, type_: str = "Ready") -> tuple[str, str]:
        """Return the reason and the message of a condition; empty if there is none."""
        found = [each for each in self.status()["conditions"] if each["type"] == type_]
        return (found[0]["reason"], found[0]["message"]) if found else ("", "")


class _Ended:
    """A group whose tasks end at once: no client connects in these tests."""

    def create_task(self, work: Any) -> Any:  # noqa: ANN401 - a coroutine and a task
        """Return a task that has ended."""
        work.close()
        task = asyncio.get_running_loop().create_future()
        task.set_result(None)
        return task
