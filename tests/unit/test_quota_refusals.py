"""What other clients do to the objects of a tenant's quota: refusals, deletions, and an earlier tenant's leftovers."""

from __future__ import annotations

import pytest

from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.operator import controllers
from tenantry.controllers.quota import desired
from testkit.model import World
from testkit.treeworld import add_subnamespace, settle, world_of
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

CPU = "requests.cpu"
QUOTA = "tenantry-quota"
CORE = f"acme/{QUOTA}"


def _team(world: World, name: str, cpu: int) -> str:
    return add_subnamespace(world, name, quota=Quota(hard={CPU: cpu}))


def _shares(world: World) -> dict[str, int]:
    return {
        each["metadata"]["namespace"]: int(each["spec"]["hard"][CPU])
        for each in world.list(ResourceQuota.resource)
        if each["metadata"]["name"] == QUOTA
    }


@pytest.mark.parametrize("has_child", [False, True])
def test_a_quota_with_scopes_is_replaced_by_one_that_counts_everything(has_child: bool) -> None:  # noqa: FBT001 - a case
    """E09: the API server never changes scopes, so a change would be refused for ever."""
    world = world_of(quota={CPU: 8})
    child = _team(world, "team", 3) if has_child else ""
    settle(world)
    for key in [CORE, f"{child}/{QUOTA}"][: 1 + has_child]:
        world.patch(ResourceQuota.resource, key, {"spec": {"hard": {CPU: "99"}, "scopes": ["Terminating"]}})
    settle(world)
    assert _shares(world) == ({"acme": 5, child: 3} if has_child else {"acme": 8})
    assert not any("scopes" in each["spec"] for each in world.list(ResourceQuota.resource))


def test_a_quota_that_lost_its_labels_gets_them_back() -> None:
    """E09: no cache shows it, so the operator meets it when it creates the missing one."""
    world = world_of(quota={CPU: 8})
    child = _team(world, "team", 3)
    settle(world)
    world.patch(ResourceQuota.resource, f"{child}/{QUOTA}", {"metadata": {"labels": None}})
    settle(world)
    assert _shares(world) == {"acme": 5, child: 3}
    assert desired.labels(tenant("acme")).items() <= _labels(world, child).items()


def _labels(world: World, namespace: str) -> dict[str, str]:
    return world.get(ResourceQuota.resource, f"{namespace}/{QUOTA}")["metadata"]["labels"]


def test_nothing_moves_while_an_earlier_tenants_register_is_there() -> None:
    """E09: it goes with that tenant; then the new tenant gets one of its own."""
    world = world_of(quota={CPU: 8})
    earlier = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": "acme", "uid": "earlier"}
    register = {"metadata": {"name": "acme", "ownerReferences": [earlier]}, "spec": {}}
    world.put_in(TenantResourceQuota.resource, register)
    child = _team(world, "team", 3)
    settle(world)
    assert _shares(world) == {"acme": 8}
    assert "status" not in world.get(TenantResourceQuota.resource, "acme")
    world.delete(TenantResourceQuota.resource, "acme")
    settle(world)
    assert _shares(world) == {"acme": 5, child: 3}


def test_a_client_that_writes_all_the_time_delays_the_moves_and_breaks_no_sum() -> None:
    """E09: every write names the resourceVersion that it was decided on."""
    world = world_of(quota={CPU: 8})
    child = _team(world, "team", 3)
    settle(world)
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"quota": {"hard": {CPU: 6}}}})
    count = 0

    def meddle() -> str:
        nonlocal count
        count += 1
        assert sum(_shares(world).values()) <= 8
        for each in world.list(ResourceQuota.resource):
            key = f"{each['metadata']['namespace']}/{QUOTA}"
            world.patch(ResourceQuota.resource, key, {"metadata": {"annotations": {"theirs": str(count)}}})
        return "none"

    WorldCluster(world, controllers(CLUSTER_UID), faults=meddle).settle(1)
    assert _shares(world)["acme"] >= 2
    settle(world)
    assert _shares(world) == {"acme": 2, child: 6}


def test_a_tenant_that_is_deleted_and_created_again_starts_from_nothing() -> None:
    world = world_of(quota={CPU: 8})
    _team(world, "team", 3)
    cluster = settle(world)
    world.delete(Tenant.resource, "acme")
    for _ in range(4):
        cluster.settle(5)
        world.finish_deletions()
    assert world.list(ResourceQuota.resource) == []
    world.create(tenant("acme", uid="second", quota={CPU: 4}))
    cluster.settle(5)
    assert _shares(world) == {"acme": 4}
