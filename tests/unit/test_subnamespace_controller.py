"""What becomes of Subnamespaces: the controllers of the operator in a world without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import LimitRange, Namespace, ResourceQuota, RoleBinding
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Adoption, Inheritance, Mode, Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.operator import controllers
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.treeworld import add_subnamespace, condition, operator, settle, world_of
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, user


def _get(world: World, name: str = "team", namespace: str = "acme") -> Json:
    return world.get(Subnamespace.resource, f"{namespace}/{name}")


def _subjects(world: World, namespace: str) -> list[str]:
    binding = world.get(RoleBinding.resource, f"{namespace}/tenantry-owner")
    return [each["name"] for each in binding.get("subjects") or ()]


def _is_there(world: World, namespace: str) -> bool:
    return (Namespace.resource, namespace) in world.objects


def test_a_child_gets_its_namespace_its_share_and_its_owners_and_then_nothing_is_written() -> None:
    world = world_of(quota={"cpu": 8, "memory": "8Gi"})
    child = add_subnamespace(world)
    settle(world)
    assert condition(world, "Ready")["status"] == "True"
    assert _subjects(world, child) == ["alice"]
    assert (LimitRange.resource, f"{child}/tenantry-limits") in world.objects
    assert (ResourceQuota.resource, f"{child}/tenantry-quota") in world.objects
    assert marks.FINALIZER in _get(world)["metadata"]["finalizers"]
    revision = world.revision
    operator(world).settle(600)
    assert world.revision == revision


def test_a_child_without_quota_needs_no_verdict() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    assert (condition(world, "Ready")["status"], _subjects(world, child)) == ("True", ["alice"])


def test_trees_are_made_from_the_top_whatever_comes_first() -> None:
    world = world_of(quota={"cpu": 8})
    child = add_subnamespace(world)
    grandchild = child_name("acme-uid", child, "part")
    settle(world)
    add_subnamespace(world, "part", child, owners=(user("bob"),))
    settle(world)
    assert _subjects(world, grandchild) == ["bob", "alice"]
    labels = world.get(Namespace.resource, grandchild)["metadata"]["labels"]
    assert labels[f"acme{marks.TREE_SUFFIX}"] == "2"
    assert _get(world)["status"]["children"] == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": Mode.SUBTENANT, "inheritance": Inheritance()}, reasons.INVALID_SPEC),
        ({"mode": Mode.SUBTENANT, "inheritance": Inheritance(), "owners": (user("alice"),)}, reasons.NOT_ALLOWED),
        ({"labels": {"kubernetes.io/a": "b"}}, reasons.NOT_ALLOWED),
        ({"expires_at": "tomorrow"}, reasons.INVALID_SPEC),
        ({"adopt": Adoption(namespace="others")}, reasons.CANNOT_ADOPT),
    ],
)
def test_what_may_not_be_made_is_not_and_the_status_says_why(fields: dict[str, Any], reason: str) -> None:
    world = world_of()
    child = add_subnamespace(world, **fields)
    settle(world)
    assert not _is_there(world, child)
    assert (condition(world, "Ready")["status"], condition(world, "Ready")["reason"]) == ("False", reason)


def test_a_foreign_namespace_of_the_name_is_left_alone_and_taken_once_it_is_gone() -> None:
    world = world_of()
    child = add_subnamespace(world)
    world.put_in(Namespace.resource, {"metadata": {"name": child}})
    cluster = settle(world)
    assert condition(world, "Ready")["reason"] == reasons.NAMESPACE_EXISTS
    assert "labels" not in world.get(Namespace.resource, child)["metadata"]
    world.delete(Namespace.resource, child)
    world.finish_deletions()
    cluster.settle(30)
    assert condition(world, "Ready")["status"] == "True"


def test_a_deleted_subnamespace_goes_with_its_namespace() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    world.delete(Subnamespace.resource, "acme/team")
    settle(world)
    assert not _is_there(world, child)
    assert (Subnamespace.resource, "acme/team") not in world.objects


def test_a_subnamespace_with_others_inside_is_kept_until_it_may_cascade() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    inner = add_subnamespace(world, "inner", child)
    settle(world)
    world.delete(Subnamespace.resource, "acme/team")
    settle(world)
    assert _is_there(world, inner)
    assert condition(world, "Stalled")["reason"] == reasons.CHILDREN_EXIST
    assert "'inner'" in condition(world, "Stalled")["message"]
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"allowCascadingDeletion": True}})
    settle(world)
    settle(world)
    assert not any(resource == Subnamespace.resource for resource, _ in world.objects)
    assert not _is_there(world, inner)


def test_a_lease_ends_with_the_subnamespace() -> None:
    world = world_of()
    child = add_subnamespace(world, expires_at="2026-01-01T01:00:30Z")
    cluster = operator(world)
    cluster.settle(10)
    assert _is_there(world, child)
    cluster.settle(3630)
    assert any(reason == reasons.EXPIRES_SOON for _, _, reason, _ in cluster.said)
    assert ("acme/team", EventKind.NORMAL, reasons.EXPIRED, "deleted 'acme/team', whose lease ended") in cluster.said
    world.finish_deletions()
    cluster.settle(10)
    assert (Subnamespace.resource, "acme/team") not in world.objects
    assert not _is_there(world, child)


def test_a_suspension_closes_the_tree_and_its_end_opens_it() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    guest: Json = {"metadata": {"name": "guests", "namespace": child}, "roleRef": {}}
    world.put_in(RoleBinding.resource, {**guest, "subjects": [{"kind": "User", "name": "carl"}]})
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": True}, "metadata": {"generation": 2}})
    settle(world)
    assert _subjects(world, child) == []
    assert not world.get(RoleBinding.resource, f"{child}/guests").get("subjects")
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": False}})
    settle(world)
    assert _subjects(world, child) == ["alice"]
    assert world.get(RoleBinding.resource, f"{child}/guests")["subjects"] == [{"kind": "User", "name": "carl"}]


def test_a_workspace_moves_with_its_namespace_and_its_old_subnamespace_goes() -> None:
    world = world_of()
    child, other = add_subnamespace(world), add_subnamespace(world, "other")
    settle(world)
    add_subnamespace(world, "team", other, adopt=Adoption(namespace=child, parent="acme"))
    settle(world)
    settle(world)
    labels = world.get(Namespace.resource, child)["metadata"]["labels"]
    assert labels[marks.PARENT] == other
    assert (Subnamespace.resource, "acme/team") not in world.objects
    assert _get(world, "team", other)["status"]["namespace"] == child


def test_a_namespace_whose_subnamespace_is_gone_is_swept_by_the_next_of_its_name() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    world.patch(Subnamespace.resource, "acme/team", {"metadata": {"finalizers": []}})
    world.delete(Subnamespace.resource, "acme/team")
    add_subnamespace(world)
    settle(world)
    settle(world)
    uid = _get(world)["metadata"]["uid"]
    assert world.get(Namespace.resource, child)["metadata"]["labels"][marks.SUBNAMESPACE_UID] == uid


def test_an_object_that_was_changed_by_hand_is_put_back_and_an_event_says_so() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    world.patch(RoleBinding.resource, f"{child}/tenantry-owner", {"subjects": [{"kind": "User", "name": "eve"}]})
    cluster = settle(world)
    assert _subjects(world, child) == ["alice"]
    assert any(key == "acme/team" and reason == reasons.CORRECTED for key, _, reason, _ in cluster.said)


def test_a_shortage_of_quota_is_told_and_ends_with_it() -> None:
    world = world_of(quota={"cpu": 4})
    child = add_subnamespace(world, quota=Quota(hard={"cpu": 6}))
    settle(world)
    assert not _is_there(world, child)
    assert condition(world, "Ready")["status"] == "False"
    world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"cpu": 10}}}})
    settle(world)
    assert condition(world, "Ready")["status"] == "True"
    assert world.get(ResourceQuota.resource, f"{child}/tenantry-quota")["spec"]["hard"] == {"requests.cpu": "6"}


class _IdlePlanes:
    """Stands for the controller of control planes, which others wake."""

    name, kind = "planes", VirtualControlPlane

    def watches(self) -> Sequence[Watch]:
        return [watched.control_planes(lambda _: ())]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - idle
        return None


def test_what_a_conversion_changes_is_no_correction() -> None:
    """E01: the operator closes the namespaces itself while their objects move, and opens them afterwards."""
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    cluster = WorldCluster(world, [*controllers(CLUSTER_UID), _IdlePlanes()])
    cluster.settle(30)
    moving = {"status": {"conversion": {"to": "Virtual", "step": "Moving", "message": ""}}}
    for resource, key, namespace in ((Tenant.resource, "acme", "acme"), (Subnamespace.resource, "acme/team", child)):
        world.patch(resource, key, moving)
        cluster.settle(30)
        assert world.get(Namespace.resource, namespace)["metadata"]["labels"][marks.CONVERTING] == "true"
        world.patch(resource, key, {"status": {"conversion": None}})
        cluster.settle(30)
        assert marks.CONVERTING not in world.get(Namespace.resource, namespace)["metadata"]["labels"]
    assert [each for each in cluster.said if each[2] == reasons.CORRECTED] == []


def test_what_an_administrator_changes_above_is_no_correction() -> None:
    """E01, E15: the operator carries it out in every namespace, and events report only what others changed."""
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    cluster = operator(world)
    cluster.settle(30)
    rules = {
        "rules": {"pods": {"hostNetwork": "Allow"}},
        "objectCounts": {"core": {"secrets": 7}, "child": {"secrets": 3}},
    }
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": rules})
    cluster.settle(30)
    assert world.get(ResourceQuota.resource, f"{child}/tenantry-counts")["spec"]["hard"]["count/secrets"] == "3"
    world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"network": "Isolated"}}})
    cluster.settle(30)
    assert [each for each in cluster.said if each[2] == reasons.CORRECTED] == []
    world.patch(RoleBinding.resource, f"{child}/tenantry-owner", {"subjects": [{"kind": "User", "name": "eve"}]})
    cluster.settle(30)
    assert [each[0] for each in cluster.said if each[2] == reasons.CORRECTED] == ["acme/team"]
