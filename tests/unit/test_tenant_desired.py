"""What a tenant is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import (
    ClusterNetworkPolicy,
    LimitRange,
    LimitRangeItem,
    Namespace,
    NetworkPolicy,
    ResourceQuota,
    RoleBinding,
)
from tenantry.api.model import KubernetesObject
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.controllers.tenant import desired
from tenantry.world import quantity, quota
from testkit.worlds import CLUSTER_UID, group, service_account, tenant, user


def _objects(value: Tenant, *, has_cluster_policies: bool = False) -> dict[str, KubernetesObject]:
    children = desired.children(value, CLUSTER_UID, has_cluster_policies=has_cluster_policies)
    return {f"{child.object.resource.kind}/{child.object.key}": child.object for child in children}


def _limits(value: Tenant) -> LimitRangeItem | None:
    found = _objects(value).get("LimitRange/acme/tenantry-limits")
    return found.spec.limits[0] if isinstance(found, LimitRange) else None


def test_the_core_namespace_carries_the_marks_of_its_tenant() -> None:
    """E01: kind, tenant, tenant uid and cluster uid, and an owner reference that ends it with the tenant."""
    namespace = _objects(tenant(uid="t-1"))["Namespace/acme"]
    assert namespace.metadata.labels == {
        "app.kubernetes.io/managed-by": "tenantry",
        "tenantry.dev/kind": "core",
        "tenantry.dev/tenant": "acme",
        "tenantry.dev/tenant-uid": "t-1",
        "tenantry.dev/cluster-uid": CLUSTER_UID,
        "tenantry.dev/network": "Isolated",
        "tenantry.dev/zone": "t-1",
        "acme.tree.tenantry.dev/depth": "0",
        "tenantry.dev/rules-warn": "true",
    }
    owner = namespace.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Tenant", "acme", "t-1", True)


def test_owners_of_every_kind_are_bound_in_rbacs_words() -> None:
    """E01: users, groups and service accounts get the owner's role."""
    owners = [user("alice"), group("devs"), service_account("ci", "deployer")]
    binding = _objects(tenant(owners=owners))["RoleBinding/acme/tenantry-owner"]
    assert isinstance(binding, RoleBinding)
    assert binding.role_ref.name == marks.OWNER_ROLE
    assert [(each.kind, each.name) for each in binding.subjects] == [
        ("User", "alice"),
        ("Group", "devs"),
        ("ServiceAccount", "deployer"),
    ]
    assert binding.subjects[2].namespace == "ci"


def test_no_owner_is_bound_while_the_tenant_is_suspended() -> None:
    """E02: the label closes the namespace, and the owners' binding has no subjects."""
    objects = _objects(tenant(suspended=True))
    assert objects["Namespace/acme"].metadata.labels[marks.SUSPENDED] == "true"
    binding = objects["RoleBinding/acme/tenantry-owner"]
    assert isinstance(binding, RoleBinding)
    assert binding.subjects == ()


@pytest.mark.parametrize(
    ("network", "names"),
    [
        (NetworkIsolation.OPEN, {"tenantry-isolation"}),
        (NetworkIsolation.BASELINE, {"tenantry-isolation", "tenantry-outside"}),
        (NetworkIsolation.ISOLATED, {"tenantry-isolation"}),
    ],
)
def test_network_policies_follow_the_isolation(network: NetworkIsolation, names: set[str]) -> None:
    """E03: the baseline, beside which the cluster-level policy stands."""
    found = [value for value in _objects(tenant(network=network)).values() if isinstance(value, NetworkPolicy)]
    assert {value.metadata.name for value in found} == names
    for value in found:
        assert value.spec.pod_selector.match_labels == {}, "every pod"
        operators = {each.operator for each in value.spec.pod_selector.match_expressions if each.key == marks.NETWORK}
        assert operators == ({"Exists", "DoesNotExist"} if network is NetworkIsolation.OPEN else set()), "or none"


@pytest.mark.parametrize(("wanted", "installed"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_cluster_policy_is_there_when_asked_for_and_possible(wanted: bool, installed: bool) -> None:  # noqa: FBT001
    """E03: switched on and off, where the cluster has the kind."""
    objects = _objects(tenant(cluster_policy=wanted), has_cluster_policies=installed)
    found = [value for value in objects.values() if isinstance(value, ClusterNetworkPolicy)]
    assert len(found) == (1 if wanted and installed else 0)


def test_what_limits_and_isolates_comes_before_what_lets_people_in() -> None:
    """E01: there is no moment in which an owner is in a namespace without quota or policies."""
    children = desired.children(
        tenant(quota={"cpu": 1, "limits.cpu": 1}, cluster_policy=True), CLUSTER_UID, has_cluster_policies=True
    )
    waves = {type(child.object): child.wave for child in children}
    assert waves[Namespace] < min(waves[ResourceQuota], waves[LimitRange], waves[NetworkPolicy])
    people = waves.pop(RoleBinding)
    assert all(wave < people for wave in waves.values())


def test_a_quota_is_written_as_the_server_stores_it() -> None:
    quota = _objects(tenant(quota={"cpu": "2000m", "pods": 10}))["ResourceQuota/acme/tenantry-quota"]
    assert isinstance(quota, ResourceQuota)
    assert quota.spec.hard == {"pods": "10", "requests.cpu": "2"}


# -- defaults of containers -----------------------------------------------------------------------


def test_without_a_quota_of_compute_there_are_no_defaults() -> None:
    """B03: only where a quota would refuse pods that name nothing."""
    assert _limits(tenant(quota={"pods": 5})) is None


def test_a_quota_of_requests_gives_default_requests_and_no_limits() -> None:
    """B03: each side only where the quota asks for it."""
    item = _limits(tenant(quota={"cpu": 4, "memory": "8Gi"}))
    assert item is not None
    assert item.default_request == {"cpu": "100m", "memory": "128Mi"}
    assert item.default == {}


def test_defaults_never_exceed_the_whole_quota() -> None:
    """B03: else not even one pod would fit."""
    item = _limits(tenant(quota={"cpu": "50m", "limits.cpu": "200m"}))
    assert item is not None
    assert (item.default_request, item.default) == ({"cpu": "50m"}, {"cpu": "200m"})


def test_a_limit_without_a_request_is_written_with_the_request_that_the_server_fills_in() -> None:
    """B03: what we write is what is stored, so that a restart finds nothing to correct."""
    item = _limits(tenant(quota={"limits.memory": "1Gi"}))
    assert item is not None
    assert item.default == item.default_request == {"memory": "256Mi"}


def test_a_request_that_was_given_raises_the_standard_limit() -> None:
    """B03: the API server refuses a default request above the default limit."""
    item = _limits(tenant(quota={"limits.cpu": 8}, requests={"cpu": 1}))
    assert item is not None
    assert (item.default_request, item.default) == ({"cpu": "1"}, {"cpu": "1"})


def test_a_limit_that_was_given_lowers_the_standard_request() -> None:
    """B03: the same from the other side."""
    item = _limits(tenant(quota={"cpu": 8}, limits={"cpu": "50m"}))
    assert item is not None
    assert (item.default_request, item.default) == ({"cpu": "50m"}, {"cpu": "50m"})


def test_a_request_above_its_limit_is_the_persons_to_correct() -> None:
    with pytest.raises(InputError, match=r"spec\.containerDefaults\.requests 'cpu' must not be more"):
        desired.children(tenant(requests={"cpu": 2}, limits={"cpu": 1}), CLUSTER_UID)


COMPUTE = st.sampled_from(["cpu", "memory", "ephemeral-storage"])
AMOUNT = st.one_of(st.integers(1, 4000).map(lambda n: f"{n}m"), st.integers(1, 4096).map(lambda n: f"{n}Mi"))
DEFAULTS: st.SearchStrategy[dict[str, str | int]] = st.dictionaries(COMPUTE, AMOUNT, max_size=3)
HARD: st.SearchStrategy[dict[str, str | int]] = st.dictionaries(
    st.sampled_from([f"{side}.{name}" for side in ("requests", "limits") for name in quota.DEFAULT_LIMITS]),
    AMOUNT,
    max_size=6,
)


@given(HARD, DEFAULTS, DEFAULTS)
def test_default_limits_are_ones_that_the_server_accepts_and_leaves_alone(
    quota: dict[str, str | int], requests: dict[str, str | int], limits: dict[str, str | int]
) -> None:
    """B03: no request above its limit, a request for each limit, and every key of the quota is covered."""
    try:
        item = _limits(tenant(quota=quota, requests=requests, limits=limits))
    except InputError:
        assert any(quantity.parse(requests[n]) > quantity.parse(limits[n]) for n in requests if n in limits)
        return
    covered_requests = set(item.default_request) if item else set[str]()
    covered_limits = set(item.default) if item else set[str]()
    assert {f"requests.{name}" for name in covered_requests} >= {key for key in quota if key.startswith("requests.")}
    assert {f"limits.{name}" for name in covered_limits} >= {key for key in quota if key.startswith("limits.")}
    assert covered_requests >= covered_limits
    if item is not None:
        for name, limit in item.default.items():
            assert quantity.parse(item.default_request[name]) <= quantity.parse(limit)
        for name, value in requests.items():
            assert quantity.parse(item.default_request[name]) == quantity.parse(value), "what was given is kept"
        for name, value in limits.items():
            assert quantity.parse(item.default[name]) == quantity.parse(value), "what was given is kept"
