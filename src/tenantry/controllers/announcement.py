"""Events of what a reconcile did and what stands in its way: the same words for every kind."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.model import Condition
from tenantry.api.requests import ClusterRoleRequest, RoleRequest
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.controllers.conclusion import warned_of, was_said
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import find
from tenantry.engine.events import EventKind, Recorder
from tenantry.engine.plan import Blocked, Step, StepAction


def announce(
    recorder: Recorder, about: Tenant | Subnamespace, outcome: Outcome, clashes: Iterable[Blocked] = ()
) -> None:
    """Say what was put back, and what newly stands in the way.

    Args:
        recorder: Writes events.
        about: As it was before the reconcile, with the conditions of that time.
        outcome: What came of it.
        clashes: What else stands in the way.
    """
    # Conditions report what a changed spec asked for; events report corrections of what others changed. A write that
    # follows a failure that passed is usually part of the request, and no correction.
    is_new = about.status.observed_generation != about.metadata.generation
    asked_for = is_new or find(about.status.conditions, reasons.RECONCILING) is not None
    for step in outcome.done if not asked_for else ():
        recorder.say(about, EventKind.NORMAL, reasons.CORRECTED, told(step))
    for blocked in (*outcome.blocked, *clashes):
        if not blocked.passing and not was_said(about.status.conditions, blocked):
            recorder.say(about, EventKind.WARNING, blocked.reason, blocked.message)


def warn_of_end(
    recorder: Recorder,
    about: Tenant | Subnamespace | RoleRequest | ClusterRoleRequest,
    conditions: Iterable[Condition],
) -> None:
    """Say that a lease ends, where the conditions say it in new words.

    Args:
        recorder: Writes events.
        about: As it was before the reconcile, with the conditions of that time.
        conditions: Those of now.
    """
    warning = warned_of(conditions)
    if warning and warning != warned_of(about.status.conditions):
        recorder.say(about, EventKind.WARNING, reasons.EXPIRES_SOON, warning)


def told(step: Step) -> str:
    """Return what a step did, for people."""
    name = f"{step.resource.kind} {step.name!r}"
    if step.action is StepAction.UPDATE:
        return f"put back {shortened(step.differs)} of {name}"
    return f"{'made' if step.action is StepAction.CREATE else 'deleted'} {name}"
