"""What a control plane is charged, and when its process may start (H01)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import (
    PROCESS_FINALIZER,
    DatastoreKind,
    PlaneDatastore,
    PlaneLimits,
    PlaneRequests,
    PlaneResources,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.controllers.quota.objects import is_charged, plane_charge, plane_request
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.virtualcontrolplane import desired, status
from tenantry.controllers.virtualcontrolplane.charge import PlaneCharge, find
from tenantry.controllers.virtualcontrolplane.startslots import AT_ONCE, PER_TENANT, StartSlots
from tenantry.engine.conditions import is_true
from tenantry.engine.plan import Blocked
from tenantry.hosting import etcdserver
from tenantry.world.shares.amounts import read, spelled

USUAL = {"limits.memory": "256Mi", "requests.cpu": "50m", "requests.memory": "96Mi"}
WITH_ETCD = {"limits.memory": "768Mi", "requests.cpu": "75m", "requests.memory": "224Mi"}
LARGE = {**USUAL, "limits.memory": "1Gi"}
SHORT = Blocked(reason=reasons.QUOTA_INSUFFICIENT, message="limits.memory: 1Gi requested, 0 available")


def plane(
    limit: str = "256Mi",
    *,
    charged: dict[str, str] | None = None,
    generation: int = 2,
    **meta: Any,  # noqa: ANN401
) -> VirtualControlPlane:
    """Return a control plane."""
    resources = PlaneResources(requests=PlaneRequests(), limits=PlaneLimits(memory=limit))
    own: dict[str, Any] = {"name": "web", "namespace": "acme", "uid": "u", "resource_version": "7"}
    return VirtualControlPlane(
        metadata=ObjectMeta(**own, generation=generation, **meta),
        spec=VirtualControlPlaneSpec(resources=resources),
        status=VirtualControlPlaneStatus(charged=charged or {}),
    )


def recorded(charge: PlaneCharge) -> dict[str, str]:
    """Return what the next write records, which must be at the resourceVersion that was read."""
    assert charge.write is not None
    body = charge.write.body
    assert isinstance(body, VirtualControlPlane)
    assert (charge.write.subresource, body.metadata.resource_version) == ("status", "7")
    assert not charge.may_run
    return body.status.charged


@pytest.mark.parametrize(
    "verdict",
    [None, ShareVerdict(generation=1), ShareVerdict(generation=2, in_force=False)],
    ids=["no verdict", "verdict on an earlier spec", "moves of shares under way"],
)
def test_no_process_starts_before_the_quota_covers_it(verdict: ShareVerdict | None) -> None:
    """H01: the first verdict on the present spec decides, once the shares that shrink for it are in force."""
    found = find(plane(), verdict)
    assert found.waits is not None
    assert (found.write, found.may_run, found.waits.reason) == (None, False, reasons.PROGRESSING)


def test_the_charge_is_recorded_before_the_process_starts() -> None:
    """H01: written ahead, so that a restarted operator does not give the share away."""
    assert recorded(find(plane(), ShareVerdict(generation=2))) == USUAL
    assert find(plane(charged=USUAL), None) == PlaneCharge(may_run=True)


def test_a_shortage_names_the_key_and_what_to_do() -> None:
    """H01, X08: the condition says what is short; the process is not started."""
    found = find(plane("1Gi"), ShareVerdict(generation=2, blocked=SHORT, in_force=False))
    assert found.waits is not None
    assert (found.write, found.may_run, found.waits.reason) == (None, False, reasons.QUOTA_INSUFFICIENT)
    for words in ("the process is not started", "limits.memory: 1Gi requested, 0 available", "lower spec.resources"):
        assert words in found.waits.message


def with_etcd(found: VirtualControlPlane) -> VirtualControlPlane:
    """Return a control plane with an etcd of its own."""
    spec = replace(found.spec, datastore=PlaneDatastore(kind=DatastoreKind.OWN_ETCD))
    return replace(found, spec=spec)


def test_an_etcd_of_its_own_is_charged_before_it_starts() -> None:
    """H01, VCP-32: besides the process, whose limits are those of its own part."""
    assert recorded(find(with_etcd(plane()), ShareVerdict(generation=2))) == WITH_ETCD
    assert read(WITH_ETCD)["limits.memory"] - read(USUAL)["limits.memory"] == etcdserver.OWN_MEMORY_BYTES * 1000
    found = find(with_etcd(plane()), ShareVerdict(generation=2, blocked=SHORT, in_force=False))
    assert found.waits is not None
    assert "an etcd of its own (limits.memory 512Mi, requests.cpu 25m, requests.memory 128Mi)" in found.waits.message
    for charged in (WITH_ETCD, USUAL):
        # The latter is the charge of an earlier version, which runs on.
        limits = desired.limits_of(with_etcd(plane(charged=charged)))
        assert (limits.memory_bytes, limits.cpu_millis) == (256 * 2**20, 50)
    assert find(with_etcd(plane(charged=USUAL)), None).may_run


def test_a_control_plane_that_cannot_grow_runs_on() -> None:
    """H01: with what it has; the condition Stalled says what is short, and Ready stays True."""
    found = find(plane("1Gi", charged=USUAL), ShareVerdict(generation=2, blocked=SHORT, in_force=False))
    assert found.may_run
    assert found.waits is not None
    assert "keeps the resources that it has" in found.waits.message
    written = status.compute(plane(charged=USUAL), None, short=found.waits, endpoint="", now="")
    told = {each.type: (each.status.value, each.reason) for each in written.conditions}
    assert told["Ready"] == ("True", reasons.ESTABLISHED)
    assert told["Stalled"] == ("True", reasons.QUOTA_INSUFFICIENT)
    assert written.charged == USUAL


def test_what_is_no_longer_requested_is_given_back_in_the_status_first() -> None:
    """H01: the quota controller divides the larger of the spec and the status, so no share is given twice."""
    smaller = plane(charged=LARGE)
    assert plane_request(smaller).hard == read(LARGE)
    assert recorded(find(smaller, None)) == USUAL
    assert plane_request(plane(charged=USUAL)).hard == read(USUAL)


def test_an_owner_who_lowers_the_spec_while_it_is_deleted_frees_nothing() -> None:
    """H01: the share returns when the process is gone."""
    request = plane_request(plane(charged=LARGE, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert (request.deleting, request.charged, request.hard) == (True, read(LARGE), read(LARGE))


def test_quantities_that_cannot_be_read_stop_neither_the_division_nor_the_process() -> None:
    """H01: the schema refuses them; an object that was stored before must not stop a tenant's quota."""
    request = plane_request(plane("lots", charged=USUAL))
    assert request.problem is not None
    assert (request.problem.reason, request.hard) == (reasons.INVALID_SPEC, read(USUAL))
    found = find(plane("lots", charged=USUAL), None)
    assert found.waits is not None
    assert (found.may_run, found.waits.reason) == (True, reasons.INVALID_SPEC)
    assert not find(plane("lots"), None).may_run


def test_only_what_may_have_a_process_is_charged() -> None:
    """H01: on clusters without a place for processes, a control plane takes nothing of the quota."""
    assert not is_charged(plane())
    assert is_charged(plane(finalizers=(PROCESS_FINALIZER,)))
    assert is_charged(plane(charged=USUAL))


def test_a_tenant_has_few_starts_at_once_and_others_go_on() -> None:
    """H01: control planes that are created and deleted in a loop do not occupy the operator."""
    slots = StartSlots()
    assert [slots.take("acme", f"acme/{number}") for number in range(PER_TENANT + 2)] == [True] * PER_TENANT + [
        False
    ] * 2
    assert slots.take("other", "other/web")
    assert slots.give_back("acme") == [f"acme/{PER_TENANT}", f"acme/{PER_TENANT + 1}"]
    assert slots.take("acme", f"acme/{PER_TENANT}")
    assert not slots.take("acme", f"acme/{PER_TENANT + 1}")


def test_all_tenants_together_have_a_bound_of_starts() -> None:
    """H01: after a restart of the operator, control planes start one after the other."""
    slots = StartSlots()
    taken = [slots.take(f"t{number}", f"t{number}/web") for number in range(AT_ONCE + 1)]
    assert taken == [True] * AT_ONCE + [False]
    assert slots.give_back("t0") == [f"t{AT_ONCE}/web"]
    assert slots.take(f"t{AT_ONCE}", f"t{AT_ONCE}/web")


@pytest.mark.parametrize("why", ["", "this machine has no cgroup controller memory"])
def test_limits_that_nothing_enforces_are_reported(why: str) -> None:
    """H01: for as long as that is so; the control plane is usable all the same."""
    written = status.compute(plane(charged=USUAL), None, unlimited=why, endpoint="", now="")
    told = [each.message for each in written.conditions if each.type == reasons.UNLIMITED]
    assert told == ([f"nothing keeps its process within spec.resources: {why}"] if why else [])
    assert is_true(written.conditions, reasons.READY)


def test_the_suspension_of_the_tenant_is_the_reason_of_ready() -> None:
    """H01: users get a 503; the process runs on, so that neither it nor its Tenant fails."""
    suspended = status.compute(plane(charged=USUAL), None, endpoint="", now="", is_suspended=True)
    (told,) = suspended.conditions
    assert (told.type, told.status, told.reason) == ("Ready", "True", reasons.TENANT_SUSPENDED)
    assert "refused with a 503 until the suspension of the tenant ends" in told.message
    failed = status.compute(plane(), SHORT, endpoint="", now="", is_suspended=True)
    assert {each.reason for each in failed.conditions} == {reasons.QUOTA_INSUFFICIENT}


@pytest.mark.parametrize("has_etcd", [False, True])
def test_three_processes_of_an_earlier_version_run_on(has_etcd: bool) -> None:  # noqa: FBT001 - pytest passes it so
    """H01, VCP-32: their charge has no etcd, which must not be taken off it."""
    many = with_etcd(plane())
    many = replace(many, spec=replace(many.spec, replicas=3))
    charged = plane_charge(many.spec) if has_etcd else {key: 3 * each for key, each in read(USUAL).items()}
    many = replace(many, status=replace(many.status, charged=spelled(charged)))
    assert desired.replicas_of(many) == 3
    limits = desired.limits_of(many)
    assert (limits.memory_bytes, limits.cpu_millis) == (256 * 2**20, 50)
