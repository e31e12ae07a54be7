"""Translate the status of a lower Pod to the upper side: pure.

The upper pod gets the whole status, except what names objects of the lower side, and except what its own API server
decides:

    lower status ─► without nominatedNodeName and ResourceClaims
                 ─► observedGeneration of the upper pod, once the lower pod has all of its changes
                 ─► qosClass of the upper pod, which its API server decides and nothing may change
                 ─► conditions of readiness gates from the upper pod, where their controllers write them,
                     which the condition Ready waits for; and DisruptionTarget, if an eviction inside has set it

An upper pod that is bound before it is mirrored keeps its condition PodScheduled, and has one of its own that records
the lower pod: True while there is one or was one, False while the lower side refuses it.

    PodScheduled True   Mirrored True   Scheduled         it runs, or is about to
    PodScheduled True   Mirrored True   Unschedulable     the lower scheduler has found no node for it
    PodScheduled True   Mirrored False  <LowerSide.reason>  it has no lower pod
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from tenantry.api.model import ConditionStatus, Json
from tenantry.api.wording import shortened
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

_STATUSES = {
    "initContainers": "initContainerStatuses",
    "containers": "containerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}
_RESOURCES = ("allocatedResources", "allocatedResourcesStatus", "resources", "resize")
SCHEDULED = "PodScheduled"
_DISRUPTED = "DisruptionTarget"
READY = "Ready"
_CONTAINERS_READY = "ContainersReady"
_MOST_REASON = 128
_MOST_MESSAGE = 1024
_MOST_ITEMS = 64
_LOST_CONTAINER = "ContainerStatusUnknown"
_LOST_EXIT = 137
"""What kubelet reports of a container that it cannot find (kubernetes/pkg/kubelet/status/status_manager.go)."""

FAILED = "Failed"
ENDED = ("Succeeded", FAILED)
"""The phases of pods that never run again (Kubernetes: "Pod Lifecycle", pod phase)."""

_CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_LEFT_OUT = (
    "nominatedNodeName",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)


def up(upper: Json, lower: Json, profile: Profile, *, is_current: bool) -> Json | None:
    """Return the status that an upper pod should get from its lower one; None if it has it, or there is none yet.

    Args:
        upper: The upper Pod.
        lower: The lower Pod that `pods.down` made of it. One of another uid has no status for it.
        profile: The configuration.
        is_current: Whether the lower pod has the spec of the upper one; see `podchanges.PodChanges`.
    """
    found, old = part(lower, "status"), part(upper, "status")
    annotations = part(part(lower, "metadata"), "annotations")
    if annotations.get(profile.mark("uid")) != part(upper, "metadata").get("uid"):
        return None
    if not (_may_return(old, found) if profile.node else found):
        return None
    left_out = {*_LEFT_OUT, *profile.hidden}
    status: Json = msgspec.to_builtins({key: value for key, value in found.items() if key not in left_out})
    for field in ("qosClass", *(() if found else ("phase",))):
        if field in old:
            status[field] = old[field]
    generations = _Generations(upper, lower, is_current=is_current)
    generations.translate(status, old)
    for condition in _conditions(status):
        generations.translate(condition, _condition(old, condition.get("type")) or {})
    conditions = _merged(upper, lower, _conditions(status), profile)
    status.pop("conditions", None)
    if conditions:
        status["conditions"] = conditions
    if profile.node:
        status = _bounded(status, part(upper, "spec"))
    return None if status == old or _is_known(status, old) else status


def _bounded(status: Json, spec: Json) -> Json:
    """Return a status with bounded texts and lists, of containers in the spec only, and without their resources.

    The lower side is another cluster: what it reports as allocated would count in the quota of the upper namespace
    (Kubernetes, "Resource Quotas": the larger of requests and allocated resources).
    """
    kept: Json = {key: value for key, value in status.items() if key not in _RESOURCES}
    for field, statuses in _STATUSES.items():
        if statuses in kept:
            reported = {each.get("name"): each for each in reversed(items(kept, statuses))}
            names = [each.get("name") for each in items(spec, field)]
            found = [reported[each] for each in names if each in reported]
            kept[statuses] = [{key: value for key, value in each.items() if key not in _RESOURCES} for each in found]
    cut: Json = _cut(kept)
    return cut


def _cut(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    if isinstance(value, str):
        return value[:_MOST_MESSAGE]
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in cast("Json", value).items()}
    return [_cut(each) for each in cast("list[Any]", value)[:_MOST_ITEMS]] if isinstance(value, list) else value


def _may_return(old: Json, found: Json) -> bool:
    """Return whether the status of a lower pod may go up: a bound upper pod that has ended does not run again."""
    return old.get("phase") not in ENDED or found.get("phase") == old.get("phase")


def _merged(upper: Json, lower: Json, conditions: list[Json], profile: Profile) -> list[Json]:
    """Return the conditions of an upper pod.

    Args:
        upper: The upper Pod.
        lower: The lower Pod.
        conditions: The conditions of the lower one, with upper generations; they are changed.
        profile: The configuration.
    """
    old = part(upper, "status")
    gates = {str(each.get("conditionType")) for each in items(part(upper, "spec"), "readinessGates")}
    above = {*gates, SCHEDULED} if profile.node else gates
    own = [each for each in _conditions(old) if str(each.get("type")) in above]
    if profile.node:
        above.add(profile.mark(profile.condition))
    kept = [each for each in conditions if str(each.get("type")) not in above]
    for condition in kept:
        if condition.get("type") == READY and condition.get("status") == ConditionStatus.TRUE.value:
            _hold(condition, gates, [each for each in own if str(each.get("type")) in gates])
    disrupted = _condition(old, _DISRUPTED)
    if disrupted is not None and _condition(part(lower, "status"), _DISRUPTED) is None:
        # Each side may disrupt the pod; controllers above read why (Kubernetes, "Pod failure policy").
        own.append(disrupted)
    recorded = [_recorded(lower, profile)] if profile.node else []
    return [*kept, *msgspec.to_builtins(own), *recorded]


def _recorded(lower: Json, profile: Profile) -> Json:
    """Return the condition of a bound upper pod that has a lower one."""
    scheduled = _condition(part(lower, "status"), SCHEDULED) or {}
    waits = scheduled.get("status") == ConditionStatus.FALSE.value
    condition: Json = {
        "type": profile.mark(profile.condition),
        "status": ConditionStatus.TRUE.value,
        "reason": str(scheduled.get("reason") or "Unschedulable")[:_MOST_REASON] if waits else "Scheduled",
    }
    if waits:
        condition["message"] = str(scheduled.get("message") or "")[:_MOST_MESSAGE]
    since = part(lower, "metadata").get("creationTimestamp")
    return condition | ({"lastTransitionTime": since} if since else {})


def is_recorded(status: Json, profile: Profile) -> bool:
    """Return whether the status of a bound upper pod shows that it has, or had, a lower pod."""
    known = _condition(status, profile.mark(profile.condition)) or {}
    started = any(status.get(field) for field in ("startTime", "podIP", *_CONTAINERS))
    is_there = known.get("status") == ConditionStatus.TRUE.value or started
    return is_there or status.get("phase") not in (None, "", "Pending")


def _is_known(status: Json, old: Json) -> bool:
    """Return whether a status differs from the upper one only by the time of the binding, which has told all else."""
    if {key: value for key, value in status.items() if key != "conditions"} != {
        key: value for key, value in old.items() if key != "conditions"
    }:
        return False
    return _without_time(status) == _without_time(old)


def _without_time(status: Json) -> list[Json]:
    """Return the conditions, that of the binding without its time."""
    return [
        {key: value for key, value in each.items() if each.get("type") != SCHEDULED or key != "lastTransitionTime"}
        for each in _conditions(status)
    ]


def _hold(ready: Json, gates: set[str], own: list[Json]) -> None:
    """Set the condition Ready to False unless all readiness gates are True, as kubelet does."""
    passed = {str(each.get("type")): each for each in own if each.get("status") == ConditionStatus.TRUE.value}
    closed = sorted(gates.difference(passed))
    if closed:
        named = shortened(closed)
        ready |= {
            "status": ConditionStatus.FALSE.value,
            "reason": "ReadinessGatesNotReady",
            "message": f"conditions of readiness gates are not True: {named}",
        }
    times = [str(each.get("lastTransitionTime") or "") for each in (ready, *passed.values())]
    if not closed and max(times):
        # Ready since the last of them; all are RFC 3339 in UTC, which sort as text.
        ready["lastTransitionTime"] = max(times)


def refused(upper: Json, reason: str, message: str, now: str, type_: str = SCHEDULED) -> Json | None:
    """Return the status of an upper pod that has no lower one: a condition is False; None if it has it.

    Args:
        upper: The upper Pod.
        reason: A reason in PascalCase.
        message: What the lower side refused, and what to do.
        now: The time, as RFC 3339.
        type_: The type of the condition.
    """
    old = part(upper, "status")
    before = _condition(old, type_) or {}
    wanted: Json = {"type": type_, "status": ConditionStatus.FALSE.value, "reason": reason, "message": message}
    generation = _generation(upper)
    if generation is not None:
        wanted["observedGeneration"] = generation
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    is_same = before.get("status") == wanted["status"] and "lastTransitionTime" in before
    wanted["lastTransitionTime"] = before["lastTransitionTime"] if is_same else now
    status: Json = msgspec.to_builtins(old)
    others = [each for each in _conditions(status) if each.get("type") != type_]
    return {"phase": "Pending", **status, "conditions": [*others, msgspec.to_builtins(wanted)]}


def is_ready(status: Json) -> bool:
    """Return whether a status shows a pod as ready."""
    return (_condition(status, READY) or {}).get("status") == ConditionStatus.TRUE.value


def failed(upper: Json, reason: str, message: str, now: str) -> Json:
    """Return the status of a bound upper pod that has no lower one, and never gets another.

    Args:
        upper: The upper Pod.
        reason: A reason in PascalCase.
        message: Why.
        now: The time, as RFC 3339.
    """
    status: Json = msgspec.to_builtins(part(upper, "status"))
    status |= {"phase": FAILED, "reason": reason, "message": message}
    for condition in _conditions(status):
        if condition.get("type") in (READY, _CONTAINERS_READY) and condition.get("status") != "False":
            condition |= {"status": ConditionStatus.FALSE.value, "reason": "PodFailed", "lastTransitionTime": now}
            condition.pop("message", None)
    for field in _CONTAINERS:
        for container in items(status, field):
            if not part(part(container, "state"), "terminated"):
                ended: Json = {"exitCode": _LOST_EXIT, "reason": _LOST_CONTAINER, "message": message}
                container["state"] = {"terminated": ended}
                container["ready"] = False
    return status


class _Generations:
    """Replaces generations of a lower pod by those of its upper one."""

    def __init__(self, upper: Json, lower: Json, *, is_current: bool) -> None:
        self._upper = _generation(upper)
        self._lower = _generation(lower)
        # A lower pod without the latest changes has not observed the upper generation, whatever it has observed.
        self._is_current = is_current

    def translate(self, observed: Json, old: Json) -> None:
        """Set the observedGeneration of a status or condition, or keep the one that the upper pod has."""
        value = observed.pop("observedGeneration", None)
        if value is None:
            return
        if self._is_current and self._upper is not None and value == self._lower:
            observed["observedGeneration"] = self._upper
        elif "observedGeneration" in old:
            observed["observedGeneration"] = old["observedGeneration"]


def _generation(pod: Json) -> int | None:
    value = part(pod, "metadata").get("generation")
    return value if isinstance(value, int) else None


def _conditions(status: Json) -> list[Json]:
    return items(status, "conditions")


def _condition(status: Json, type_: object) -> Json | None:
    return next((each for each in _conditions(status) if each.get("type") == type_), None)
