"""What becomes of requests: their controllers in a world without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRole, ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.marks import SYSTEM_NAMESPACE, TENANT
from tenantry.api.model import KubernetesObject, Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.requests import (
    APPROVALS,
    FINALIZER,
    REASONS,
    REQUEST_UID,
    ClusterRoleRequest,
    RoleRequest,
    TenantRequest,
)
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.controllers.requesters import desired as requesters
from tenantry.controllers.requests.desired import MOST_PENDING
from tenantry.world.inheritance import ROLES
from testkit.model import TERMINATING, Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
BOB: Json = {"name": "bob@uni.example", "groups": ["students"]}
DAY = 86_400


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    world.create(tenant("acme"))
    world.put_in(CLUSTER_ROLES, {"metadata": {"name": "view"}})
    _settle(world)
    return world


def _settle(world: World, seconds: float = 1) -> WorldCluster:
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    cluster.settle(seconds)
    return cluster


def _ask(world: World, kind: type[KubernetesObject], name: str = "r", **spec: Any) -> str:  # noqa: ANN401 - of any request
    resource = kind.resource
    namespace = {"namespace": "acme"} if resource.namespaced else {}
    meta = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", **namespace}
    role = {"roleRef": {"kind": "ClusterRole", "name": "view"}} if kind is not TenantRequest else {"tenant": "globex"}
    world.put_in(resource, {"metadata": meta, "spec": {"requester": BOB, **role, **spec}})
    return f"acme/{name}" if resource.namespaced else name


def _decide(world: World, kind: type[KubernetesObject], key: str, decision: str = "Approved") -> None:
    world.patch(kind.resource, key, {"status": {"decision": decision, "decidedBy": "ada"}})


def _ready(world: World, kind: type[KubernetesObject], key: str) -> tuple[str, str]:
    conditions = world.get(kind.resource, key)["status"]["conditions"]
    found: Json = next(each for each in conditions if each["type"] == "Ready")
    return found["status"], found["reason"]


def _has_binding(world: World) -> bool:
    return (RoleBinding.resource, "acme/request-r") in world.objects


# -- roles ----------------------------------------------------------------------------------------


def test_an_approved_role_is_bound_until_its_time_is_over() -> None:
    world = _world()
    key = _ask(world, RoleRequest, durationSeconds=DAY)
    cluster = _settle(world)
    assert (_ready(world, RoleRequest, key), _has_binding(world)) == (("False", reasons.AWAITING_DECISION), False)
    _decide(world, RoleRequest, key)
    cluster.settle(1)
    binding = world.get(RoleBinding.resource, "acme/request-r")
    assert (binding["roleRef"]["name"], [each["name"] for each in binding["subjects"]]) == ("view", [BOB["name"]])
    assert binding["metadata"]["labels"][TENANT] == "acme"
    assert _ready(world, RoleRequest, key) == ("True", reasons.GRANTED)
    cluster.settle(DAY + 60)
    assert not _has_binding(world)
    assert _ready(world, RoleRequest, key) == ("False", reasons.EXPIRED)
    said = [reason for about, _, reason, _ in cluster.said if about == key]
    assert said[0] == reasons.GRANTED
    assert {reasons.EXPIRES_SOON, reasons.EXPIRED} <= set(said)


def test_a_binding_that_was_deleted_by_hand_is_put_back() -> None:
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key)
    _settle(world)
    world.delete(RoleBinding.resource, "acme/request-r")
    cluster = _settle(world)
    assert _has_binding(world)
    assert any(about == key and reason == reasons.CORRECTED for about, _, reason, _ in cluster.said)


def test_a_binding_goes_with_its_request_and_that_of_an_earlier_one_is_replaced() -> None:
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key)
    cluster = _settle(world)
    world.delete(RoleRequest.resource, key)
    cluster.settle(1)
    assert not _has_binding(world)
    _decide(world, RoleRequest, _ask(world, RoleRequest))
    cluster.settle(1)
    old = world.get(RoleBinding.resource, "acme/request-r")["metadata"]["uid"]
    # The operator is paused while the request is made again: the binding has the uid of the earlier one.
    world.delete(RoleRequest.resource, key)
    _decide(world, RoleRequest, _ask(world, RoleRequest))
    _settle(world)
    assert world.get(RoleBinding.resource, "acme/request-r")["metadata"]["uid"] != old


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_binding_whose_deletion_fails_is_deleted_later(is_made_again: bool) -> None:  # noqa: FBT001 - a case
    """E16: no event would bring the request back to the queue."""
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key)
    faults: list[str] = []
    cluster = WorldCluster(world, controllers(CLUSTER_UID), faults=lambda: faults.pop() if faults else "none")
    cluster.settle(1)
    assert _has_binding(world)
    world.delete(RoleRequest.resource, key)
    if is_made_again:
        _ask(world, RoleRequest)
    faults.append("lost")
    cluster.settle(60)
    assert (faults, _has_binding(world)) == ([], False)


def test_a_role_that_does_not_exist_is_reported_and_bound_once_it_is_created() -> None:
    world = _world()
    key = _ask(world, RoleRequest, roleRef={"kind": "Role", "name": "deployer"})
    _decide(world, RoleRequest, key)
    cluster = _settle(world)
    assert _ready(world, RoleRequest, key) == ("False", reasons.ROLE_NOT_FOUND)
    world.put_in(ROLES, {"metadata": {"name": "deployer", "namespace": "acme"}, "rules": []})
    cluster.settle(600)
    assert _ready(world, RoleRequest, key) == ("True", reasons.GRANTED)


def test_a_suspension_takes_a_grant_back_and_its_end_returns_it() -> None:
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key)
    cluster = _settle(world)
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": True}})
    cluster.settle(60)
    assert (_ready(world, RoleRequest, key), _has_binding(world)) == (("False", reasons.TENANT_SUSPENDED), False)
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": False}})
    cluster.settle(60)
    assert _has_binding(world)


def test_a_role_is_granted_in_namespaces_of_tenants_only() -> None:
    world = _world()
    world.put_in(Namespace.resource, {"metadata": {"name": "plain"}})
    meta = {"name": "r", "namespace": "plain", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"requester": BOB, "roleRef": {"kind": "ClusterRole", "name": "view"}}
    world.put_in(RoleRequest.resource, {"metadata": meta, "spec": spec})
    _decide(world, RoleRequest, "plain/r")
    _settle(world)
    assert _ready(world, RoleRequest, "plain/r") == ("False", reasons.NOT_A_TENANTS_NAMESPACE)
    assert (RoleBinding.resource, "plain/request-r") not in world.objects


def test_the_end_of_a_namespace_ends_its_grants_without_a_try_to_grant_again() -> None:
    """Kubernetes deletes the binding first, and refuses to create it in a namespace that is being deleted."""
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key)
    cluster = _settle(world)
    said = len(cluster.said)
    world.patch(Namespace.resource, "acme", {"metadata": {"deletionTimestamp": TERMINATING}})
    world.delete(RoleBinding.resource, "acme/request-r")
    cluster.settle(60)
    assert not _has_binding(world)
    assert _ready(world, RoleRequest, key) == ("False", reasons.NAMESPACE_TERMINATING)
    assert [each for each in cluster.said[said:] if each[0] == key] == []


def test_a_denied_request_gets_nothing() -> None:
    world = _world()
    key = _ask(world, RoleRequest)
    _decide(world, RoleRequest, key, "Denied")
    _settle(world)
    assert (_ready(world, RoleRequest, key), _has_binding(world)) == (("False", reasons.DENIED), False)


def test_a_role_of_the_whole_cluster_is_bound_to_the_named_subjects() -> None:
    world = _world()
    key = _ask(world, ClusterRoleRequest, subjects=[{"kind": "Group", "name": "auditors"}])
    _decide(world, ClusterRoleRequest, key)
    cluster = _settle(world)
    subjects = world.get(ClusterRoleBinding.resource, "tenantry-request-r")["subjects"]
    assert [(each["kind"], each["name"]) for each in subjects] == [("Group", "auditors")]
    world.delete(ClusterRoleRequest.resource, key)
    cluster.settle(1)
    assert (ClusterRoleBinding.resource, "tenantry-request-r") not in world.objects


@pytest.mark.parametrize("kind", [RoleRequest, TenantRequest])
def test_the_newest_of_too_many_undecided_requests_are_withdrawn(kind: type[KubernetesObject]) -> None:
    """E16: admission cannot count."""
    world = _world()
    for number in range(MOST_PENDING + 3):
        _ask(world, kind, f"r-{number:02}")
    cluster = _settle(world)
    left = [each["metadata"]["name"] for each in world.list(kind.resource)]
    assert left == [f"r-{number:02}" for number in range(MOST_PENDING)]
    assert sum(reason == reasons.LIMIT_REACHED for _, _, reason, _ in cluster.said) == 3


# -- tenants --------------------------------------------------------------------------------------


def test_an_approved_tenant_is_created_once() -> None:
    world = _world()
    key = _ask(world, TenantRequest, durationSeconds=DAY)
    _decide(world, TenantRequest, key)
    cluster = _settle(world)
    made = world.get(Tenant.resource, "globex")
    assert [each["name"] for each in made["spec"]["owners"]] == [BOB["name"]]
    assert made["spec"]["expiresAt"] == "2026-01-02T00:00:00Z"
    assert _ready(world, TenantRequest, key) == ("True", reasons.GRANTED)
    world.delete(Tenant.resource, "globex")
    world.finish_deletions()
    cluster.settle(120)
    assert (Tenant.resource, "globex") not in world.objects


def test_a_name_that_is_taken_is_reported_until_it_is_free() -> None:
    world = _world()
    key = _ask(world, TenantRequest, tenant="acme")
    _decide(world, TenantRequest, key)
    cluster = _settle(world)
    assert _ready(world, TenantRequest, key) == ("False", reasons.TENANT_EXISTS)
    assert REQUEST_UID not in world.get(Tenant.resource, "acme")["metadata"].get("labels", {})
    world.delete(Tenant.resource, "acme")
    world.finish_deletions()
    cluster.settle(1)
    assert _ready(world, TenantRequest, key) == ("True", reasons.GRANTED)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_tenant_that_the_cache_has_not_seen_yet_is_looked_up(is_ours: bool) -> None:  # noqa: FBT001 - a case
    """E16: an operator that ended between the creation and the status, and another client's tenant of the name."""
    world = _world()
    key = _ask(world, TenantRequest)
    _decide(world, TenantRequest, key)
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    uid = world.get(TenantRequest.resource, key)["metadata"]["uid"]
    labels = {REQUEST_UID: uid} if is_ours else {}
    spec: Json = {"owners": [{"kind": "User", "name": "carl"}]}
    world.put_in(Tenant.resource, {"metadata": {"name": "globex", "labels": labels}, "spec": spec})
    cluster.settle(look=False)
    assert _ready(world, TenantRequest, key)[1] == (reasons.GRANTED if is_ours else reasons.TENANT_EXISTS)
    assert world.get(Tenant.resource, "globex")["spec"] == spec


def test_a_rule_approves_a_request_and_is_published_for_the_policy_that_limits_the_operator() -> None:
    world = _world()
    rule = {"name": "students", "groups": ["students"], "maxQuota": {"requests.cpu": "2"}}
    large, small = ({"hard": {"requests.cpu": number}} for number in ("4", "1"))
    refused, fitting = _ask(world, TenantRequest, "a", quota=large), _ask(world, TenantRequest, "b", quota=small)
    cluster = _settle(world)
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"autoApprove": [rule]}})
    cluster.settle(60)
    reason = "TenancyDefaults spec.autoApprove 'students'"
    told = world.get(PolicyParameters.resource, f"{SYSTEM_NAMESPACE}/{APPROVALS}")
    assert texts_of(told["metadata"]["annotations"])[REASONS] == reason
    assert world.get(TenantRequest.resource, fitting)["status"]["decision"] == "Approved"
    assert world.get(TenantRequest.resource, refused)["status"].get("decision", "Pending") == "Pending"
    assert (Tenant.resource, "globex") in world.objects


# -- who reads them -------------------------------------------------------------------------------


def test_a_requester_reads_the_own_requests_until_they_are_withdrawn() -> None:
    """E16: a role names them; another user's requests are in another role, and a name is free after the role."""
    world = _world()
    bob = requesters.role_name(BOB["name"])
    for name in ("one", "two"):
        _ask(world, TenantRequest, name)
    world.put_in(
        TenantRequest.resource,
        {"metadata": {"name": "hers"}, "spec": {"tenant": "initech", "requester": {"name": "carol"}}},
    )
    _settle(world)
    (rule,) = world.get(ClusterRole.resource, bob)["rules"]
    assert (rule["verbs"], rule["resourceNames"]) == (["get", "list", "watch"], ["one", "two"])
    (subject,) = world.get(ClusterRoleBinding.resource, bob)["subjects"]
    assert (subject["kind"], subject["name"]) == ("User", BOB["name"])

    world.delete(TenantRequest.resource, "one")
    held = world.get(TenantRequest.resource, "one")["metadata"]
    assert held["finalizers"] == [FINALIZER]
    _settle(world)
    assert world.get(ClusterRole.resource, bob)["rules"][0]["resourceNames"] == ["two"]
    assert (TenantRequest.resource, "one") not in world.objects
    world.delete(TenantRequest.resource, "two")
    _settle(world)
    left = [key for kind, key in world.objects if kind in {ClusterRole.resource, ClusterRoleBinding.resource}]
    assert bob not in left
    assert requesters.role_name("carol") in left


def test_the_role_of_a_requester_names_a_bounded_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """E16: the newest; an object has at most 1.5 MB."""
    monkeypatch.setattr(requesters, "MOST_READABLE", 2)
    world = _world()
    for day, name in ((3, "third"), (1, "first"), (2, "second")):
        meta = {"name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
        world.put_in(TenantRequest.resource, {"metadata": meta, "spec": {"tenant": name, "requester": BOB}})
    _settle(world)
    (rule,) = world.get(ClusterRole.resource, requesters.role_name(BOB["name"]))["rules"]
    assert rule["resourceNames"] == ["second", "third"]
