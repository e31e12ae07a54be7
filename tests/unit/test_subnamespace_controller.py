"""What becomes of Subnamespaces: the controllers of the operator in a world without I/O."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import LimitRange, Namespace, ResourceQuota, RoleBinding
from tenantry.api.model import ObjectMeta
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Adoption, Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.engine.events import EventKind
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

PEOPLE = Inheritance(role_bindings=InheritanceMode.SYNC)


def _world(**fields: Any) -> World:  # noqa: ANN401 - any argument of `tenant`
    world = World()
    world.create(tenant("acme", **fields))
    _settle(world)
    return world


def _operator(world: World) -> WorldCluster:
    return WorldCluster(world, controllers(CLUSTER_UID))


def _settle(world: World, seconds: float = 30) -> WorldCluster:
    """Run one operator, and Kubernetes' own controllers, until nothing changes."""
    cluster = _operator(world)
    for _ in range(4):
        cluster.settle(seconds)
        world.count_quotas()
        world.finish_deletions()
    cluster.settle(seconds)
    return cluster


def _sub(world: World, name: str = "team", namespace: str = "acme", **fields: Any) -> str:  # noqa: ANN401 - of its spec
    spec = msgspec.structs.replace(SubnamespaceSpec(mode=Mode.WORKSPACE, inheritance=PEOPLE), **fields)
    meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp="2026-01-01T00:00:00Z")
    world.create(Subnamespace(metadata=meta, spec=spec))
    return child_name("acme-uid", namespace, name)


def _get(world: World, name: str = "team", namespace: str = "acme") -> Json:
    return world.get(Subnamespace.resource, f"{namespace}/{name}")


def _condition(world: World, type_: str, name: str = "team", namespace: str = "acme") -> Json:
    conditions: list[Json] = _get(world, name, namespace)["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


def _subjects(world: World, namespace: str) -> list[str]:
    binding = world.get(RoleBinding.resource, f"{namespace}/tenantry-owner")
    return [each["name"] for each in binding.get("subjects") or ()]


def _is_there(world: World, namespace: str) -> bool:
    return (Namespace.resource, namespace) in world.objects


def test_a_child_gets_its_namespace_its_share_and_its_owners_and_then_nothing_is_written() -> None:
    world = _world(quota={"cpu": 8, "memory": "8Gi"})
    child = _sub(world)
    _settle(world)
    assert _condition(world, "Ready")["status"] == "True"
    assert _subjects(world, child) == ["alice"]
    assert (LimitRange.resource, f"{child}/tenantry-limits") in world.objects
    assert (ResourceQuota.resource, f"{child}/tenantry-quota") in world.objects
    assert marks.FINALIZER in _get(world)["metadata"]["finalizers"]
    revision = world.revision
    _operator(world).settle(600)
    assert world.revision == revision


def test_a_child_without_quota_needs_no_verdict() -> None:
    world = _world()
    child = _sub(world)
    _settle(world)
    assert (_condition(world, "Ready")["status"], _subjects(world, child)) == ("True", ["alice"])


def test_trees_are_made_from_the_top_whatever_comes_first() -> None:
    world = _world(quota={"cpu": 8})
    child = _sub(world)
    grandchild = child_name("acme-uid", child, "part")
    _settle(world)
    _sub(world, "part", child, owners=(user("bob"),))
    _settle(world)
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
    world = _world()
    child = _sub(world, **fields)
    _settle(world)
    assert not _is_there(world, child)
    assert (_condition(world, "Ready")["status"], _condition(world, "Ready")["reason"]) == ("False", reason)


def test_a_foreign_namespace_of_the_name_is_left_alone_and_taken_once_it_is_gone() -> None:
    world = _world()
    child = _sub(world)
    world.put_in(Namespace.resource, {"metadata": {"name": child}})
    cluster = _settle(world)
    assert _condition(world, "Ready")["reason"] == reasons.NAMESPACE_EXISTS
    assert "labels" not in world.get(Namespace.resource, child)["metadata"]
    world.delete(Namespace.resource, child)
    world.finish_deletions()
    cluster.settle(30)
    assert _condition(world, "Ready")["status"] == "True"


def test_a_deleted_subnamespace_goes_with_its_namespace() -> None:
    world = _world()
    child = _sub(world)
    _settle(world)
    world.delete(Subnamespace.resource, "acme/team")
    _settle(world)
    assert not _is_there(world, child)
    assert (Subnamespace.resource, "acme/team") not in world.objects


def test_a_subnamespace_with_others_inside_is_kept_until_it_may_cascade() -> None:
    world = _world()
    child = _sub(world)
    _settle(world)
    inner = _sub(world, "inner", child)
    _settle(world)
    world.delete(Subnamespace.resource, "acme/team")
    _settle(world)
    assert _is_there(world, inner)
    assert _condition(world, "Stalled")["reason"] == reasons.CHILDREN_EXIST
    assert "'inner'" in _condition(world, "Stalled")["message"]
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"allowCascadingDeletion": True}})
    _settle(world)
    _settle(world)
    assert not any(resource == Subnamespace.resource for resource, _ in world.objects)
    assert not _is_there(world, inner)


def test_a_lease_ends_with_the_subnamespace() -> None:
    world = _world()
    child = _sub(world, expires_at="2026-01-01T01:00:30Z")
    cluster = _operator(world)
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
    world = _world()
    child = _sub(world)
    _settle(world)
    guest: Json = {"metadata": {"name": "guests", "namespace": child}, "roleRef": {}}
    world.put_in(RoleBinding.resource, {**guest, "subjects": [{"kind": "User", "name": "carl"}]})
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": True}, "metadata": {"generation": 2}})
    _settle(world)
    assert _subjects(world, child) == []
    assert not world.get(RoleBinding.resource, f"{child}/guests").get("subjects")
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": False}})
    _settle(world)
    assert _subjects(world, child) == ["alice"]
    assert world.get(RoleBinding.resource, f"{child}/guests")["subjects"] == [{"kind": "User", "name": "carl"}]


def test_a_workspace_moves_with_its_namespace_and_its_old_subnamespace_goes() -> None:
    world = _world()
    child, other = _sub(world), _sub(world, "other")
    _settle(world)
    _sub(world, "team", other, adopt=Adoption(namespace=child, parent="acme"))
    _settle(world)
    _settle(world)
    labels = world.get(Namespace.resource, child)["metadata"]["labels"]
    assert labels[marks.PARENT] == other
    assert (Subnamespace.resource, "acme/team") not in world.objects
    assert _get(world, "team", other)["status"]["namespace"] == child


def test_a_namespace_whose_subnamespace_is_gone_is_swept_by_the_next_of_its_name() -> None:
    world = _world()
    child = _sub(world)
    _settle(world)
    world.patch(Subnamespace.resource, "acme/team", {"metadata": {"finalizers": []}})
    world.delete(Subnamespace.resource, "acme/team")
    _sub(world)
    _settle(world)
    _settle(world)
    uid = _get(world)["metadata"]["uid"]
    assert world.get(Namespace.resource, child)["metadata"]["labels"][marks.SUBNAMESPACE_UID] == uid


def test_an_object_that_was_changed_by_hand_is_put_back_and_an_event_says_so() -> None:
    world = _world()
    child = _sub(world)
    _settle(world)
    world.patch(RoleBinding.resource, f"{child}/tenantry-owner", {"subjects": [{"kind": "User", "name": "eve"}]})
    cluster = _settle(world)
    assert _subjects(world, child) == ["alice"]
    assert any(key == "acme/team" and reason == reasons.CORRECTED for key, _, reason, _ in cluster.said)


def test_a_shortage_of_quota_is_told_and_ends_with_it() -> None:
    world = _world(quota={"cpu": 4})
    child = _sub(world, quota=Quota(hard={"cpu": 6}))
    _settle(world)
    assert not _is_there(world, child)
    assert _condition(world, "Ready")["status"] == "False"
    world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"cpu": 10}}}})
    _settle(world)
    assert _condition(world, "Ready")["status"] == "True"
    assert world.get(ResourceQuota.resource, f"{child}/tenantry-quota")["spec"]["hard"] == {"requests.cpu": "6"}
