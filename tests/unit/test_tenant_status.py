"""What a tenant says of itself."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InputError,
    Invalid,
    NotFound,
    ServerError,
    TenantryError,
    TerminalError,
    TooManyRequests,
    Unreachable,
)
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.tenant import Tenant, TenantStatus
from tenantry.api.tenantresourcequota import (
    Batch,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
    TenantResourceQuotaStatus,
)
from tenantry.controllers.tenant import status
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import find, is_true
from tenantry.engine.plan import Blocked
from tenantry.world.leases import LeaseState
from testkit.worlds import tenant

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
FOREIGN = Blocked(reason=reasons.NAMESPACE_EXISTS, message="exists already")
TERMINATING = Blocked(reason=reasons.NAMESPACE_TERMINATING, message="is being deleted", passing=True)


def _compute(
    value: Tenant, outcome: Outcome | None = None, *, installed: bool = False, attempt: int = 0, now: str = EARLY
) -> TenantStatus:
    return status.compute(value, outcome or Outcome(), has_cluster_policies=installed, attempt=attempt, now=now)


def _reason(found: TenantStatus, type_: str) -> str:
    condition = find(found.conditions, type_)
    return condition.reason if condition else ""


def test_a_tenant_that_is_as_it_should_be_is_ready() -> None:
    """E01."""
    found = _compute(tenant(generation=3))
    assert is_true(found.conditions, reasons.READY)
    assert (found.observed_generation, found.namespace) == (3, "acme")
    told = [condition.type for condition in found.conditions]
    assert told == [reasons.READY, reasons.SANDBOXED], "the others only when they are true"


def test_computing_again_changes_nothing() -> None:
    """E01: conditions do not flap, and nothing is written when nothing differs."""
    first = _compute(tenant())
    assert _compute(tenant(status=first), now=LATE) == first


@pytest.mark.parametrize(
    ("quota", "raised"),
    [
        ("tenantry-counts", "spec.objectCounts of TenancyDefaults 'default'"),
        ("tenantry-quota", "count/networkpolicies.networking.k8s.io of spec.quota of the Tenant or Subnamespace"),
        ("own", "count/networkpolicies.networking.k8s.io of ResourceQuota 'own'"),
    ],
)
def test_a_full_quota_that_refuses_an_object_of_tenantry_says_what_to_do(quota: str, raised: str) -> None:
    """E14: a tenant of an older version may have as many NetworkPolicies as allowed."""
    key = "count/networkpolicies.networking.k8s.io"
    text = f'"tenantry-isolation" is forbidden: exceeded quota: {quota}, requested: {key}=1, used: {key}=81'
    condition = find(_compute(tenant(), Outcome(error=Forbidden(text, status=403))).conditions, reasons.STALLED)
    assert condition is not None
    assert condition.message.startswith(text)
    assert f"delete one of the networkpolicies.networking.k8s.io there, or raise {raised}" in condition.message


def test_a_foreign_namespace_is_told_until_it_goes() -> None:
    """E01: never taken over."""
    found = _compute(tenant(), Outcome(blocked=(FOREIGN,)))
    assert _reason(found, reasons.READY) == reasons.NAMESPACE_EXISTS
    assert is_true(found.conditions, reasons.STALLED)
    assert found.namespace == "", "there is none of ours"
    assert not is_true(_compute(tenant(status=found), now=LATE).conditions, reasons.STALLED)


PROBLEMS: list[tuple[TenantryError, str, bool]] = [
    (Invalid("spec.hard: wrong", status=422), reasons.INVALID_SPEC, False),
    (InputError("quota key"), reasons.INVALID_SPEC, False),
    (Forbidden("exceeded quota", status=403), reasons.REFUSED, False),
    (TerminalError(reasons.INVALID_SPEC, "annotation"), reasons.INVALID_SPEC, False),
    (Conflict("changed", status=409), reasons.API_ERROR, True),
    (TooManyRequests("slow down", status=429), reasons.API_ERROR, True),
    (ServerError("etcd", status=500), reasons.API_ERROR, True),
    (Unreachable("away"), reasons.API_ERROR, True),
    (NotFound('namespaces "acme" not found', status=404), reasons.API_ERROR, True),
    (ApiError("teapot", status=418), reasons.API_ERROR, False),
]


@pytest.mark.parametrize(("error", "reason", "passing"), PROBLEMS)
def test_an_error_is_told_with_whether_it_passes(error: TenantryError, reason: str, passing: bool) -> None:  # noqa: FBT001
    found = _compute(tenant(), Outcome(error=error))
    assert _reason(found, reasons.READY) == reason
    assert is_true(found.conditions, reasons.RECONCILING) is passing
    assert is_true(found.conditions, reasons.STALLED) is not passing


def test_what_passes_is_not_told_before_it_lasted() -> None:
    """E01: a conflict is nothing that a person can act on."""
    ready = _compute(tenant())
    outcome = Outcome(error=Conflict("changed", status=409))
    for attempt in range(status.PATIENCE):
        assert _compute(tenant(status=ready), outcome, attempt=attempt, now=LATE) == ready
    told = _compute(tenant(status=ready), outcome, attempt=status.PATIENCE, now=LATE)
    assert not is_true(told.conditions, reasons.READY)


def test_a_namespace_that_is_going_is_told_at_once() -> None:
    """E01: it may take hours, and the tenant is not ready for so long."""
    ready = _compute(tenant())
    found = _compute(tenant(status=ready), Outcome(blocked=(TERMINATING,)), now=LATE)
    assert _reason(found, reasons.READY) == reasons.NAMESPACE_TERMINATING
    assert is_true(found.conditions, reasons.RECONCILING)


def test_suspended_is_true_only_once_all_bindings_are_emptied() -> None:
    """E02."""
    done = _compute(tenant(suspended=True))
    assert is_true(done.conditions, reasons.SUSPENDED)
    half = _compute(tenant(suspended=True), Outcome(error=Invalid("x", status=422)))
    assert not is_true(half.conditions, reasons.SUSPENDED)
    assert _reason(half, reasons.SUSPENDED) == reasons.SUSPENDING


def test_suspended_is_removed_once_all_bindings_are_restored() -> None:
    """E02."""
    suspended = _compute(tenant(suspended=True))
    half = _compute(tenant(status=suspended), Outcome(error=Invalid("x", status=422)), now=LATE)
    condition = find(half.conditions, reasons.SUSPENDED)
    assert condition is not None
    assert (condition.status, condition.reason) == (ConditionStatus.TRUE, reasons.RESUMING)
    assert find(_compute(tenant(status=half), now=LATE).conditions, reasons.SUSPENDED) is None


@pytest.mark.parametrize(
    ("installed", "holds", "reason"),
    [(True, True, reasons.IN_FORCE), (False, False, reasons.KIND_NOT_INSTALLED)],
)
def test_a_cluster_policy_is_in_force_or_said_not_to_be(installed: bool, holds: bool, reason: str) -> None:  # noqa: FBT001
    """E03."""
    found = _compute(tenant(cluster_policy=True), installed=installed)
    assert is_true(found.conditions, reasons.CLUSTER_NETWORK_POLICY) is holds
    assert _reason(found, reasons.CLUSTER_NETWORK_POLICY) == reason
    assert is_true(found.conditions, reasons.READY), "the rest of the tenant is there"


def test_a_cluster_policy_that_the_spec_does_not_request_has_no_condition() -> None:
    """E03."""
    assert find(_compute(tenant(), installed=True).conditions, reasons.CLUSTER_NETWORK_POLICY) is None


def test_a_tenant_that_can_run_no_pod_is_not_ready() -> None:
    """E09: the message names the key; an adjustment of the quota counts."""
    value = tenant(quota={"cpu": 0, "memory": "1Gi"})
    found = _compute(value)
    assert _reason(found, reasons.READY) == reasons.NO_POD_FITS
    ready = find(found.conditions, reasons.READY)
    assert ready is not None
    assert "requests.cpu is 0 in spec.quota.hard of the Tenant" in ready.message
    adjusted = TenantResourceQuotaStatus(
        hard={"requests.cpu": "1", "requests.memory": "1Gi"}, batch=Batch(counted=True)
    )
    divided = TenantResourceQuota(metadata=ObjectMeta(name="acme"), spec=TenantResourceQuotaSpec(), status=adjusted)
    after = status.compute(value, Outcome(), has_cluster_policies=False, attempt=0, now=EARLY, tenant_quota=divided)
    assert is_true(after.conditions, reasons.READY)


def test_a_tenant_whose_lease_has_ended_is_not_ready() -> None:
    """X05: the message names the field and the command that opens it again."""
    value = tenant(suspended=True)
    value = msgspec.structs.replace(value, spec=msgspec.structs.replace(value.spec, expires_at=EARLY))
    ended = LeaseState(is_expired=True, warned=2, next_seconds=None)
    found = status.compute(value, Outcome(), has_cluster_policies=False, attempt=0, now=LATE, lease=ended)
    ready = find(found.conditions, reasons.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, reasons.EXPIRED)
    assert f"spec.expiresAt is {EARLY}" in ready.message
    assert "tenantry tenant renew acme --for" in ready.message
    assert is_true(found.conditions, reasons.SUSPENDED)
    assert is_true(_compute(tenant(suspended=True)).conditions, reasons.READY), "the spec requests that suspension"


def test_a_tenant_whose_quota_does_not_fit_is_not_ready() -> None:
    """E10: for the reason of its TenantResourceQuota, until that is gone."""
    told = "requests.cpu: subnamespaces hold 7, 2 more than 5: 'b' has 4, 'a' has 3"
    stalled = Condition(
        type=reasons.STALLED,
        status=ConditionStatus.TRUE,
        reason=reasons.QUOTA_SHORT,
        message=told,
        last_transition_time=EARLY,
    )
    short = TenantResourceQuotaStatus(hard={"requests.cpu": "7"}, batch=Batch(counted=True), conditions=(stalled,))
    divided = TenantResourceQuota(metadata=ObjectMeta(name="acme"), spec=TenantResourceQuotaSpec(), status=short)
    value = tenant(quota={"cpu": 5})
    found = status.compute(value, Outcome(), has_cluster_policies=False, attempt=0, now=EARLY, tenant_quota=divided)
    ready = find(found.conditions, reasons.READY)
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == (ConditionStatus.FALSE, reasons.QUOTA_SHORT, told)
    fits = msgspec.structs.replace(divided, status=msgspec.structs.replace(short, conditions=()))
    after = status.compute(value, Outcome(), has_cluster_policies=False, attempt=0, now=EARLY, tenant_quota=fits)
    assert is_true(after.conditions, reasons.READY)
