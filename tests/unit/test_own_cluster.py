"""Tenants whose owners work with a cluster of their own: isolation.controlPlane Dedicated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.dedicatedcluster import MAX_NAME, DedicatedCluster, PoolStatus
from tenantry.api.kubernetes import Namespace, NamespaceRole, ResourceQuota, RoleBinding
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Inheritance, Mode, Subnamespace, SubnamespaceIsolation, SubnamespaceSpec
from tenantry.api.tenant import IsolationClass, NodesChoice, Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import tenantcluster
from tenantry.controllers.operator import controllers
from tenantry.controllers.tenant import desired
from tenantry.controllers.tenant.status import isolation_class
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.views.drift.rendering import render
from tenantry.views.manifests import Manifests
from tenantry.world import objectcounts
from tenantry.world.validation import validate_subnamespace, validate_tenant
from testkit.model import World
from testkit.treeworld import add_subnamespace
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

Json = dict[str, Any]
CLUSTERS = DedicatedCluster.resource


def with_cluster(name: str = "acme", **fields: Any) -> Tenant:  # noqa: ANN401 - any argument of `tenant`
    """Return a tenant with a cluster of its own."""
    found = tenant(name, **fields)
    isolation = replace(found.spec.isolation, control_plane=ControlPlaneChoice.DEDICATED)
    return replace(found, spec=replace(found.spec, isolation=isolation))


class Silent:
    """A controller of control planes that changes nothing: the test reports what they are."""

    name = "silent"
    kind = VirtualControlPlane

    def watches(self) -> Sequence[Watch]:
        """Return none."""
        return []

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


def settle(world: World) -> None:
    """Run one operator until nothing changes."""
    WorldCluster(world, [*controllers(CLUSTER_UID), Silent()]).settle(60)


def settled(value: Tenant) -> World:
    """Return a world with a settled tenant."""
    world = World()
    world.create(value)
    settle(world)
    return world


def of_tenant(world: World, type_: str) -> Json:
    """Return a condition of the tenant acme; {} if it has none of that type."""
    conditions: list[Json] = world.get(Tenant.resource, "acme")["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


def class_of(world: World) -> str:
    """Return the isolation class of the tenant."""
    found: str = world.get(Tenant.resource, "acme")["status"]["isolationClass"]
    return found


def plane_ready(world: World) -> None:
    """Report that the control plane of the cluster serves its clients, as its own controller does."""
    ready = {"type": "Ready", "status": "True", "reason": "Established", "message": ""}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    generation = world.get(VirtualControlPlane.resource, "acme/acme")["metadata"]["generation"]
    told = {"observedGeneration": generation, "conditions": [ready], "kubeconfigSecret": "s"}
    world.patch(VirtualControlPlane.resource, "acme/acme", {"status": told})


def test_a_claim_of_another_namespace_is_not_a_pool() -> None:
    """H04: any user can write the uid of a cluster into the owner references of an object."""
    world = settled(with_cluster())
    cluster = world.get(CLUSTERS, "acme/acme")["metadata"]
    owner = {
        "apiVersion": "tenantry.dev/v1alpha1",
        "kind": "DedicatedCluster",
        "name": "acme",
        "uid": cluster["uid"],
        "controller": True,
    }
    world.create(tenant("other"))
    settle(world)
    meta = {"name": "acme-gpu", "namespace": "other", "ownerReferences": [owner]}
    world.put_in(SliceClaim.resource, {"metadata": meta, "spec": {"count": 1}})
    settle(world)
    assert world.get(SliceClaim.resource, "other/acme-gpu")["spec"]["count"] == 1
    pools = world.get(CLUSTERS, "acme/acme")["status"]["pools"]
    assert [each["name"] for each in pools] == ["default"]


def test_the_tenant_is_ready_when_its_cluster_is() -> None:
    """H04: the operator creates the cluster once; its conditions are those of the tenant."""
    world = settled(with_cluster())
    found = world.get(CLUSTERS, "acme/acme")
    assert found["metadata"]["labels"][marks.TENANT] == "acme"
    plane = world.get(VirtualControlPlane.resource, "acme/acme")
    assert [each["kind"] for each in plane["metadata"]["ownerReferences"]] == ["DedicatedCluster"]
    assert plane["spec"]["nodes"] == "Own"
    ready = of_tenant(world, reasons.READY)
    assert ready["status"] == "False"
    assert ready["message"].startswith("DedicatedCluster 'acme/acme': ")
    assert of_tenant(world, reasons.CONTROL_PLANE_READY)["status"] == "False"
    assert class_of(world) == "soft"
    plane_ready(world)
    settle(world)
    assert of_tenant(world, reasons.CONTROL_PLANE_READY)["status"] == "True"
    assert (of_tenant(world, reasons.NODES_READY)["status"], of_tenant(world, reasons.READY)["status"]) == (
        "False",
        "False",
    )
    assert class_of(world) == "hard"
    # Its owners scale it: the operator brings no field of it back.
    world.patch(CLUSTERS, "acme/acme", {"spec": {"nodes": 0}})
    settle(world)
    assert of_tenant(world, reasons.READY)["status"] == "True"
    assert class_of(world) == "hard"
    before = world.get(Tenant.resource, "acme"), world.get(CLUSTERS, "acme/acme")
    settle(world)
    assert (world.get(Tenant.resource, "acme"), world.get(CLUSTERS, "acme/acme")) == before
    assert before[1]["spec"]["nodes"] == 0


def test_with_nodes_that_have_joined_the_class_is_the_highest() -> None:
    """B01: own kernels and an own API server."""
    found = tenantcluster.children(desired.room_of(with_cluster()))[0].object
    assert isinstance(found, DedicatedCluster)
    told = tuple(
        Condition(type=each, status=ConditionStatus.TRUE, reason="r", message="m", last_transition_time="")
        for each in (reasons.NODES_READY, reasons.CONTROL_PLANE_READY)
    )
    none = replace(found, status=replace(found.status, conditions=told))
    one = replace(none, status=replace(none.status, pools=(PoolStatus(name="default", want=1, ready=1),)))
    assert (tenantcluster.has_nodes(none), tenantcluster.has_nodes(one), tenantcluster.has_plane(one)) == (
        False,
        True,
        True,
    )
    assert [
        isolation_class(has_plane=True, is_sandboxed=False, has_nodes=each, is_dedicated=True) for each in (False, True)
    ] == [IsolationClass.HARD, IsolationClass.HARDER]
    assert isolation_class(has_plane=False, is_sandboxed=True, has_nodes=True, is_dedicated=True) is IsolationClass.SOFT


def test_owners_change_their_cluster_and_run_nothing_on_the_host() -> None:
    """H04, E14: the rights of owners with a control plane of their own, and no creation or deletion of a cluster."""
    world = settled(with_cluster())
    assert world.get(Namespace.resource, "acme")["metadata"]["labels"][marks.CONTROL_PLANE] == "acme"
    binding = world.get(RoleBinding.resource, "acme/tenantry-owner")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "tenantry-owner")
    rules: list[Json] = world.get(NamespaceRole.resource, "acme/tenantry-owner")["rules"]
    verbs: dict[str, set[str]] = {}
    for rule in rules:
        for plural in rule["resources"]:
            verbs.setdefault(plural, set()).update(rule["verbs"])
    assert verbs["dedicatedclusters"] == {"get", "list", "watch", "update", "patch"}
    assert verbs["dedicatedclusters/scale"] == {"get", "update", "patch"}
    assert verbs["virtualcontrolplanes"] == {"get", "list", "watch"}
    assert verbs["pods"] == {"get", "list", "watch"}
    assert not {"secrets", "deployments", "roles"} & verbs.keys()


def test_a_child_of_such_a_tenant_is_one_of_the_host() -> None:
    """H04: only the core namespace has the cluster."""
    world = settled(with_cluster())
    team = add_subnamespace(world, inheritance=Inheritance(), owners=(user("bob"),))
    settle(world)
    labels = world.get(Namespace.resource, team)["metadata"]["labels"]
    assert marks.CONTROL_PLANE not in labels
    assert [each["metadata"]["name"] for each in world.list(CLUSTERS)] == ["acme"]


def test_an_administrator_who_deletes_it_gets_an_empty_one() -> None:
    """H04: as with a VirtualControlPlane."""
    world = settled(with_cluster())
    first = world.get(CLUSTERS, "acme/acme")["metadata"]["uid"]
    world.delete(CLUSTERS, "acme/acme")
    settle(world)
    world.finish_deletions()
    settle(world)
    assert world.get(CLUSTERS, "acme/acme")["metadata"]["uid"] != first


def test_what_cannot_be_is_refused_before_it_is_sent() -> None:
    """E15: as the CRD does."""
    assert validate_tenant(with_cluster("a" * MAX_NAME)) == []
    assert "at most 30 characters" in str(validate_tenant(with_cluster("a" * (MAX_NAME + 1)))[0])
    found = with_cluster()
    isolation = replace(found.spec.isolation, nodes=NodesChoice.SLICE)
    assert "the DedicatedCluster has the nodes" in str(
        validate_tenant(replace(found, spec=replace(found.spec, isolation=isolation)))[0]
    )
    spec = SubnamespaceSpec(
        mode=Mode.WORKSPACE,
        owners=(user("bob"),),
        isolation=SubnamespaceIsolation(control_plane=ControlPlaneChoice.DEDICATED),
    )
    child = Subnamespace(metadata=ObjectMeta(name="web", namespace="acme"), spec=spec)
    assert "only a Tenant has a cluster of its own" in str(validate_subnamespace(child)[0])


def test_render_has_the_cluster() -> None:
    """A06: and what the controller of the cluster creates for it."""
    found = render(Manifests(tenants=[with_cluster()], subnamespaces=[]))
    assert [each.key for each in found if isinstance(each, DedicatedCluster)] == ["acme/acme"]
    assert [each.key for each in found if isinstance(each, VirtualControlPlane)] == ["acme/acme"]


def test_the_cluster_has_a_place_in_the_count_of_objects() -> None:
    """H04: users cannot take its place, nor that of its control plane."""
    counted = {"dedicatedclusters.tenantry.dev": 5, "virtualcontrolplanes.tenantry.dev": 5}
    children = desired.children(with_cluster(), CLUSTER_UID, limits=replace(objectcounts.DEFAULT, core=counted))
    hard = next(each.object.spec.hard for each in children if isinstance(each.object, ResourceQuota))
    assert [hard[f"count/{each}"] for each in counted] == ["6", "6"]


def test_only_the_cluster_of_the_tenants_name_is_news() -> None:
    """H04: others are users' own."""
    found = tenantcluster.children(desired.room_of(with_cluster()))[0].object
    assert isinstance(found, DedicatedCluster)
    assert tenantcluster.keys(Change(None, found)) == ["acme"]
    other = replace(found, metadata=replace(found.metadata, name="prod"))
    assert tenantcluster.keys(Change(None, other)) == []
    assert tenantcluster.keys(Change(found, replace(found, status=replace(found.status, endpoint="x")))) == []
