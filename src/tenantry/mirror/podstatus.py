"""Translate the status of a lower Pod to the upper side: pure.

The upper pod gets the whole status, except what names objects of the lower side, and except what its own API server
decides:

    lower status ─► without nominatedNodeName and ResourceClaims
                 ─► observedGeneration of the upper pod, once the lower pod has all of its changes
                 ─► qosClass of the upper pod, which its API server decides and nothing may change
                 ─► conditions of readiness gates from the upper pod, where their controllers write them,
                     which the condition Ready waits for; and DisruptionTarget, if an eviction inside has set it
"""

from __future__ import annotations

import msgspec

from tenantry.api.model import ConditionStatus, Json
from tenantry.api.wording import shortened
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

SCHEDULED = "PodScheduled"
_DISRUPTED = "DisruptionTarget"
_READY = "Ready"
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
    if not found or annotations.get(profile.mark("uid")) != part(upper, "metadata").get("uid"):
        return None
    status: Json = msgspec.to_builtins({key: value for key, value in found.items() if key not in _LEFT_OUT})
    if "qosClass" in old:
        status["qosClass"] = old["qosClass"]
    generations = _Generations(upper, lower, is_current=is_current)
    generations.translate(status, old)
    conditions = _conditions(status)
    for condition in conditions:
        generations.translate(condition, _condition(old, condition.get("type")) or {})
    gates = {str(each.get("conditionType")) for each in items(part(upper, "spec"), "readinessGates")}
    own = [each for each in _conditions(old) if str(each.get("type")) in gates]
    kept = [each for each in conditions if str(each.get("type")) not in gates]
    status.pop("conditions", None)
    for condition in kept:
        if condition.get("type") == _READY and condition.get("status") == ConditionStatus.TRUE.value:
            _hold(condition, gates, own)
    disrupted = _condition(old, _DISRUPTED)
    if disrupted is not None and _condition(found, _DISRUPTED) is None:
        # Each side may disrupt the pod; controllers above read why (Kubernetes, "Pod failure policy").
        own.append(disrupted)
    if kept or own:
        status["conditions"] = [*kept, *msgspec.to_builtins(own)]
    return None if status == old or _is_known(status, old) else status


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


def refused(upper: Json, reason: str, message: str, now: str) -> Json | None:
    """Return the status of an upper pod that has no lower one: PodScheduled is False; None if it has it.

    Args:
        upper: The upper Pod.
        reason: A reason in PascalCase.
        message: What the lower side refused, and what to do.
        now: The time, as RFC 3339.
    """
    old = part(upper, "status")
    before = _condition(old, SCHEDULED) or {}
    wanted: Json = {"type": SCHEDULED, "status": ConditionStatus.FALSE.value, "reason": reason, "message": message}
    generation = _generation(upper)
    if generation is not None:
        wanted["observedGeneration"] = generation
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    is_same = before.get("status") == wanted["status"] and "lastTransitionTime" in before
    wanted["lastTransitionTime"] = before["lastTransitionTime"] if is_same else now
    status: Json = msgspec.to_builtins(old)
    others = [each for each in _conditions(status) if each.get("type") != SCHEDULED]
    return {"phase": "Pending", **status, "conditions": [*others, msgspec.to_builtins(wanted)]}


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
