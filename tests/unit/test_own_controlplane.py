"""Tenants and Subnamespaces whose owners work with a control plane of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.controlplanechoice import MAX_NAME, ControlPlaneChoice
from tenantry.api.kubernetes import Namespace, NamespaceRole, ResourceQuota, RoleBinding
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.owner import Owner
from tenantry.api.runtime import RuntimeClass
from tenantry.api.subnamespace import (
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceIsolation,
    SubnamespaceSpec,
)
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import controlplane as kubeconfigs
from tenantry.controllers import controlplane
from tenantry.controllers.operator import controllers
from tenantry.controllers.tenant import desired
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.engine.cluster import Cluster, Watch
from tenantry.views.drift.rendering import render
from tenantry.views.manifests import Manifests
from tenantry.world.objectcounts import STANDARD
from tenantry.world.validation import validate_subnamespace, validate_tenant
from testkit.model import World
from testkit.treeworld import add_subnamespace, condition, settle, world_of
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
VIRTUAL = SubnamespaceIsolation(control_plane=ControlPlaneChoice.VIRTUAL)


class Elsewhere:
    """A controller of control planes that changes nothing: the test reports what they are."""

    name = "elsewhere"
    kind = VirtualControlPlane

    def __init__(self) -> None:
        self.keys: list[str] = []

    def watches(self) -> Sequence[Watch]:
        """Return none."""
        return []

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""
        assert cluster
        assert attempt >= 0
        self.keys.append(key)


def virtual(name: str = "acme", **fields: Any) -> Tenant:  # noqa: ANN401 - any argument of `tenant`
    """Return a tenant with a control plane of its own."""
    found = tenant(name, **fields)
    isolation = replace(found.spec.isolation, control_plane=ControlPlaneChoice.VIRTUAL)
    return replace(found, spec=replace(found.spec, isolation=isolation))


def with_planes(world: World) -> None:
    """Run an operator that has no place for processes until nothing changes."""
    WorldCluster(world, [*controllers(CLUSTER_UID), UnplacedController()]).settle(30)


def settled(value: Tenant) -> World:
    """Return a world with a settled tenant."""
    world = World()
    world.create(value)
    with_planes(world)
    return world


def of_tenant(world: World, type_: str) -> Json:
    """Return a condition of the tenant acme; {} if it has none of that type."""
    conditions: list[Json] = world.get(Tenant.resource, "acme")["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


def report(world: World, key: str, status: str, reason: str, message: str) -> None:
    """Write the status of a control plane, as its own controller does."""
    told = {"status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    secret = {"kubeconfigSecret": "s"} if status == "True" else {}
    world.patch(PLANES, key, {"status": {"conditions": [{"type": "Ready", **told}], **secret}})


def test_a_shared_tenant_is_as_it_was() -> None:
    """H01: neither a mark, a Role nor another role of owners."""
    world = world_of()
    assert world.list(PLANES) == []
    assert marks.CONTROL_PLANE not in world.get(Namespace.resource, "acme")["metadata"]["labels"]
    binding = world.get(RoleBinding.resource, "acme/tenantry-owner")
    assert binding["roleRef"]["kind"] == "ClusterRole"
    assert of_tenant(world, reasons.CONTROL_PLANE_READY) == {}


def test_the_tenant_is_ready_when_its_control_plane_is() -> None:
    """H01: no object reports Ready that cannot do its job."""
    world = settled(virtual())
    plane = world.get(PLANES, "acme/acme")
    assert plane["metadata"]["labels"][marks.TENANT] == "acme"
    assert world.get(Namespace.resource, "acme")["metadata"]["labels"][marks.CONTROL_PLANE] == "acme"
    # The operator of this world has no place for processes.
    ready = of_tenant(world, reasons.READY)
    assert (ready["status"], ready["reason"]) == ("False", reasons.NOT_PLACED)
    assert "VirtualControlPlane 'acme/acme': virtual control planes run on local clusters" in ready["message"]
    assert of_tenant(world, reasons.CONTROL_PLANE_READY)["reason"] == reasons.NOT_PLACED
    assert of_tenant(world, reasons.STALLED)["status"] == "True"
    report(world, "acme/acme", "True", reasons.ESTABLISHED, "the API server is ready")
    WorldCluster(world, [*controllers(CLUSTER_UID), Elsewhere()]).settle(30)
    assert of_tenant(world, reasons.READY)["status"] == "True"
    assert of_tenant(world, reasons.STALLED) == {}
    before = world.get(Tenant.resource, "acme")
    WorldCluster(world, [*controllers(CLUSTER_UID), Elsewhere()]).settle(30)
    assert world.get(Tenant.resource, "acme") == before
    assert world.get(Tenant.resource, "acme")["status"]["isolationClass"] == "soft"
    world.put_in(RuntimeClass.resource, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
    WorldCluster(world, [*controllers(CLUSTER_UID), Elsewhere()]).settle(30)
    assert world.get(Tenant.resource, "acme")["status"]["isolationClass"] == "hard"
    # An administrator has deleted it: an empty one is created.
    world.delete(PLANES, "acme/acme")
    WorldCluster(world, [*controllers(CLUSTER_UID), Elsewhere()]).settle(30)
    assert world.get(PLANES, "acme/acme")["metadata"]["uid"] != plane["metadata"]["uid"]
    assert of_tenant(world, reasons.READY)["status"] == "False"


def test_owners_look_and_manage_the_tree_and_nothing_else() -> None:
    """H01: the Role of the namespace replaces the ClusterRole of owners."""
    world = settled(virtual(owners=[user("alice")]))
    binding = world.get(RoleBinding.resource, "acme/tenantry-owner")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "tenantry-owner")
    assert [each["name"] for each in binding["subjects"]] == ["alice"]
    rules = world.get(NamespaceRole.resource, "acme/tenantry-owner")["rules"]
    written = {
        plural
        for rule in rules
        for plural in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"} or "*" in rule["verbs"]
    }
    assert written == {"subnamespaces", "sliceclaims"}
    # By its label, the operator notices who may read the kubeconfig, which is in another namespace.
    assert binding["metadata"]["labels"]["vcp.tenantry.dev/control-plane"] == "acme"
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
    assert not any("*" in [*rule["resources"], *rule["apiGroups"]] for rule in rules)


def test_a_suspended_tenant_gets_its_control_plane_and_its_owners_no_rights() -> None:
    """E02."""
    world = settled(virtual(suspended=True))
    assert world.get(PLANES, "acme/acme")
    assert world.get(RoleBinding.resource, "acme/tenantry-owner").get("subjects", []) == []


def test_the_control_plane_is_counted_beside_those_of_users() -> None:
    """H01: users have as many control planes as in other namespaces."""
    both = [desired.children(each, CLUSTER_UID) for each in (tenant("acme"), virtual())]
    key = "count/virtualcontrolplanes.tenantry.dev"
    found = [next(c.object for c in each if c.object.metadata.name == "tenantry-counts") for each in both]
    assert [int(each.spec.hard[key]) for each in found] == [5, 6]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def test_a_subnamespace_has_its_own_and_its_children_none() -> None:
    """H01."""
    world = world_of(owners=[user("root")])
    name = add_subnamespace(
        world, mode=Mode.SUBTENANT, owners=(user("alice"),), inheritance=Inheritance(), isolation=VIRTUAL
    )
    with_planes(world)
    assert world.get(PLANES, f"{name}/team")
    assert condition(world, reasons.READY)["reason"] == reasons.NOT_PLACED
    assert condition(world, reasons.CONTROL_PLANE_READY)["status"] == "False"
    assert world.get(NamespaceRole.resource, f"{name}/tenantry-owner")
    below = add_subnamespace(
        world, "lab", name, mode=Mode.WORKSPACE, owners=(user("alice"),), inheritance=Inheritance()
    )
    settle(world)
    assert world.get(RoleBinding.resource, f"{below}/tenantry-owner")["roleRef"]["kind"] == "ClusterRole"
    assert condition(world, reasons.READY, "lab", name)["status"] == "True"


def test_an_existing_namespace_keeps_the_control_plane_that_it_has() -> None:
    """H01: a move is no way around the transition rule."""
    world = world_of()
    name = add_subnamespace(world, owners=(user("alice"),), inheritance=Inheritance())
    add_subnamespace(world, "other", owners=(user("alice"),), inheritance=Inheritance())
    settle(world)
    goal = world.get(Subnamespace.resource, "acme/other")["status"]["namespace"]
    adopt = Adoption(namespace=name, parent="acme")
    add_subnamespace(
        world, "team", goal, owners=(user("alice"),), inheritance=Inheritance(), isolation=VIRTUAL, adopt=adopt
    )
    settle(world)
    told = condition(world, reasons.READY, "team", goal)
    assert told["reason"] == reasons.CANNOT_ADOPT
    assert "spec.isolation.controlPlane must be Shared" in told["message"]


# -- the pure parts -------------------------------------------------------------------------------


def plane(**conditions: tuple[str, str]) -> VirtualControlPlane:
    """Return a control plane with conditions: type to status and reason."""
    found = VirtualControlPlane(metadata=ObjectMeta(name="acme", namespace="acme", uid="u"))
    told = tuple(
        Condition(type=kind, status=ConditionStatus(status), reason=reason, message="why", last_transition_time="")
        for kind, (status, reason) in conditions.items()
    )
    return replace(found, status=replace(found.status, conditions=told))


@pytest.mark.parametrize(
    ("found", "reason", "passing", "words"),
    [
        (None, reasons.PROGRESSING, True, "is not created yet"),
        (plane(), reasons.PROGRESSING, True, "starts"),
        (plane(Ready=("False", "ApiError")), "ApiError", True, "'acme/acme': why"),
        (plane(Ready=("False", "Full"), Stalled=("True", "Full")), "Full", False, "why"),
        # Its kubeconfig is withheld.
        (plane(Ready=("True", "Established")), reasons.PROGRESSING, True, "when all objects are inside"),
        (
            replace(plane(), metadata=replace(plane().metadata, deletion_timestamp="2026-01-01T00:00:00Z")),
            reasons.PROGRESSING,
            True,
            "an empty one is created",
        ),
    ],
)
def test_what_the_tenant_reports_of_it(
    found: VirtualControlPlane | None, reason: str, words: str, *, passing: bool
) -> None:
    """H01."""
    problem = controlplane.problem("acme", found)
    assert problem is not None
    assert (problem.reason, problem.passing, words in problem.message) == (reason, passing, True)
    [told] = controlplane.condition("acme", problem)
    assert (told.type, told.holds) == (reasons.CONTROL_PLANE_READY, False)


def test_nothing_is_reported_without_one_or_when_it_is_ready() -> None:
    """H01."""
    assert controlplane.problem("", None) is None
    assert controlplane.condition("", None) == []
    found = plane(Ready=("True", "Established"))
    assert controlplane.problem("acme", replace(found, status=replace(found.status, kubeconfig_secret="s"))) is None


def test_one_that_wakes_is_no_problem_of_its_tenant() -> None:
    """H01: its clients are held meanwhile, so that conditions do not alternate; what keeps it from waking counts."""
    starts = plane(Ready=("False", "Progressing"))
    wakes = replace(starts, status=replace(starts.status, wakes=1, kubeconfig_secret="s"))
    assert controlplane.problem("acme", starts) is not None
    assert controlplane.problem("acme", wakes) is None
    for conditions in (
        {"Ready": ("False", "QuotaInsufficient")},
        {"Ready": ("False", "Progressing"), "Stalled": ("True", "Progressing")},
    ):
        other = replace(wakes, status=replace(wakes.status, conditions=plane(**conditions).status.conditions))
        assert controlplane.problem("acme", other) is not None
    # Nor does the condition call the API server of one that sleeps ready.
    (told,) = controlplane.condition("acme", None)
    assert "is ready" not in told.message


def test_one_that_is_being_deleted_is_not_created_yet() -> None:
    """H01: the name is taken until the process is gone."""
    namespace = desired.room_of(virtual())
    assert len(controlplane.creation(namespace, None)) == 1
    assert controlplane.creation(namespace, plane()) == ()
    assert controlplane.creation(desired.room_of(tenant("acme")), None) == ()


def test_validation_names_what_the_api_server_would_refuse() -> None:
    """H01."""
    long = virtual("a" * (MAX_NAME + 1))
    assert [each.path for each in validate_tenant(long)] == ["metadata.name"]
    assert validate_tenant(virtual("a" * MAX_NAME)) == []
    spec = SubnamespaceSpec(
        mode=Mode.WORKSPACE,
        isolation=VIRTUAL,
        owners=(Owner(kind=user("a").kind, name="a"),),
        inheritance=Inheritance(role_bindings=InheritanceMode.SYNC),
    )
    wrong = validate_subnamespace(Subnamespace(metadata=ObjectMeta(name="web", namespace="acme"), spec=spec))
    assert [each.path for each in wrong] == ["spec.inheritance.roleBindings"]


def test_render_has_the_control_plane() -> None:
    """A06."""
    spec = SubnamespaceSpec(mode=Mode.SUBTENANT, isolation=VIRTUAL, owners=(user("carol"),))
    child = Subnamespace(metadata=ObjectMeta(name="shop", namespace="acme"), spec=spec)
    found = render(Manifests(tenants=[virtual()], subnamespaces=[child]))
    planes = {each.key: each.metadata.namespace for each in found if isinstance(each, VirtualControlPlane)}
    assert list(planes) == ["acme/acme", "shop-xxxxxxxxxxxxxxxx/shop"]
    assert [each.resource.kind for each in found].count("Role") == len(planes)


def test_the_context_is_called_after_the_tenant() -> None:
    """H01: other contexts of the file keep their names."""
    text = "current-context: a\ncontexts: [{name: a, context: {user: u}}, {name: b, context: {}}]\n"
    assert kubeconfigs.renamed(text, "acme").splitlines()[0] == "current-context: acme"
    assert "name: b" in kubeconfigs.renamed(text, "acme")


def test_the_count_of_secrets_has_room_for_the_tokens_of_each_pod() -> None:
    """H03: each pod inside takes a Secret of its own; users could have 100 pods with tokens otherwise."""
    shared, own = World(), settled(virtual())
    shared.create(tenant("acme"))
    with_planes(shared)
    found = [
        int(world.get(ResourceQuota.resource, "acme/tenantry-counts")["spec"]["hard"]["count/secrets"])
        for world in (shared, own)
    ]
    assert found[1] - found[0] == STANDARD["pods"][0]


def test_a_change_of_owners_wakes_their_control_plane() -> None:
    """H01: the operator's own writes cause no event, and a removed owner must lose its credentials."""
    world = settled(virtual())
    seen = Elsewhere()
    cluster = WorldCluster(world, [*controllers(CLUSTER_UID), seen])
    cluster.settle(30)
    seen.keys.clear()
    world.patch(Tenant.resource, "acme", {"spec": {"owners": [{"kind": "User", "name": "eve"}]}})
    cluster.settle(30)
    assert "acme/acme" in seen.keys
    seen.keys.clear()
    cluster.settle(30)
    assert seen.keys == []


def test_a_tenant_that_becomes_virtual_is_kept_as_it_is_until_its_conversion_begins() -> None:
    """H01: the change of the spec alone takes no rights and starts nothing."""
    world = settled(tenant("acme", owners=(user("alice"),)))
    world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"controlPlane": "Virtual"}}})
    with_planes(world)
    assert world.list(PLANES) == []
    assert marks.CONTROL_PLANE not in world.get(Namespace.resource, "acme")["metadata"]["labels"]
    binding = world.get(RoleBinding.resource, "acme/tenantry-owner")
    assert binding["roleRef"]["kind"] == "ClusterRole"
    # Only the controller of conversions writes the journal.
    world.patch(Tenant.resource, "acme", {"status": {"conversion": {"to": "Virtual", "step": "Moving"}}})
    with_planes(world)
    assert world.get(Namespace.resource, "acme")["metadata"]["labels"][marks.CONVERTING] == "true"
    assert world.get(RoleBinding.resource, "acme/tenantry-owner")["roleRef"]["kind"] == "Role"
    assert world.get(Tenant.resource, "acme")["status"]["conversion"]["step"] == "Moving"
