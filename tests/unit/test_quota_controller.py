"""What becomes of a tenant's quota: the controllers of the operator in a world without I/O."""

from __future__ import annotations

import random

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.operator import controllers
from tenantry.controllers.quota.desired import plan
from tenantry.controllers.quota.gather import QuotaInputs
from tenantry.engine.observed import observe
from tenantry.engine.plan import DirectWrite
from tenantry.engine.request import Verb
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.runs import FAULTS
from testkit.treeworld import add_subnamespace, settle, world_of
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

QUOTA = "tenantry-quota"
CORE = f"acme/{QUOTA}"


def _world(cpu: int = 8) -> World:
    return world_of(quota={"requests.cpu": cpu})


def _sub(world: World, name: str, namespace: str, cpu: int) -> str:
    return add_subnamespace(world, name, namespace, quota=Quota(hard={"requests.cpu": cpu}))


def _shares(world: World) -> dict[str, int]:
    """Return the share of each namespace, in CPUs."""
    return {
        value["metadata"]["namespace"]: int(value["spec"]["hard"]["requests.cpu"])
        for value in world.list(ResourceQuota.resource)
        if value["metadata"]["name"] == QUOTA
    }


def _status(world: World) -> Json:
    return world.get(TenantResourceQuota.resource, "acme")["status"]


def test_a_tenant_of_one_namespace_has_its_whole_quota_in_one_object() -> None:
    world = _world()
    assert _shares(world) == {"acme": 8}
    assert (TenantResourceQuota.resource, "acme") not in world.objects
    world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"requests.cpu": 3}}}})
    settle(world)
    assert _shares(world) == {"acme": 3}


def test_a_quota_that_was_changed_by_hand_is_put_back_and_an_event_says_so() -> None:
    world = _world()
    world.patch(ResourceQuota.resource, CORE, {"spec": {"hard": {"requests.cpu": "99", "pods": "1"}}})
    cluster = settle(world)
    assert world.get(ResourceQuota.resource, CORE)["spec"]["hard"] == {"requests.cpu": "8"}
    assert any(reason == reasons.CORRECTED and "spec of ResourceQuota" in note for _, _, reason, note in cluster.said)


def test_a_deletion_that_found_nothing_is_no_correction() -> None:
    """A ResourceQuota with scopes is created anew; another client may delete it first."""
    world = _world()
    world.patch(ResourceQuota.resource, CORE, {"spec": {"scopes": ["Terminating"]}})

    def fault() -> str:
        if world.objects.get((ResourceQuota.resource, CORE), {}).get("spec", {}).get("scopes"):
            world.delete(ResourceQuota.resource, CORE)
        return "none"

    cluster = WorldCluster(world, controllers(CLUSTER_UID), faults=fault)
    cluster.settle(30)
    assert _shares(world) == {"acme": 8}
    assert not [note for *_, note in cluster.said if "put back spec of ResourceQuota" in note]


def test_the_tenant_quota_of_an_earlier_tenant_is_reported() -> None:
    world = _world()
    earlier: Json = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": "acme", "uid": "earlier"}
    world.put_in(TenantResourceQuota.resource, {"metadata": {"name": "acme", "ownerReferences": [earlier]}, "spec": {}})
    _sub(world, "team", "acme", 3)
    cluster = settle(world)
    notes = [note for _, _, reason, note in cluster.said if reason == reasons.OBJECT_EXISTS]
    assert any("belongs to an earlier tenant of that name; waiting until it is gone" in note for note in notes)


def test_a_quota_that_is_no_longer_asked_for_is_deleted() -> None:
    world = _world()
    world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"requests.cpu": None}}}})
    settle(world)
    assert (ResourceQuota.resource, CORE) not in world.objects


def test_children_get_their_share_and_give_it_back() -> None:
    world = _world()
    child = _sub(world, "team", "acme", 3)
    settle(world)
    assert _shares(world) == {"acme": 5, child: 3}
    assert _status(world)["hard"] == {"requests.cpu": "8"}
    assert {row["namespace"] for row in _status(world)["tree"]} == {"acme", child}
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"quota": {"hard": {"requests.cpu": 6}}}})
    settle(world)
    assert _shares(world) == {"acme": 2, child: 6}
    world.delete(Subnamespace.resource, "acme/team")
    settle(world)
    assert _shares(world) == {"acme": 8}


def test_a_share_that_was_changed_by_hand_is_put_back() -> None:
    world = _world()
    child = _sub(world, "team", "acme", 3)
    settle(world)
    world.patch(ResourceQuota.resource, f"{child}/{QUOTA}", {"spec": {"hard": {"requests.cpu": "50"}}})
    world.delete(ResourceQuota.resource, CORE)
    settle(world)
    assert _shares(world) == {"acme": 5, child: 3}


def test_a_lost_status_and_a_foreign_register_are_made_good() -> None:
    world = _world()
    child = _sub(world, "team", "acme", 3)
    settle(world)
    found = world.get(TenantResourceQuota.resource, "acme")
    world.delete(TenantResourceQuota.resource, "acme")
    world.put_in(TenantResourceQuota.resource, {"metadata": {"name": "acme"}, "spec": {}})
    settle(world)
    again = world.get(TenantResourceQuota.resource, "acme")
    assert again["metadata"]["ownerReferences"] == found["metadata"]["ownerReferences"]
    assert again["status"]["hard"] == {"requests.cpu": "8"}
    assert _shares(world) == {"acme": 5, child: 3}


def test_an_adjustment_is_divided_too_and_one_that_makes_no_sense_is_told() -> None:
    world = _world()
    _sub(world, "team", "acme", 3)
    settle(world)
    adjustments = [
        {"name": "more", "resources": {"requests.cpu": 4}},
        {"name": "odd", "resources": {"requests.memory": 4}},
    ]
    world.patch(TenantResourceQuota.resource, "acme", {"spec": {"adjustments": adjustments}})
    settle(world)
    assert _shares(world)["acme"] == 9
    ready = next(each for each in _status(world)["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], "'odd' is left out" in ready["message"]) == (reasons.INVALID_SPEC, True)


def test_a_namespace_that_uses_more_than_its_share_shows_on_the_tenant_quota() -> None:
    """E10: its administrator does not have to look at every Subnamespace; the Tenant itself works."""
    world = _world()
    child = _sub(world, "team", "acme", 3)
    settle(world)
    use = {"status": {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "2"}}}
    world.patch(ResourceQuota.resource, f"{child}/{QUOTA}", use)
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"quota": {"hard": {"requests.cpu": 1}}}})
    settle(world, 30)
    ready = next(each for each in _status(world)["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reasons.QUOTA_EXCEEDED)
    told = f"more is in use than the share of: {child!r} (requests.cpu); all of it stays, and new use there is refused"
    assert ready["message"] == told
    of_tenant = {each["type"]: each["status"] for each in world.get(Tenant.resource, "acme")["status"]["conditions"]}
    assert (of_tenant["Ready"], "Stalled" in of_tenant) == ("True", False)
    world.patch(ResourceQuota.resource, f"{child}/{QUOTA}", {"status": {"used": {"requests.cpu": "1"}}})
    settle(world, 30)
    ready = next(each for each in _status(world)["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["message"]) == ("True", "every share is in force")


def test_totals_that_go_on_changing_are_reported_now_and_then() -> None:
    """E09: the first changes at once, then one in a while, and the last one for certain."""
    world = _world()
    child = _sub(world, "team", "acme", 6)
    cluster = settle(world)
    for used in range(1, 6):
        for part in range(4):
            status = {"hard": {"requests.cpu": "6"}, "used": {"requests.cpu": f"{used}{part}00m"}}
            world.patch(ResourceQuota.resource, f"{child}/{QUOTA}", {"status": status})
            cluster.settle(0.1)
    assert _status(world)["used"]["requests.cpu"] != "5300m", "twenty changes in two seconds are too many"
    cluster.settle(10)
    assert _status(world)["used"]["requests.cpu"] == "5300m"
    assert world.get(Subnamespace.resource, "acme/team")["status"]["quota"]["used"]["requests.cpu"] == "5300m"


def test_the_plan_of_a_tenant_without_children_is_one_write_and_then_none() -> None:
    world = _world()
    owner = tenant("acme", quota={"requests.cpu": 5})
    value = world.get(ResourceQuota.resource, CORE)

    def seen(value: Json) -> QuotaInputs:
        found = observe(ResourceQuota.resource, msgspec.json.encode(value))
        return QuotaInputs(tenant=owner, quota=found, lookup=lambda _, __: found)

    (write,) = plan(seen(value)).writes
    assert isinstance(write, DirectWrite)
    assert write.request.verb is Verb.PATCH
    world.answer(write.request)
    assert plan(seen(world.get(ResourceQuota.resource, CORE))).is_empty


@pytest.mark.parametrize("seed", range(12))
def test_faults_and_crashes_at_any_request_end_in_the_same_shares(seed: int) -> None:
    """C04: at every moment the shares sum up to no more than the quota, and in the end each is what it should be."""
    chance = random.Random(seed)
    world = _world()
    child = _sub(world, "team", "acme", 4)
    settle(world)
    _sub(world, "inner", child, 1)
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"quota": {"hard": {"requests.cpu": 6}}}})

    def fault() -> str:
        assert sum(_shares(world).values()) <= 8
        return chance.choice(FAULTS)

    for _ in range(6):
        try:
            WorldCluster(world, controllers(CLUSTER_UID), faults=fault).settle(20)
        except Crash:
            continue
        finally:
            world.count_quotas()
    settle(world)
    inner = child_name("acme-uid", child, "inner")
    assert _shares(world) == {"acme": 2, child: 5, inner: 1}
    assert world.get(Namespace.resource, inner)["metadata"]["labels"][marks.PARENT] == child
