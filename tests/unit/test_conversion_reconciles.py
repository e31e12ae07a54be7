"""The controller of conversions, in a world without I/O (H01)."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import CONTROL_PLANE, CONVERTING, REQUESTED_PHASE, SUSPENDED, TENANT_UID
from tenantry.api.model import Condition, ConditionStatus, Json, ObjectMeta
from tenantry.api.tenant import Isolation, Tenant, TenantSpec, TenantStatus
from tenantry.api.virtualcontrolplane import PREFIX, PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers import watched
from tenantry.controllers.conversion import objects, sides
from tenantry.controllers.conversion.controller import (
    IN_SHARDS,
    MOST_LOOK_SECONDS,
    OBSTACLE_SECONDS,
    RETRY_SECONDS,
    UNPLACED,
    ConversionController,
)
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections, PlaneSides
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS
from testkit.model import World
from testkit.worldcluster import WorldCluster
from testkit.worlds import user


class _OtherWatches:
    """Holds the watches of the other controllers."""

    name = "others"
    kind = Namespace

    def watches(self) -> list[Watch]:
        """Return them."""
        return [watched.watch(each.resource, lambda _: ()) for each in (Namespace, RoleBinding)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


def world_at(step: ConversionStep | None, *, expires_at: str = "", **labels: str) -> World:
    """Return a world with the tenant acme, which is to get a control plane."""
    found = World()
    isolation = Isolation(control_plane=ControlPlaneChoice.VIRTUAL)
    owners = (user("alice"),)
    spec = TenantSpec(owners=owners, isolation=isolation, expires_at=expires_at)
    conversion = Conversion(to=ControlPlaneChoice.VIRTUAL, step=step, message="before") if step else UNSET
    found.create(Tenant(metadata=ObjectMeta(name="acme"), spec=spec, status=TenantStatus(conversion=conversion)))
    uid = found.get(Tenant.resource, "acme")["metadata"]["uid"]
    found.create(Namespace(metadata=ObjectMeta(name="other")))
    for each in objects.EVERY:
        # A World knows the kinds of its objects.
        found.put_in(each, {"metadata": {"name": "known", "namespace": "other"}})
    found.create(Namespace(metadata=ObjectMeta(name="acme", labels={TENANT_UID: uid, **labels})))
    return found


def journal(world: World) -> Json:
    """Return the journal."""
    found: Json = world.get(Tenant.resource, "acme")["status"]["conversion"]
    return found


async def reconciled(world: World, made: ConversionController) -> float | None:
    """Reconcile the tenant once."""
    return await made.reconcile(WorldCluster(world, [made, _OtherWatches()]), "acme", 0)


@pytest.mark.parametrize("obstacle", [UNPLACED, IN_SHARDS])
@pytest.mark.parametrize("step", [None, ConversionStep.PREPARING, ConversionStep.MOVING], ids=str)
async def test_an_operator_without_control_planes_reports_why(step: ConversionStep | None, obstacle: str) -> None:
    world = world_at(step)
    again = await reconciled(world, ConversionController(None, obstacle))
    assert again == (RETRY_SECONDS if step is None else OBSTACLE_SECONDS)
    assert (journal(world)["step"], journal(world)["message"]) == (step or "Refused", obstacle)


async def test_an_ended_lease_refuses() -> None:
    world = world_at(None, expires_at="2020-01-01T00:00:00Z")
    await reconciled(world, ConversionController(PlaneConnections()))
    assert "Tenant 'acme' is suspended, or its lease has ended" in journal(world)["message"]


@pytest.mark.parametrize("step", [ConversionStep.PREPARING, ConversionStep.MOVING], ids=str)
async def test_a_control_plane_that_sleeps_is_woken(step: ConversionStep) -> None:
    world = world_at(step)
    status = VirtualControlPlaneStatus(phase=PlanePhase.ASLEEP)
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="acme", namespace="acme"), status=status))
    made = ConversionController(PlaneConnections())
    await reconciled(world, made)
    key = "acme/acme"
    first = world.get(VirtualControlPlane.resource, key)["metadata"]["annotations"][REQUESTED_PHASE]
    assert first.split(" ")[0] == "Awake"
    version = world.get(VirtualControlPlane.resource, key)["metadata"]["resourceVersion"]
    await reconciled(world, made)
    assert world.get(VirtualControlPlane.resource, key)["metadata"]["resourceVersion"] == version


async def served(
    world: World, made: ConversionController, connections: PlaneConnections, *inside_names: str
) -> float | None:
    """Reconcile the tenant once, while its control plane is connected, which has nothing but these ConfigMaps."""
    uid = world.get(VirtualControlPlane.resource, "acme/acme")["metadata"]["uid"]
    home, inside = WorldCluster(world, [made, _OtherWatches()]), World()
    inside.create(Namespace(metadata=ObjectMeta(name="other")))
    for each in objects.EVERY:
        inside.put_in(each, {"metadata": {"name": "known", "namespace": "other"}})
    inside.create(Namespace(metadata=ObjectMeta(name="acme")))
    for each in inside_names:
        inside.put_in(objects.CONFIG_MAPS, {"metadata": {"name": each, "namespace": "acme"}})
    profile = Profile(owner_uid=uid, namespace="acme", prefix=PREFIX)
    above = WorldCluster(inside, [])
    connections.put("acme/acme", PlaneSides(profile=profile, upper=above, lower=home.writer, reader=home.live))
    return await made.reconcile(home, "acme", 0)


def closed_world() -> World:
    """Return a world whose tenant is in the step Moving."""
    world = world_at(ConversionStep.MOVING, **{CONTROL_PLANE: "acme", CONVERTING: "true"})
    ready = Condition(
        type=reasons.READY,
        status=ConditionStatus.TRUE,
        reason=reasons.ESTABLISHED,
        message="it serves",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    meta = ObjectMeta(name="acme", namespace="acme")
    world.create(VirtualControlPlane(metadata=meta, status=VirtualControlPlaneStatus(conditions=(ready,))))
    return world


async def test_too_much_inside_is_reported_while_objects_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """VCP-63: there is no way back from the step Moving, so that the journal has to name what to do."""
    monkeypatch.setattr(sides, "MOST_BYTES", 0)
    world, connections = closed_world(), PlaneConnections()
    assert await served(world, ConversionController(connections), connections, "notes") == RETRY_SECONDS
    assert journal(world)["step"] == "Moving"
    assert "the objects inside have more than 0 MiB together" in journal(world)["message"]


async def test_objects_wait_while_the_tenant_is_suspended() -> None:
    world, connections = closed_world(), PlaneConnections()
    world.patch(Namespace.resource, "acme", {"metadata": {"labels": {SUSPENDED: "true"}}})
    assert await served(world, ConversionController(connections), connections) == RETRY_SECONDS
    assert journal(world)["message"] == "objects move: waits for the suspension to end"
    assert not world.list(RoleBinding.resource, "acme")


async def test_what_refuses_at_the_last_moment_names_the_way_back() -> None:
    world, connections = closed_world(), PlaneConnections()
    world.put_in(objects.DAEMON_SETS, {"metadata": {"name": "d", "namespace": "acme", "uid": "u"}})
    assert await served(world, ConversionController(connections), connections) == RETRY_SECONDS
    assert journal(world)["step"] == "Preparing"
    assert journal(world)["message"].startswith("cannot move: DaemonSet 'd'")
    assert journal(world)["message"].endswith(", or set spec.isolation.controlPlane back to Shared")


async def test_it_looks_less_often_while_it_waits_for_the_same() -> None:
    world, connections = closed_world(), PlaneConnections()
    made = ConversionController(connections)
    for name in ("p", "q"):
        pod = {"nodeName": "n", "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}
        marks = {"vcp.tenantry.dev/adopted": "true", "vcp.tenantry.dev/uid": "u", "vcp.tenantry.dev/name": name}
        uid = world.get(VirtualControlPlane.resource, "acme/acme")["metadata"]["uid"]
        meta = {"name": name, "namespace": "acme", "annotations": marks, "labels": {"vcp.tenantry.dev/owner": uid}}
        world.put_in(PODS, {"metadata": meta, "spec": pod})
    world.put_in(objects.JOBS, {"metadata": {"name": "j", "namespace": "acme"}})
    await served(world, made, connections)
    found = [await served(world, made, connections) for _ in range(6)]
    assert journal(world)["message"] == "objects move: stage rest, waits for the end of Job 'j'"
    assert found[-1] == MOST_LOOK_SECONDS
    assert found == sorted(found, key=lambda each: each or 0.0)


async def test_it_looks_less_often_while_the_same_write_changes_nothing() -> None:
    """A write that one side drops, as into a namespace that is gone, must not be sent without a pause."""
    world, connections = closed_world(), PlaneConnections()
    made = ConversionController(connections)
    world.put_in(objects.CONFIG_MAPS, {"metadata": {"name": "settings", "namespace": "acme"}, "data": {"a": "1"}})
    found = [await served(world, made, connections) for _ in range(6)]
    assert found[0] == 0.0
    assert found[-1] == MOST_LOOK_SECONDS
    # An object of another kind is another write, also with the same name.
    world.delete(objects.CONFIG_MAPS, "acme/settings")
    world.put_in(objects.SECRETS, {"metadata": {"name": "settings", "namespace": "acme"}, "type": "Opaque"})
    assert await served(world, made, connections) == 0.0
