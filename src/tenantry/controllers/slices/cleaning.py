"""Whether a node that a slice gives back is clean, and what is said of it where it is not: pure."""

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
"""The condition of a node that says whether what its last tenant left there is gone."""

ANSWER_SECONDS = 60.0
"""How long an agent may take to answer before people are told."""

_BINDS = "NoExecute"
"""The effect of a slice's taint that a node has from the moment on at which the tenant's pods may come."""
_answer = msgspec.json.Decoder(CleaningResult)


class CleaningStage(Enum):
    """How far the cleaning of one node is."""

    NEEDLESS = "nothing of the tenant can be there, or no agent cleans such nodes"
    TO_ASK = "not requested yet"
    ASKED = "the agent is at it"
    STUCK = "it does not come to an end without a person"
    CLEAN = "it is done"


class NodeCleaning(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the cleaning of one node.

    Args:
        stage: How far it is.
        message: What a person should know; "" for nothing.
    """

    stage: CleaningStage
    message: str = ""


def find(node: Node, name: str, policy: CleaningPolicy, now: dt.datetime) -> NodeCleaning:
    """Return how far the cleaning of a node is that has no pods of its slice any more.

    Args:
        node: As last seen.
        name: Of the slice.
        policy: Of TenancyDefaults.
        now: The time.
    """
    notes = node.metadata.annotations
    has_agent = bool(notes.get(NODE_AGENT))
    was_bound = any(taint.key == SLICE and taint.effect == _BINDS for taint in node.spec.taints)
    if not was_bound or not (has_agent or policy is CleaningPolicy.REQUIRED):
        return NodeCleaning(stage=CleaningStage.NEEDLESS)
    request = notes.get(CLEANING, "")
    if slice_of_request(request) != name:
        return NodeCleaning(stage=CleaningStage.TO_ASK)
    answered = _answered(notes.get(CLEANED, ""), request)
    if answered is not None:
        return answered
    if not has_agent:
        message = f"it has no agent: clean it, and then run `tenantry node cleaned {node.metadata.name}`"
        return NodeCleaning(stage=CleaningStage.STUCK, message=message)
    if (now - instant(asked_at(request))).total_seconds() > ANSWER_SECONDS:
        return NodeCleaning(stage=CleaningStage.STUCK, message="its agent does not answer")
    return NodeCleaning(stage=CleaningStage.ASKED)


def _answered(said: str, request: str) -> NodeCleaning | None:
    """Return the result; None if the agent has not answered this request."""
    if said == BY_HAND:
        return NodeCleaning(stage=CleaningStage.CLEAN, message="an administrator has cleaned it")
    answer = _read(said)
    if answer is None or answer.request != request:
        return None
    if answer.left:
        return NodeCleaning(stage=CleaningStage.STUCK, message=f"these are left: {named(answer.left)}")
    return NodeCleaning(stage=CleaningStage.CLEAN, message=_removed(answer))


def word(node: Node) -> tuple[str, ...]:
    """Return what a node, its owner and the operator say to each other: where it changes there is something to do."""
    return tuple(node.metadata.annotations.get(key, "") for key in (CLEANING, CLEANED, NODE_AGENT, TAKEN_BACK))


def ask(name: str, now: dt.datetime) -> Callable[[Node], Json]:
    """Return the merge patch that asks for the cleaning of a node."""
    notes = {CLEANING: request_of(name, rfc3339_micro(now)), CLEANED: None}
    return lambda node: {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": notes}}


def condition(node: Node, finding: NodeCleaning, now: dt.datetime) -> Json:
    """Return the strategic merge patch of a node's status that says how its cleaning ended; {} where it says so.

    Source: Kubernetes, "Node Status": conditions are merged by their type, so that a kubelet's stay.
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
    """Return whether a condition is about a cleaning before the last request; it counts in whole seconds."""
    request = node.metadata.annotations.get(CLEANING, "")
    if not request or not said.last_transition_time:
        return True
    return instant(said.last_transition_time) < instant(asked_at(request)).replace(microsecond=0)


def _read(said: str) -> CleaningResult | None:
    """Return what an agent answered; None where it is no answer: what a node says is not to be trusted."""
    try:
        return _answer.decode(said)
    except msgspec.MsgspecError:
        return None


def _removed(answer: CleaningResult) -> str:
    told = ", ".join(f"{number} {what}" for what, number in sorted(answer.removed.items()) if number)
    return f"removed: {told}" if told else "nothing was left there"
