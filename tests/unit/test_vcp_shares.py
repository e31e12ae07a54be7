"""Control planes in their tenant's tree of shares: the operator's controllers in a world without I/O (H01)."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tenantry.api import reasons
from tenantry.api.errors import LocalError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import ObjectMeta
from tenantry.api.quota import Quota
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import (
    MIRRORS_NAMESPACE,
    PROCESS_FINALIZER,
    PlaneLimits,
    PlaneResources,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.controllers.operator import controllers
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.virtualcontrolplane import apiservice
from tenantry.controllers.virtualcontrolplane.controller import VirtualControlPlaneController
from tenantry.controllers.virtualcontrolplane.egress import HostRanges
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController
from tenantry.controllers.virtualcontrolplane.link import Host, MirroredObjects
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.hosting.authorities import AuthorityFiles
from tenantry.hosting.noderuntime import NodeEndpoint, NodeRuntime
from tenantry.hosting.placement import RunningPlane, ServerEndpoint
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.local.hostedsnapshots import LocalSnapshots
from tenantry.local.paths import ClusterPaths
from tenantry.world.shares.amounts import thousandths
from testkit.model import Json, World
from testkit.runs import FAULTS
from testkit.treeworld import add_subnamespace, settle, world_of
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID

MEMORY = "limits.memory"


class Shelf:
    """A place whose processes exist, and whose API servers never answer: the links are not part of these tests."""

    def __init__(self) -> None:
        # Not used: no control plane runs.
        self.snapshots = LocalSnapshots(ClusterPaths(Path()), self.stop, lambda uid, _: uid)
        self.processes: set[str] = set()

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`."""
        return (HostedVersion(name="1.36", kubernetes="1.36.3", is_default=True),)

    async def provide(self, version: str) -> None:
        """See `Placement.provide`."""
        raise NotImplementedError(version)

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        self.processes.add(plane.uid)
        raise LocalError("it does not answer")

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        self.processes.discard(uid)

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        self.processes.discard(uid)

    async def open(self, uid: str, *, is_open: bool) -> None:
        """See `Placement.open`."""
        assert uid
        assert is_open

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        raise NotImplementedError(uid)

    async def kubeconfig(self, uid: str) -> str:  # noqa: ARG002 - none has started
        """See `Placement.kubeconfig`."""
        return ""

    async def encryption(self, uid: str) -> bytes:  # noqa: ARG002 - none has started
        """See `Placement.encryption`."""
        return b""

    async def follow(self, has: Callable[[str], bool], moved: Callable[[str], None]) -> None:
        """See `Placement.follow`."""
        raise NotImplementedError(has, moved)

    def endpoint(self, uid: str) -> ServerEndpoint | None:
        """See `Placement.endpoint`."""
        raise NotImplementedError(uid)

    @property
    def snapshot_kinds(self) -> frozenset[SnapshotPlaceKind]:
        """See `Placement.snapshot_kinds`."""
        return frozenset()

    def snapshots_at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        raise NotImplementedError(place)

    def connected(self, uid: str) -> AbstractAsyncContextManager[None]:
        """See `Placement.connected`."""
        raise NotImplementedError(uid)

    async def has_moved(self, uid: str) -> bool:
        """See `Placement.has_moved`."""
        raise NotImplementedError(uid)

    def activity(self, uid: str) -> tuple[Path, ...]:
        """See `Placement.activity`."""
        raise NotImplementedError(uid)

    def unreachable(self, uid: str) -> str:
        """See `Placement.unreachable`."""
        raise NotImplementedError(uid)

    @property
    def authorities(self) -> AuthorityFiles:
        """See `Placement.authorities`."""
        raise NotImplementedError

    def node_runtime(self) -> NodeRuntime | None:
        """See `Placement.node_runtime`."""
        raise NotImplementedError

    def node_endpoint(self, uid: str) -> NodeEndpoint | None:
        """See `Placement.node_endpoint`."""
        raise NotImplementedError(uid)

    def gate(self, uid: str) -> Path:
        """See `Placement.gate`."""
        raise NotImplementedError(uid)

    def admission(self, uid: str) -> Path:
        """See `Placement.admission`."""
        raise NotImplementedError(uid)

    def forwarded(self, uid: str) -> Path:
        """See `Placement.forwarded`."""
        raise NotImplementedError(uid)

    async def front_proxy_tls(self, uid: str) -> ssl.SSLContext:
        raise NotImplementedError(uid)

    async def kubelet_tls(self, uid: str, addresses: Sequence[str], context: ssl.SSLContext | None) -> ssl.SSLContext:
        """See `Placement.kubelet_tls`."""
        raise NotImplementedError(uid, addresses, context)


class Place:
    """The tenant acme, whose operator may be restarted."""

    def __init__(self, **quota: str) -> None:
        self.world = world_of(quota={key.replace("_", "."): value for key, value in quota.items()})
        self.world.put_in(Namespace.resource, {"metadata": {"name": MIRRORS_NAMESPACE}})
        # A World knows the kinds of its objects.
        self.world.put_in(apiservice.SERVICES, {"metadata": {"name": "first", "namespace": "acme"}})
        self.shelf = Shelf()
        self.restart()

    def restart(self, faults: Callable[[], str] = lambda: "none") -> None:
        """Start another operator.

        Raises:
            Crash: A fault ended it.
        """
        verdicts = Verdicts()
        # Without a link, of all that links share only the place and the ranges of Services are used.
        shared: Any = None
        lower = WorldCluster(self.world, [MirroredObjects(HostRanges("https://192.0.2.1"))])
        lower.is_synced = True
        watched = WorldCluster(self.world, [UnplacedController()])
        kept = WorldCluster(self.world, [HostObjectController(watched)], faults=faults)
        host = Host(
            home=shared,
            lower=lower,
            kept=kept,
            connection=shared,
            runtime=shared,
            placement=self.shelf,
            ranges=HostRanges("https://192.0.2.1"),
            instance="test",
        )
        planes = VirtualControlPlaneController(host, cast("asyncio.TaskGroup", shared), verdicts)
        self.cluster = WorldCluster(self.world, [*controllers(CLUSTER_UID, None, verdicts), planes], faults=faults)
        self.settle()

    def settle(self) -> None:
        """Run the operator, and what Kubernetes' own controllers do, until nothing changes."""
        for _ in range(3):
            self.cluster.settle(20)
            self.world.count_quotas()
            self.world.finish_deletions()
        self.cluster.settle(20)

    def create(self, name: str, limit: str = "256Mi", *, namespace: str = "acme") -> None:
        """Create a control plane."""
        meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp="2026-01-01T00:00:00Z")
        resources = PlaneResources(limits=PlaneLimits(memory=limit))
        self.world.create(VirtualControlPlane(metadata=meta, spec=VirtualControlPlaneSpec(resources=resources)))
        self.settle()

    def resize(self, name: str, limit: str) -> None:
        """Change the memory limit of a control plane."""
        patch = {"spec": {"resources": {"limits": {"memory": limit}}}}
        self.world.patch(VirtualControlPlane.resource, f"acme/{name}", patch)
        self.settle()

    def delete(self, name: str) -> None:
        """Delete a control plane."""
        self.world.delete(VirtualControlPlane.resource, f"acme/{name}")
        self.settle()

    def get(self, name: str, namespace: str = "acme") -> Json:
        """Return a control plane."""
        return self.world.get(VirtualControlPlane.resource, f"{namespace}/{name}")

    def runs(self, name: str, namespace: str = "acme") -> bool:
        """Return whether a control plane has a process."""
        return self.get(name, namespace)["metadata"]["uid"] in self.shelf.processes

    def charged(self, name: str) -> str:
        """Return the memory limit that a control plane is charged; "" for none."""
        return self.get(name).get("status", {}).get("charged", {}).get(MEMORY, "")

    def told(self, name: str, type_: str = "Ready") -> tuple[str, str]:
        """Return the reason and the message of a condition."""
        found = [each for each in self.get(name)["status"]["conditions"] if each["type"] == type_]
        return found[0]["reason"], found[0]["message"]

    def share(self, namespace: str = "acme") -> dict[str, str]:
        """Return the share of a namespace."""
        found: dict[str, str] = self.world.get(ResourceQuota.resource, f"{namespace}/{QUOTA}")["spec"]["hard"]
        return found

    def planes(self) -> list[Json]:
        """Return all control planes."""
        return self.world.list(VirtualControlPlane.resource)

    def held(self) -> int:
        """Return the memory limit that the namespace and the control planes have together, in thousandths."""
        charged = [each.get("status", {}).get("charged", {}).get(MEMORY, "0") for each in self.planes()]
        return sum(map(thousandths, [self.share()[MEMORY], *charged]))


def test_a_control_plane_takes_its_share_of_the_keys_that_the_quota_has() -> None:
    """H01: the namespace has the rest; the share returns with the end of the process."""
    place = Place(cpu="1", pods="5", limits_memory="1Gi")
    place.create("web")
    assert place.runs("web")
    assert place.share() == {"requests.cpu": "950m", "pods": "5", MEMORY: "768Mi"}
    (row,) = place.world.get(TenantResourceQuota.resource, "acme")["status"]["tree"]
    assert row["claims"] == [
        {"claim": "web", "kind": "VirtualControlPlane", "assigned": {MEMORY: "256Mi", "requests.cpu": "50m"}}
    ]
    place.delete("web")
    assert place.share() == {"requests.cpu": "1", "pods": "5", MEMORY: "1Gi"}
    assert not place.shelf.processes


def test_a_tenant_without_a_quota_has_control_planes_that_cost_nothing() -> None:
    """H01: the number of them is bounded by the counts of objects alone."""
    place = Place()
    place.create("web")
    assert place.runs("web")
    assert (TenantResourceQuota.resource, "acme") not in place.world.objects


def test_without_room_no_process_starts_until_there_is_some() -> None:
    """H01: the condition names the key, what is requested and what is free; an end or a larger quota wakes it."""
    place = Place(limits_memory="400Mi")
    place.create("first")
    place.create("second")
    assert (place.runs("first"), place.runs("second"), place.charged("second")) == (True, False, "")
    reason, message = place.told("second")
    assert reason == reasons.QUOTA_INSUFFICIENT
    assert "limits.memory: 256Mi requested, 144Mi available" in message
    assert "'control plane first' has 256Mi" in message
    place.delete("first")
    assert (place.runs("second"), place.charged("second")) == (True, "256Mi")
    place.create("third")
    assert not place.runs("third")
    place.world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {MEMORY: "1Gi"}}}})
    place.settle()
    assert place.runs("third")


def test_one_that_waits_can_be_deleted_and_takes_nothing() -> None:
    """H01: created and deleted again and again, the sums of the tree stay what they are."""
    place = Place(limits_memory="300Mi")
    for _ in range(3):
        place.create("large", "1Gi")
        assert not place.runs("large")
        place.create("web")
        assert place.runs("web")
        place.delete("web")
        place.delete("large")
        assert place.share() == {MEMORY: "300Mi"}
    # What waited before gets nothing of a larger quota.
    place.world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {MEMORY: "4Gi"}}}})
    place.settle()
    assert place.share() == {MEMORY: "4Gi"}


def test_a_restart_keeps_what_is_charged() -> None:
    """H01: the status has it; an older request that waits does not get it."""
    place = Place(limits_memory="400Mi")
    place.create("web")
    place.create("more")
    place.restart()
    assert (place.charged("web"), place.runs("more"), place.share()) == ("256Mi", False, {MEMORY: "144Mi"})


def test_changed_resources_are_charged_again() -> None:
    """H01: less is given back at once; more must fit, and the process keeps what it has until it does."""
    place = Place(limits_memory="1Gi")
    place.create("web", "512Mi")
    assert place.share() == {MEMORY: "512Mi"}
    place.resize("web", "200Mi")
    assert (place.charged("web"), place.share()) == ("200Mi", {MEMORY: "824Mi"})
    place.resize("web", "2Gi")
    assert (place.charged("web"), place.share()) == ("200Mi", {MEMORY: "824Mi"})
    assert place.runs("web")
    place.resize("web", "1Gi")
    assert (place.charged("web"), place.share()) == ("1Gi", {MEMORY: "0"})


def test_a_control_plane_of_a_child_takes_the_share_of_the_child() -> None:
    """H01: no other namespace of the tenant pays for it."""
    place = Place(limits_memory="2Gi")
    child = add_subnamespace(place.world, "team", quota=Quota(hard={MEMORY: "300Mi"}))
    place.settle()
    place.create("web", namespace=child)
    assert place.runs("web", child)
    assert (place.share(), place.share(child)) == ({MEMORY: "1748Mi"}, {MEMORY: "44Mi"})
    place.create("more", namespace=child)
    assert not place.runs("more", child)


def test_a_process_whose_finalizer_is_gone_is_ended_with_its_object() -> None:
    """H01: a policy refuses that to owners; for an administrator, the process is not left without a charge."""
    place = Place(limits_memory="1Gi")
    place.create("web")
    place.world.patch(VirtualControlPlane.resource, "acme/web", {"metadata": {"finalizers": []}})
    place.world.delete(VirtualControlPlane.resource, "acme/web")
    place.settle()
    assert (place.shelf.processes, place.share()) == (set(), {MEMORY: "1Gi"})


def test_where_no_process_can_run_nothing_is_charged() -> None:
    """H01: on an existing cluster, the condition says so, and the quota stays the tenant's."""
    world: World = world_of(quota={MEMORY: "1Gi"})
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme"), spec=VirtualControlPlaneSpec()))
    WorldCluster(world, [*controllers(CLUSTER_UID), UnplacedController()]).settle(20)
    settle(world)
    assert world.get(ResourceQuota.resource, f"acme/{QUOTA}")["spec"]["hard"] == {MEMORY: "1Gi"}
    found = world.get(VirtualControlPlane.resource, "acme/web")
    assert PROCESS_FINALIZER not in found["metadata"].get("finalizers", [])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_no_memory_is_given_twice(seed: int) -> None:
    """H01, X03: before each request, with lost requests and operators that end; and the end is exact."""
    chance = random.Random(seed)
    place = Place(limits_memory="1Gi")
    whole = thousandths("1Gi")

    def fault() -> str:
        assert place.held() <= whole
        charged = {each["metadata"]["uid"] for each in place.planes() if each.get("status", {}).get("charged")}
        assert place.shelf.processes <= charged
        return chance.choice(FAULTS)

    for turn in range(10):
        names = [each["metadata"]["name"] for each in place.planes()]
        match chance.randint(0, 3) if names else 0:
            case 0 | 1:
                meta = ObjectMeta(name=f"p{turn}", namespace="acme", creation_timestamp=f"2026-01-01T00:00:{turn:02}Z")
                limits = PlaneLimits(memory=f"{chance.randint(2, 8)}00Mi")
                spec = VirtualControlPlaneSpec(resources=PlaneResources(limits=limits))
                place.world.create(VirtualControlPlane(metadata=meta, spec=spec))
            case 2:
                patch = {"spec": {"resources": {"limits": {"memory": f"{chance.randint(2, 8)}00Mi"}}}}
                place.world.patch(VirtualControlPlane.resource, f"acme/{chance.choice(names)}", patch)
            case _:
                place.world.delete(VirtualControlPlane.resource, f"acme/{chance.choice(names)}")
        with suppress(Crash):
            place.restart(fault)
    place.restart()
    assert place.held() == whole
    for each in place.planes():
        name = each["metadata"]["name"]
        wanted = each["spec"]["resources"]["limits"]["memory"]
        if place.charged(name) != wanted:
            reason, message = place.told(name, "Stalled")
            assert (reason, f"{MEMORY}: {wanted} requested" in message) == (reasons.QUOTA_INSUFFICIENT, True)
        assert place.runs(name) == bool(place.charged(name))
