"""Events about the corrections and obstacles of a reconcile, the same for every kind."""

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


class LastInputs:
    """What the plans of each key were computed from last, apart from the objects that they bring in order.

    If these have changed, the plan carries out that change. If not, it corrects what another client changed.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, ...]] = {}

    def have_changed(self, key: str, inputs: tuple[object, ...], outcome: Outcome) -> bool:
        """Return whether a key was brought in order with other inputs before, and remember these.

        Args:
            key: The key.
            inputs: What the plan was computed from.
            outcome: Its outcome: after an error, the next reconcile still carries out the same change.
        """
        before = self._last.get(key, inputs)
        if outcome.error is None:
            self._last[key] = inputs
        return before != inputs

    def forget(self, key: str) -> None:
        """Forget a key whose object is gone."""
        self._last.pop(key, None)


def announce(
    recorder: Recorder,
    about: Tenant | Subnamespace,
    outcome: Outcome,
    clashes: Iterable[Blocked] = (),
    *,
    is_change: bool = False,
) -> None:
    """Write an event for each correction, and for each new obstacle.

    Args:
        recorder: It writes the events.
        about: The object before the reconcile, with the conditions of that time.
        outcome: The outcome of the plan.
        clashes: Other obstacles.
        is_change: The plan carries out a change of TenancyDefaults or of another object above; see `LastInputs`.
    """
    # Conditions report what a changed spec asked for; events report corrections of what others changed. A write that
    # follows a failure that passed is usually part of the request, and no correction.
    is_new = about.status.observed_generation != about.metadata.generation
    asked_for = is_change or is_new or find(about.status.conditions, reasons.RECONCILING) is not None
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
    """Write an event about the end of a lease, if the condition's message has changed.

    Args:
        recorder: It writes the event.
        about: The object before the reconcile, with the conditions of that time.
        conditions: The conditions after it.
    """
    warning = warned_of(conditions)
    if warning and warning != warned_of(about.status.conditions):
        recorder.say(about, EventKind.WARNING, reasons.EXPIRES_SOON, warning)


def told(step: Step) -> str:
    """Return the text of an event about a step."""
    name = f"{step.resource.kind} {step.name!r}"
    if step.action is StepAction.UPDATE:
        return f"put back {shortened(step.differs)} of {name}"
    return f"{'made' if step.action is StepAction.CREATE else 'deleted'} {name}"
