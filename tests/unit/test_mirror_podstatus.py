"""The status of upper pods."""

from __future__ import annotations

from typing import Any

from tenantry.mirror.podstatus import refused
from testkit.mirroring import copied, lower_pod, status_up, upper_pod

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
READY: Json = {"type": "Ready", "status": "True", "observedGeneration": 1}


def upper(**spec: object) -> Json:
    """Return an upper pod of generation 7."""
    pod = upper_pod(**spec)
    pod["metadata"]["generation"] = 7
    return pod


def test_the_whole_status_goes_up() -> None:
    pod = upper()
    statuses = [{"name": "web", "ready": True, "state": {"running": {"startedAt": NOW}}}]
    lower = lower_pod(
        pod,
        phase="Running",
        podIP="10.0.0.1",
        qosClass="Burstable",
        observedGeneration=1,
        conditions=[READY],
        containerStatuses=statuses,
        nominatedNodeName="n-1",
        resourceClaimStatuses=[{"name": "a"}],
        extendedResourceClaimStatus={"resourceClaimName": "b"},
    )
    before = copied(lower)
    assert status_up(pod, lower) == {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "qosClass": "Burstable",
        "observedGeneration": 7,
        "conditions": [{**READY, "observedGeneration": 7}],
        "containerStatuses": statuses,
    }
    assert lower == before


def test_a_status_that_is_there_is_not_written_again() -> None:
    pod = upper()
    lower = lower_pod(pod, phase="Running", observedGeneration=1, conditions=[READY])
    pod["status"] = status_up(pod, lower)
    assert status_up(pod, lower) is None


def test_a_pod_without_a_status_or_of_another_uid_changes_nothing() -> None:
    pod = upper()
    assert status_up(pod, lower_pod(pod)) is None
    lower = lower_pod(pod, phase="Running")
    pod["metadata"]["uid"] = "u-again"
    assert status_up(pod, lower) is None


def test_a_generation_that_was_not_observed_is_not_reported() -> None:
    pod = upper()
    pod["status"] = {"observedGeneration": 5, "conditions": [{"type": "Ready", "observedGeneration": 4}]}
    lower = lower_pod(pod, phase="Running", observedGeneration=1, conditions=[READY])
    lower["metadata"]["generation"] = 2
    status = status_up(pod, lower)
    assert status is not None
    assert (status["observedGeneration"], status["conditions"][0]["observedGeneration"]) == (5, 4)


def test_a_change_that_is_still_to_come_is_not_observed() -> None:
    pod = upper()
    lower = lower_pod(pod, phase="Running", observedGeneration=1)
    pod["spec"]["containers"][0]["image"] = "web:2"
    assert status_up(pod, lower) == {"phase": "Running"}


def test_the_upper_side_decides_its_quality_of_service() -> None:
    pod = upper()
    pod["status"] = {"qosClass": "BestEffort"}
    assert status_up(pod, lower_pod(pod, phase="Running", qosClass="Burstable")) == {
        "phase": "Running",
        "qosClass": "BestEffort",
    }


def test_the_message_of_the_scheduler_goes_up() -> None:
    pod = upper()
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    status = status_up(pod, lower_pod(pod, phase="Pending", conditions=[full]))
    assert status == {"phase": "Pending", "conditions": [full]}


def test_conditions_of_readiness_gates_are_those_of_the_upper_side() -> None:
    gate = {"type": "example.com/ready", "status": "True"}
    pod = upper(readinessGates=[{"conditionType": "example.com/ready"}])
    pod["status"] = {"conditions": [gate, {"type": "Other", "status": "True"}]}
    lower = lower_pod(pod, phase="Running", conditions=[{**gate, "status": "False"}, READY])
    status = status_up(pod, lower)
    assert status is not None
    assert status["conditions"] == [{**READY, "observedGeneration": 7}, gate]


def test_a_pod_is_ready_when_its_readiness_gates_are() -> None:
    pod = upper(readinessGates=[{"conditionType": "example.com/ready"}])
    lower = lower_pod(pod, phase="Running", conditions=[{**READY, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    assert "readinessGates" not in lower["spec"]
    status = status_up(pod, lower)
    assert status is not None
    assert status["conditions"] == [
        {
            **READY,
            "status": "False",
            "reason": "ReadinessGatesNotReady",
            "message": "conditions of readiness gates are not True: example.com/ready",
            "observedGeneration": 7,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    gate = {"type": "example.com/ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}
    pod["status"] = {"conditions": [gate]}
    status = status_up(pod, lower)
    assert status is not None
    ready = {**READY, "observedGeneration": 7, "lastTransitionTime": "2026-01-02T00:00:00Z"}
    assert status["conditions"] == [ready, gate]


def test_what_disrupts_a_pod_on_the_upper_side_stays() -> None:
    """An eviction inside records it, and the Job controller reads it when the lower pod has ended."""
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod = upper()
    pod["status"] = {"conditions": [disrupted, {"type": "Other", "status": "True"}]}
    ended = status_up(pod, lower_pod(pod, phase="Failed", conditions=[READY]))
    assert ended is not None
    assert ended["conditions"] == [{**READY, "observedGeneration": 7}, disrupted]
    pod["status"] = ended
    assert status_up(pod, lower_pod(pod, phase="Failed", conditions=[READY])) is None
    # The lower side has disrupted it, too.
    preempted = {**disrupted, "reason": "PreemptionByScheduler"}
    both = status_up(pod, lower_pod(pod, phase="Failed", conditions=[preempted]))
    assert both is not None
    assert [each["reason"] for each in both["conditions"]] == ["PreemptionByScheduler"]


def test_a_refused_pod_is_not_scheduled() -> None:
    pod = upper()
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort", "conditions": [READY]}
    status = refused(pod, "HostRefused", "too large", NOW)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "HostRefused",
        "message": "too large",
        "observedGeneration": 7,
        "lastTransitionTime": NOW,
    }
    assert status == {"phase": "Pending", "qosClass": "BestEffort", "conditions": [READY, condition]}
    pod["status"] = status
    assert refused(pod, "HostRefused", "too large", "2027-01-01T00:00:00Z") is None
    other = refused(pod, "HostRefused", "too many", "2027-01-01T00:00:00Z")
    assert other is not None
    assert other["conditions"][1] == {**condition, "message": "too many"}


def test_a_refusal_ends_with_the_first_status() -> None:
    pod = upper()
    pod["status"] = refused(pod, "HostRefused", "too large", NOW)
    assert status_up(pod, lower_pod(pod, phase="Pending")) == {"phase": "Pending"}


def test_the_progress_of_a_resize_goes_up() -> None:
    pod = upper(containers=[{"name": "web", "resources": {"requests": {"cpu": "2"}}}])
    before = upper(containers=[{"name": "web", "resources": {"requests": {"cpu": "1"}}}])
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "observedGeneration": 1}
    statuses = [{"name": "web", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}]
    found: Json = {"phase": "Running", "conditions": [pending], "containerStatuses": statuses}
    status = status_up(pod, lower_pod(pod, **found))
    assert status == {**found, "conditions": [{**pending, "observedGeneration": 7}]}
    # The lower pod has not been resized yet: what it has observed is not the upper pod's latest generation.
    status = status_up(pod, lower_pod(before, **found))
    assert status is not None
    assert "observedGeneration" not in status["conditions"][0]
