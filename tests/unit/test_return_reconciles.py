"""The controller of conversions returns a tenant, in a world without I/O (H01)."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import CONTROL_PLANE, CONVERTING, OWNER_ROLE, SUBNAMESPACE_UID, TENANT_UID
from tenantry.api.model import Condition, ConditionStatus, Json, ObjectMeta
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers import watched
from tenantry.controllers.conversion import objects, returns, surroundings
from tenantry.controllers.conversion import sides as both_sides
from tenantry.controllers.conversion.controller import OBSTACLE_SECONDS, RETRY_SECONDS, ConversionController
from tenantry.controllers.conversion.objects import CONFIG_MAPS, DAEMON_SETS, REPLICA_SETS
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections, PlaneSides
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror.profile import Profile
from testkit.model import World
from testkit.worldcluster import WorldCluster
from testkit.worlds import user

KEY = "acme/acme"


class _OtherWatches:
    """Holds the watches of the other controllers."""

    name = "others"
    kind = Namespace

    def watches(self) -> list[Watch]:
        """Return them."""
        kinds = [watched.watch(each.resource, lambda _: ()) for each in (Namespace, RoleBinding)]
        return [watched.subnamespaces(lambda _: ()), *kinds]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


class Returning:
    """A tenant that is to return, and its control plane.

    Args:
        step: The step of its journal; None for no journal.
    """

    def __init__(self, step: ConversionStep | None = None) -> None:
        self.host, self.inside = World(), World()
        conversion = Conversion(to=ControlPlaneChoice.SHARED, step=step) if step else UNSET
        spec = TenantSpec(owners=(user("alice"),))
        self.host.create(
            Tenant(metadata=ObjectMeta(name="acme"), spec=spec, status=TenantStatus(conversion=conversion))
        )
        labels = {TENANT_UID: self.host.get(Tenant.resource, "acme")["metadata"]["uid"], CONTROL_PLANE: "acme"}
        if step is ConversionStep.MOVING:
            labels[CONVERTING] = "true"
        for world in (self.host, self.inside):
            world.create(Namespace(metadata=ObjectMeta(name="default")))
            for each in objects.EVERY:
                # A World knows the kinds of its objects.
                own = {"name": "known", "namespace": "default", "labels": {f"{PREFIX}/lower": "true"}}
                world.put_in(each, {"metadata": own})
        self.host.create(Namespace(metadata=ObjectMeta(name="acme", labels=labels)))
        self.inside.create(Namespace(metadata=ObjectMeta(name="acme")))
        for each in (surroundings.DEFINITIONS, surroundings.API_SERVICES):
            self.inside.put_in(each, {"metadata": {"name": "known", "labels": {f"{PREFIX}/lower": "true"}}})
        role = {"metadata": {"name": OWNER_ROLE}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
        self.host.put_in(objects.CLUSTER_ROLES, role)
        ready = Condition(
            type=reasons.READY,
            status=ConditionStatus.TRUE,
            reason=reasons.ESTABLISHED,
            message="it serves",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        meta = ObjectMeta(name="acme", namespace="acme")
        self.host.create(VirtualControlPlane(metadata=meta, status=VirtualControlPlaneStatus(conditions=(ready,))))
        self.uid = self.host.get(VirtualControlPlane.resource, KEY)["metadata"]["uid"]
        self.connections = PlaneConnections()
        self.made = ConversionController(self.connections)

    @property
    def journal(self) -> Json:
        """Return the journal."""
        found: Json = self.host.get(Tenant.resource, "acme")["status"]["conversion"]
        return found

    @property
    def rights(self) -> set[str]:
        """Return the roles that the mirror has for the conversion."""
        return {each["roleRef"]["name"] for each in self.host.list(RoleBinding.resource, "acme")}

    async def reconcile(self, *, is_mirrored: bool) -> float | None:
        """Reconcile the tenant once, while its control plane is connected."""
        home = WorldCluster(self.host, [self.made, _OtherWatches()])
        profile = Profile(owner_uid=self.uid, namespace="acme", prefix=PREFIX)
        sides = PlaneSides(
            profile=profile,
            upper=WorldCluster(self.inside, []),
            lower=home.writer,
            reader=home.live,
            is_mirrored=is_mirrored,
        )
        self.connections.put(KEY, sides)
        return await self.made.reconcile(home, "acme", 0)


async def test_nothing_moves_before_all_of_it_can() -> None:
    world = Returning()
    world.inside.put_in(DAEMON_SETS, {"metadata": {"name": "d", "namespace": "acme"}})
    await world.reconcile(is_mirrored=True)
    assert (world.journal["to"], world.journal["step"]) == ("Shared", "Preparing")
    assert await world.reconcile(is_mirrored=True) == OBSTACLE_SECONDS
    assert world.journal["step"] == "Refused"
    assert world.journal["message"].startswith("cannot move: DaemonSet 'acme/d' is not supported in a conversion")
    assert world.journal["message"].endswith(", or set spec.isolation.controlPlane back to Virtual")
    assert world.rights == set()
    world.inside.delete(DAEMON_SETS, "acme/d")
    await world.reconcile(is_mirrored=True)
    assert world.rights == {"tenantry-converter", OWNER_ROLE}
    await world.reconcile(is_mirrored=True)
    assert world.journal["step"] == "Moving"


@pytest.mark.parametrize(("step", "is_mirrored"), [(ConversionStep.PREPARING, True), (ConversionStep.MOVING, False)])
async def test_objects_that_are_too_large_together_refuse(
    monkeypatch: pytest.MonkeyPatch, step: ConversionStep, *, is_mirrored: bool
) -> None:
    """VCP-63: an administrator inside would take the memory of the operator, and so stop all tenants."""
    monkeypatch.setattr(both_sides, "MOST_BYTES", 2**20)
    world = Returning(step)
    for name in ("a", "b"):
        meta = {"name": name, "namespace": "acme"}
        world.inside.put_in(CONFIG_MAPS, {"metadata": meta, "data": {"a": "x" * 600_000}})
    assert await world.reconcile(is_mirrored=is_mirrored) is not None
    if step is ConversionStep.MOVING:
        # Its rights were missing.
        await world.reconcile(is_mirrored=is_mirrored)
    assert world.journal["step"] == "Refused"
    assert "the objects inside have more than 1 MiB together" in world.journal["message"]
    assert (world.rights, world.host.list(CONFIG_MAPS, "acme")) == (set(), [])


async def test_a_return_that_has_begun_reports_that_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """VCP-63: programs inside write until they are shut out; the step stays, and goes on when there is less."""
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}, "data": {"a": "1"}})
    while not world.journal.get("begunAt"):
        await world.reconcile(is_mirrored=False)
    monkeypatch.setattr(both_sides, "MOST_BYTES", 2**20)
    large = {"metadata": {"name": "large", "namespace": "acme"}, "data": {"a": "x" * 2_000_000}}
    world.inside.put_in(CONFIG_MAPS, large)
    assert await world.reconcile(is_mirrored=False) == RETRY_SECONDS
    assert world.journal["step"] == "Moving"
    assert "the objects inside have more than 1 MiB together" in world.journal["message"]
    world.inside.delete(CONFIG_MAPS, "acme/large")
    for _ in range(5):
        await world.reconcile(is_mirrored=False)
    assert world.host.list(VirtualControlPlane.resource, "acme") == []


async def test_nothing_is_written_while_a_mirror_follows() -> None:
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}, "data": {"a": "1"}})
    await world.reconcile(is_mirrored=True)
    assert world.host.list(CONFIG_MAPS, "acme") == []
    assert world.rights == set()


async def test_the_control_plane_is_deleted_when_all_has_moved() -> None:
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}, "data": {"a": "1"}})
    for _ in range(5):
        await world.reconcile(is_mirrored=False)
    assert [each["data"] for each in world.host.list(CONFIG_MAPS, "acme")] == [{"a": "1"}]
    assert world.host.list(VirtualControlPlane.resource, "acme") == []
    await world.reconcile(is_mirrored=False)
    assert (world.journal["step"], world.rights) == ("Converted", set())
    version = world.host.get(Tenant.resource, "acme")["metadata"]["resourceVersion"]
    assert await world.reconcile(is_mirrored=False) is None
    assert world.host.get(Tenant.resource, "acme")["metadata"]["resourceVersion"] == version


async def test_what_refuses_after_the_namespace_was_closed_leaves_nothing_on_the_host() -> None:
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}})
    world.inside.put_in(REPLICA_SETS, {"metadata": {"name": "r", "namespace": "acme", "finalizers": ["x/y"]}})
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    assert world.journal["step"] == "Refused"
    assert world.host.list(CONFIG_MAPS, "acme") == []
    assert world.rights == set()


async def test_a_return_that_has_begun_only_goes_on() -> None:
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}})
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    assert world.journal["begunAt"]
    # A program of the tenant still writes.
    world.inside.put_in(REPLICA_SETS, {"metadata": {"name": "r", "namespace": "acme", "finalizers": ["x/y"]}})
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    assert world.journal["step"] == "Moving"
    assert [each["metadata"].get("finalizers") for each in world.host.list(REPLICA_SETS, "acme")] == [None]


# -- other namespaces inside ------------------------------------------------------------------------


def with_shop(step: ConversionStep | None = None) -> Returning:
    """Return a tenant with another namespace inside."""
    world = Returning(step)
    world.inside.create(Namespace(metadata=ObjectMeta(name="shop")))
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "shop"}, "data": {"a": "1"}})
    return world


def make_ready(world: Returning) -> str:
    """Give the Subnamespace its namespace, as its controller does; return the namespace."""
    uid = world.host.get(Subnamespace.resource, "acme/shop")["metadata"]["uid"]
    world.host.create(Namespace(metadata=ObjectMeta(name="shop-1", labels={SUBNAMESPACE_UID: uid})))
    ready = {"type": "Ready", "status": "True", "reason": "Established", "message": "", "lastTransitionTime": "t"}
    status = {"status": {"namespace": "shop-1", "conditions": [ready]}}
    world.host.patch(Subnamespace.resource, "acme/shop", status)
    return "shop-1"


async def test_subnamespaces_are_there_before_anything_is_closed() -> None:
    world = with_shop()
    for _ in range(3):
        await world.reconcile(is_mirrored=True)
    assert (world.journal["step"], world.journal["message"]) == ("Preparing", "Subnamespace 'shop' is created")
    assert world.host.get(Subnamespace.resource, "acme/shop")["spec"]["owners"] == [{"kind": "User", "name": "alice"}]
    await world.reconcile(is_mirrored=True)
    assert world.journal["step"] == "Preparing"
    place = make_ready(world)
    for _ in range(2):
        await world.reconcile(is_mirrored=True)
    assert world.journal["step"] == "Moving"
    assert world.host.list(CONFIG_MAPS, place) == []
    assert [each["roleRef"]["name"] for each in world.host.list(RoleBinding.resource, place)] == [OWNER_ROLE]


async def test_a_refusal_takes_the_rights_in_child_namespaces_back() -> None:
    world = with_shop()
    for _ in range(3):
        await world.reconcile(is_mirrored=True)
    place = make_ready(world)
    await world.reconcile(is_mirrored=True)
    assert world.host.list(RoleBinding.resource, place)
    world.inside.put_in(DAEMON_SETS, {"metadata": {"name": "d", "namespace": "shop"}})
    await world.reconcile(is_mirrored=True)
    assert world.journal["message"].startswith("cannot move: DaemonSet 'shop/d' is not supported in a conversion")
    assert world.host.list(RoleBinding.resource, place) == []


async def test_their_objects_are_in_the_subnamespace_before_the_control_plane_ends() -> None:
    world = with_shop()
    for _ in range(3):
        await world.reconcile(is_mirrored=True)
    place = make_ready(world)
    for _ in range(2):
        await world.reconcile(is_mirrored=True)
    world.host.patch(Namespace.resource, "acme", {"metadata": {"labels": {CONVERTING: "true"}}})
    for _ in range(5):
        await world.reconcile(is_mirrored=False)
    assert [each["data"] for each in world.host.list(CONFIG_MAPS, place)] == [{"a": "1"}]
    assert world.host.list(VirtualControlPlane.resource, "acme") == []
    await world.reconcile(is_mirrored=False)
    assert world.journal["step"] == "Converted"
    assert world.host.list(RoleBinding.resource, place) == []


def add_subtenant(world: Returning, name: str) -> str:
    """Give the tenant a Subtenant on the host that is ready; return its namespace."""
    spec = SubnamespaceSpec(mode=Mode.SUBTENANT, owners=(user("bob"),))
    world.host.create(Subnamespace(metadata=ObjectMeta(name=name, namespace="acme"), spec=spec))
    uid = world.host.get(Subnamespace.resource, f"acme/{name}")["metadata"]["uid"]
    place = f"{name}-1"
    world.host.create(Namespace(metadata=ObjectMeta(name=place, labels={SUBNAMESPACE_UID: uid})))
    ready = {"type": "Ready", "status": "True", "reason": "Established", "message": "", "lastTransitionTime": "t"}
    status = {"status": {"namespace": place, "conditions": [ready]}}
    world.host.patch(Subnamespace.resource, f"acme/{name}", status)
    return place


async def test_a_namespace_that_appears_late_reaches_no_subtenant() -> None:
    """VCP-72: a program inside that still writes names a namespace after a Subtenant of the tenant."""
    world = Returning(ConversionStep.MOVING)
    place = add_subtenant(world, "victim")
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}})
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    assert world.journal["begunAt"]
    world.inside.create(Namespace(metadata=ObjectMeta(name="victim")))
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "planted", "namespace": "victim"}, "data": {"a": "1"}})
    for _ in range(4):
        await world.reconcile(is_mirrored=False)
    assert world.host.list(CONFIG_MAPS, place) == []
    assert world.host.list(RoleBinding.resource, place) == []
    assert world.journal["step"] == "Moving"
    assert "'victim', which is a Subtenant" in world.journal["message"]
    world.inside.delete(Namespace.resource, "victim")
    for _ in range(4):
        await world.reconcile(is_mirrored=False)
    assert world.journal["step"] == "Converted"


async def test_a_namespace_that_appears_late_moves_once_the_mirror_may_read_its_subnamespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server refuses to list for the mirror a child namespace in which it has no RoleBinding."""
    world = Returning(ConversionStep.MOVING)
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "notes", "namespace": "acme"}})
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    world.inside.create(Namespace(metadata=ObjectMeta(name="shop")))
    world.inside.put_in(CONFIG_MAPS, {"metadata": {"name": "late", "namespace": "shop"}, "data": {"a": "1"}})
    await world.reconcile(is_mirrored=False)
    place, whole = make_ready(world), returns.both_sides

    async def refusing(
        cluster: Cluster, scope: ConversionScope, sides: PlaneSides, *, is_mirror: bool
    ) -> returns.ReturnSides:
        if is_mirror and not world.host.list(RoleBinding.resource, place):
            raise Forbidden("the mirror may not list configmaps there")
        return await whole(cluster, scope, sides, is_mirror=is_mirror)

    monkeypatch.setattr(returns, "both_sides", refusing)
    for _ in range(6):
        await world.reconcile(is_mirrored=False)
    assert [each["data"] for each in world.host.list(CONFIG_MAPS, place)] == [{"a": "1"}]
    assert world.journal["step"] == "Converted"


async def test_a_namespace_of_a_subtenant_refuses_a_return_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users can create it between the last look inside and the end of their access: nothing stays closed."""
    world = Returning(ConversionStep.MOVING)
    place, whole = add_subtenant(world, "victim"), returns.both_sides
    world.inside.create(Namespace(metadata=ObjectMeta(name="victim")))

    async def refusing(
        cluster: Cluster, scope: ConversionScope, sides: PlaneSides, *, is_mirror: bool
    ) -> returns.ReturnSides:
        if is_mirror:
            raise Forbidden("the mirror may not list configmaps there")
        return await whole(cluster, scope, sides, is_mirror=is_mirror)

    monkeypatch.setattr(returns, "both_sides", refusing)
    for _ in range(2):
        await world.reconcile(is_mirrored=False)
    assert world.journal["step"] == "Refused"
    assert "'victim', which is a Subtenant" in world.journal["message"]
    assert world.host.list(RoleBinding.resource, place) == []
