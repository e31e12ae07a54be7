"""Control planes that sleep: the operator's controller in a world without I/O (H01)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tenantry.api import reasons
from tenantry.api.errors import LocalError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CONTROL_PLANE, SUSPENDED, TENANT_UID
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE, PlaneCredentials
from tenantry.api.virtualcontrolplane import (
    PROCESS_FINALIZER,
    PlanePhase,
    VirtualControlPlane,
    VirtualControlPlaneStatus,
    kubeconfig_secret_name,
)
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.virtualcontrolplane import apiservice, desired, sleeper
from tenantry.controllers.virtualcontrolplane.controller import VirtualControlPlaneController
from tenantry.controllers.virtualcontrolplane.egress import HostRanges
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController
from tenantry.controllers.virtualcontrolplane.link import Host, MirroredObjects
from tenantry.controllers.virtualcontrolplane.rotation import digest
from tenantry.engine.runtime import Controller
from tenantry.engine.tasks import cancelled_at_end
from tenantry.hosting.placement import Placement, ServerEndpoint
from tenantry.hosting.versions import HostedVersion
from testkit.model import Json, World
from testkit.treeworld import world_of
from testkit.worldcluster import WorldCluster

KEY = "acme/web"
READY = Condition(
    type=reasons.READY,
    status=ConditionStatus.TRUE,
    reason=reasons.ASLEEP,
    message="it sleeps",
    last_transition_time="2026-01-01T00:00:00Z",
)
ASLEEP = VirtualControlPlaneStatus(
    observed_generation=1,
    phase=PlanePhase.ASLEEP,
    next_wake="2030-01-01T00:00:00Z",
    kubeconfig_secret="vcp-web",
    credentials=PlaneCredentials(owners=(digest("User alice"),)),
    conditions=(READY,),
)


class Bed:
    """A place whose control planes sleep. A test puts into `answers` what happens to those who wait for clients."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.text = ""
        self.is_open = True

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`."""
        return (HostedVersion(name="1.36", kubernetes="1.36.3", is_default=True),)

    async def open(self, uid: str, *, is_open: bool) -> None:
        """See `Placement.open`."""
        assert uid
        self.is_open = is_open

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        assert uid
        answer = await self.answers.get()
        if answer is not None:
            raise answer

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        assert uid

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        assert uid

    async def kubeconfig(self, uid: str) -> str:
        """See `Placement.kubeconfig`."""
        assert uid
        return self.text

    def endpoint(self, uid: str) -> ServerEndpoint | None:
        """See `Placement.endpoint`."""
        assert uid
        return None


class Bell(WorldCluster):
    """The operator's cluster, whose controllers are woken by something else than a change."""

    def __init__(self, world: World, controllers: Sequence[Controller]) -> None:
        self.rung = asyncio.Event()
        super().__init__(world, controllers)

    def wake(self, kind: type, key: str) -> None:
        """See `Cluster.wake`."""
        # No controller of Tenants runs here.
        if kind is VirtualControlPlane:
            super().wake(kind, key)
        self.rung.set()


class Night:
    """An operator in a world with the control plane web, which sleeps."""

    def __init__(self, world: World, group: asyncio.TaskGroup) -> None:
        self.world = world
        self.bed = Bed()
        lower = WorldCluster(world, [MirroredObjects(HostRanges("https://192.0.2.1"))])
        lower.is_synced = True
        # Without a link, of all that links share only these are used.
        unused: Any = None
        host = Host(
            home=unused,
            lower=lower,
            kept=WorldCluster(world, [HostObjectController(unused)]),
            connection=unused,
            runtime=unused,
            placement=cast("Placement", self.bed),
            ranges=HostRanges("https://192.0.2.1"),
            instance="test",
        )
        self.controller = VirtualControlPlaneController(host, group, Verdicts())
        self.home = Bell(world, [self.controller])

    async def reconcile(self) -> Json:
        """Reconcile the control plane once, and return it."""
        self.home.look()
        await self.controller.reconcile(self.home, KEY, 0)
        return self.get()

    def get(self) -> Json:
        """Return the control plane."""
        return self.world.get(VirtualControlPlane.resource, KEY)


@pytest.fixture
def world() -> World:
    """Return a world with the tenant acme, and a control plane in it that sleeps."""
    found = world_of()
    meta = ObjectMeta(name="web", namespace="acme", generation=1, finalizers=(PROCESS_FINALIZER,))
    found.create(VirtualControlPlane(metadata=meta, status=ASLEEP))
    for resource in (desired.SECRETS, desired.SERVICE_ACCOUNTS, desired.ROLE_BINDINGS, apiservice.SERVICES):
        # A World knows the kinds of its objects.
        found.put_in(resource, {"metadata": {"name": "known", "namespace": "acme"}, "spec": {}})
    return found


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), LocalError("gone"), ValueError("a bug")], ids=str
)
async def test_no_error_of_the_place_ends_the_waiting_for_clients(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H01: it would end all controllers; the place is asked again."""
    monkeypatch.setattr(sleeper, "FIRST_PAUSE_SECONDS", 0.0)
    async with cancelled_at_end() as group:
        night = Night(world, group)
        assert (await night.reconcile())["status"]["phase"] == PlanePhase.ASLEEP
        for answer in (error, error, None):
            night.bed.answers.put_nowait(answer)
        await night.home.rung.wait()
        assert (await night.reconcile())["status"]["wakes"] == 1


def mark(world: World, **metadata: object) -> None:
    """Change the metadata of the tenant's namespace."""
    world.patch(Namespace.resource, "acme", {"metadata": metadata})


async def test_no_client_of_a_suspended_tenant_wakes_it(world: World) -> None:
    """H01: it would be an administrator inside until the operator has taken that away; later clients wake it."""
    async with cancelled_at_end() as group:
        night = Night(world, group)
        await night.reconcile()
        night.bed.answers.put_nowait(None)
        await night.home.rung.wait()
        mark(world, labels={SUSPENDED: "true"})
        assert "wakes" not in (await night.reconcile())["status"]
        mark(world, labels={SUSPENDED: None})
        # The client of before is gone.
        assert "wakes" not in (await night.reconcile())["status"]
        night.home.rung.clear()
        night.bed.answers.put_nowait(None)
        await night.home.rung.wait()
        assert (await night.reconcile())["status"]["wakes"] == 1


async def test_a_suspension_shuts_clients_out_also_if_nothing_can_be_written_for_its_owners(world: World) -> None:
    """H01: a refused Role in tenantry-kubeconfigs delays no suspension, and is reported."""
    async with cancelled_at_end() as group:
        night = Night(world, group)
        await night.reconcile()
        assert night.bed.is_open
        # The namespace tenantry-kubeconfigs does not exist here.
        mark(world, labels={SUSPENDED: "true", CONTROL_PLANE: "web"})
        with pytest.raises(NotFound):
            await night.reconcile()
        assert not night.bed.is_open
        (told,) = [each for each in night.get()["status"]["conditions"] if each["type"] == reasons.READY]
        assert (told["status"], told["reason"]) == ("False", reasons.API_ERROR)
        assert KUBECONFIGS_NAMESPACE in told["message"]


async def test_a_foreign_secret_with_the_name_of_the_kubeconfig_ends_nothing(world: World) -> None:
    """H01: an owner would stop the snapshots of the schedule."""
    name = kubeconfig_secret_name("web")
    world.put_in(desired.SECRETS, {"metadata": {"name": name, "namespace": "acme"}, "data": {}})
    async with cancelled_at_end() as group:
        night = Night(world, group)
        night.bed.text = "users: []"
        for _ in range(3):
            assert (await night.reconcile())["status"]["phase"] == PlanePhase.ASLEEP
        assert world.get(desired.SECRETS, f"acme/{name}")["data"] == {}


async def test_the_end_of_its_namespace_wakes_nothing(world: World) -> None:
    """H01: the pods end with the namespace, which changes their digest."""
    world.patch(VirtualControlPlane.resource, KEY, {"status": {"podsAtSleep": "other"}})
    world.delete(Namespace.resource, "acme")
    async with cancelled_at_end() as group:
        night = Night(world, group)
        before = night.get()
        assert await night.reconcile() == before


async def test_a_changed_spec_wakes_it_also_if_its_namespace_was_not_known_at_first(world: World) -> None:
    """H01: the watches begin at once, and nothing is reported that hides the change."""
    world.patch(VirtualControlPlane.resource, KEY, {"metadata": {"generation": 2}})
    known = world.objects.pop((Namespace.resource, "acme"))
    uid = known["metadata"]["labels"][TENANT_UID]
    async with cancelled_at_end() as group:
        night = Night(world, group)
        before = night.get()
        assert await night.reconcile() == before
        world.put_in(Namespace.resource, known)
        mark(world, labels={TENANT_UID: None})
        (told,) = [each for each in (await night.reconcile())["status"]["conditions"] if each["type"] == reasons.READY]
        assert told["reason"] == reasons.INVALID_SPEC
        mark(world, labels={TENANT_UID: uid})
        assert (await night.reconcile())["status"]["wakes"] == 1
