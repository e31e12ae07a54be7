"""Whether a node that a slice gives back is clean, and the condition that reports it: pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from enum import Enum

import msgspec

from tenantry.api import reasons
from tenantry.api.cleaning import BY_HAND, CleaningResult, asked_at, request_of, slice_of_request
from tenantry.api.marks import CLEANED, CLEANING, NODE_AGENT, SLICE, TAKEN_BACK
from tenantry.api.model import Json
from tenantry.api.node import Node, NodeCondition
from tenantry.api.tenancydefaults import CleaningPolicy
from tenantry.controllers.slices.status import named
from tenantry.engine.clock import rfc3339, rfc3339_micro
from tenantry.world.leases import instant

CONDITION = "TenantryClean"
"""The condition of a node that reports whether the leftovers of its last tenant are gone."""

ANSWER_SECONDS = 60.0
"""How long an agent may take to answer before a condition reports it."""

_BINDS = "NoExecute"
"""The effect of a slice's taint on a node from the moment at which the tenant's pods may be scheduled there."""
_answer = msgspec.json.Decoder(CleaningResult)


class CleaningStage(Enum):
    """How far the cleaning of one node is."""

    NEEDLESS = "no pod of the tenant ran there, or no agent cleans such nodes"
    TO_ASK = "not requested yet"
    ASKED = "the agent is cleaning"
    STUCK = "a person must act"
    CLEAN = "finished"


class NodeCleaning(msgspec.Struct, frozen=True, kw_only=True):
    """The cleaning of one node.

    Args:
        stage: How far it is.
        message: For the condition; "" for none.
    """

    stage: CleaningStage
    message: str = ""


def find(node: Node, name: str, policy: CleaningPolicy, now: dt.datetime) -> NodeCleaning:
    """Return the state of the cleaning of a node after the pods of its slice have left.

    Args:
        node: As last seen.
        name: The name of the slice.
        policy: From TenancyDefaults.
        now: The time.
    """
    notes = node.metadata.annotations
    has_agent = bool(notes.get(NODE_AGENT))
    was_bound = any(taint.key == SLICE and taint.effect == _BINDS for taint in node.spec.taints)
    # A node that was only reserved never ran a pod of the tenant.
    if not was_bound or not (has_agent or policy is CleaningPolicy.REQUIRED):
        return NodeCleaning(stage=CleaningStage.NEEDLESS)
    request = notes.get(CLEANING, "")
    if slice_of_request(request) != name:
        return NodeCleaning(stage=CleaningStage.TO_ASK)
    answered = _answered(notes.get(CLEANED, ""), request)
    if answered is not None:
        return answered
    # The policy Required keeps such a node out of use instead of passing leftovers on to the next tenant.
    if not has_agent:
        message = f"it has no agent: clean it, and then run `tenantry node cleaned {node.metadata.name}`"
        return NodeCleaning(stage=CleaningStage.STUCK, message=message)
    if (now - instant(asked_at(request))).total_seconds() > ANSWER_SECONDS:
        return NodeCleaning(stage=CleaningStage.STUCK, message="its agent does not answer")
    return NodeCleaning(stage=CleaningStage.ASKED)


def _answered(said: str, request: str) -> NodeCleaning | None:
    """Return the result; None if the agent has not answered this request."""
    # An administrator who cleaned the node overrides the agent, which may not answer at all.
    if said == BY_HAND:
        return NodeCleaning(stage=CleaningStage.CLEAN, message="an administrator has cleaned it")
    answer = _read(said)
    # An answer to an earlier request is about the leftovers of an earlier tenant.
    if answer is None or answer.request != request:
        return None
    if answer.left:
        return NodeCleaning(stage=CleaningStage.STUCK, message=f"these are left: {named(answer.left)}")
    return NodeCleaning(stage=CleaningStage.CLEAN, message=_removed(answer))


def word(node: Node) -> tuple[str, ...]:
    """Return the annotations with which agent, contributor and operator communicate: a change of one is work."""
    return tuple(node.metadata.annotations.get(key, "") for key in (CLEANING, CLEANED, NODE_AGENT, TAKEN_BACK))


def ask(name: str, now: dt.datetime) -> Callable[[Node], Json]:
    """Return the merge patch that requests the cleaning of a node."""
    notes = {CLEANING: request_of(name, rfc3339_micro(now)), CLEANED: None}
    # The old answer goes with the request, so that it cannot be taken for the answer to the new one.
    return lambda node: {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": notes}}


def condition(node: Node, finding: NodeCleaning, now: dt.datetime) -> Json:
    """Return the strategic merge patch of a node's status that reports its cleaning; {} if it is reported already.

    Source: Kubernetes, "Node Status": conditions are merged by their type, so that those of kubelet stay.
    """
    is_clean = finding.stage is CleaningStage.CLEAN
    wanted = NodeCondition(
        type=CONDITION,
        status=str(is_clean),
        reason=reasons.CLEANED if is_clean else reasons.NODES_NOT_CLEAN,
        message=finding.message,
    )
    before = next((each for each in node.status.conditions if each.type == CONDITION), None)
    moment = rfc3339(now)
    if before is not None and before.status == wanted.status:
        if before.message == wanted.message and not (is_clean and _is_older(before, node)):
            return {}
        moment = moment if is_clean else before.last_transition_time or moment
    said = msgspec.to_builtins(msgspec.structs.replace(wanted, last_transition_time=moment))
    return {"status": {"conditions": [said]}}


def _is_older(said: NodeCondition, node: Node) -> bool:
    """Return whether a condition is older than the last request; conditions have whole seconds."""
    request = node.metadata.annotations.get(CLEANING, "")
    if not request or not said.last_transition_time:
        return True
    return instant(said.last_transition_time) < instant(asked_at(request)).replace(microsecond=0)


def _read(said: str) -> CleaningResult | None:
    """Return the answer of an agent; None if it does not decode: annotations of a node are not trusted."""
    try:
        return _answer.decode(said)
    except msgspec.MsgspecError:
        return None


def _removed(answer: CleaningResult) -> str:
    told = ", ".join(f"{number} {what}" for what, number in sorted(answer.removed.items()) if number)
    return f"removed: {told}" if told else "nothing was left there"
