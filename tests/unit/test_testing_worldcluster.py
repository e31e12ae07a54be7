"""The model of an API server that controllers are tested against, and the cluster in front of it."""

from __future__ import annotations

import pytest

from tenantry.api.errors import AlreadyExists, Conflict, NotFound, TooManyRequests
from tenantry.api.kubernetes import Namespace, ResourceQuota, RoleBinding
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.engine.request import ApiRequest, Verb, evict
from testkit.model import Json, World, is_selected
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

QUOTA: Json = {"metadata": {"name": "q", "namespace": "acme"}, "spec": {"hard": {"pods": "1"}}}


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "acme"}})
    world.put_in(ResourceQuota.resource, QUOTA)
    return world


def _patch(body: Json, subresource: str = "") -> ApiRequest:
    return ApiRequest(
        verb=Verb.PATCH, resource=ResourceQuota.resource, namespace="acme", name="q", body=body, subresource=subresource
    )


def _quota(world: World) -> Json:
    return world.get(ResourceQuota.resource, "acme/q")


def test_a_status_is_written_only_through_its_subresource_and_leaves_the_generation() -> None:
    world = _world()
    world.answer(_patch({"spec": {"hard": {"pods": "2"}}, "status": {"used": {"pods": "9"}}}))
    assert "status" not in _quota(world)
    assert _quota(world)["metadata"]["generation"] == 2
    world.answer(_patch({"spec": {"hard": {"pods": "3"}}, "status": {"used": {"pods": "1"}}}, "status"))
    assert (_quota(world)["spec"], _quota(world)["status"]) == ({"hard": {"pods": "2"}}, {"used": {"pods": "1"}})
    assert _quota(world)["metadata"]["generation"] == 2


def test_preconditions_are_checked_and_names_are_unique() -> None:
    world = _world()
    with pytest.raises(Conflict):
        world.patch(ResourceQuota.resource, "acme/q", {"metadata": {"resourceVersion": "1"}})
    with pytest.raises(Conflict):
        world.delete(ResourceQuota.resource, "acme/q", uid="another")
    with pytest.raises(AlreadyExists):
        world.put_in(ResourceQuota.resource, QUOTA)


def test_finalizers_keep_an_object_and_its_namespace_until_they_are_removed() -> None:
    world = _world()
    world.patch(ResourceQuota.resource, "acme/q", {"metadata": {"finalizers": ["tenantry.dev/a"]}})
    world.delete(Namespace.resource, "acme")
    world.finish_deletions()
    assert "deletionTimestamp" in _quota(world)["metadata"]
    world.patch(ResourceQuota.resource, "acme/q", {"metadata": {"finalizers": []}})
    world.finish_deletions()
    assert not world.objects


def test_what_a_deleted_object_owned_goes_with_it() -> None:
    world = _world()
    owner = {"uid": _quota(world)["metadata"]["uid"], "kind": "ResourceQuota", "name": "q", "apiVersion": "v1"}
    world.put_in(RoleBinding.resource, {"metadata": {"name": "b", "namespace": "acme", "ownerReferences": [owner]}})
    world.finish_deletions()
    assert (RoleBinding.resource, "acme/b") in world.objects
    world.delete(ResourceQuota.resource, "acme/q")
    world.finish_deletions()
    assert (RoleBinding.resource, "acme/b") not in world.objects


def test_an_eviction_obeys_the_disruption_budget() -> None:
    world = _world()
    world.protected.add("acme/q")
    asked = evict(ResourceQuota.resource, "acme", "q", _quota(world)["metadata"]["uid"])
    with pytest.raises(TooManyRequests):
        world.answer(asked)
    world.protected.clear()
    world.answer(asked)
    with pytest.raises(NotFound):
        _quota(world)


@pytest.mark.parametrize(
    ("selectors", "matches"),
    [
        ({"labelSelector": "a=b"}, True),
        ({"labelSelector": "a=b,c"}, False),
        ({"labelSelector": "!c,a"}, True),
        ({"fieldSelector": "spec.nodeName=n1,status.phase!=Failed"}, True),
        ({"fieldSelector": "spec.nodeName!=n1"}, False),
    ],
)
def test_selectors_match_as_in_kubernetes(selectors: dict[str, str], matches: bool) -> None:  # noqa: FBT001 - a table
    value: Json = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "n1"}}
    assert is_selected(value, selectors) is matches


def test_the_operators_controllers_establish_a_tenant_and_then_write_nothing() -> None:
    world = World()
    world.create(tenant("acme", quota={"cpu": 4}))
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    cluster.settle(seconds=60)
    conditions = world.get(Tenant.resource, "acme")["status"]["conditions"]
    assert next(each["status"] for each in conditions if each["type"] == "Ready") == "True"
    assert (RoleBinding.resource, "acme/tenantry-owner") in world.objects
    revision = world.revision
    WorldCluster(world, controllers(CLUSTER_UID)).settle(seconds=600)
    assert world.revision == revision


def test_a_crash_ends_an_operator_and_the_next_one_goes_on() -> None:
    world = World()
    world.create(tenant("acme"))
    faults = iter(["none"])
    with pytest.raises(Crash):
        WorldCluster(world, controllers(CLUSTER_UID), faults=lambda: next(faults, "crash")).settle()
    assert (RoleBinding.resource, "acme/tenantry-owner") not in world.objects
    WorldCluster(world, controllers(CLUSTER_UID)).settle()
    assert (RoleBinding.resource, "acme/tenantry-owner") in world.objects


def test_a_lost_answer_is_made_up_for() -> None:
    world = World()
    world.create(tenant("acme"))
    faults = iter(["answer lost", "lost", "none", "answer lost"])
    WorldCluster(world, controllers(CLUSTER_UID), faults=lambda: next(faults, "none")).settle(seconds=5)
    assert (RoleBinding.resource, "acme/tenantry-owner") in world.objects
