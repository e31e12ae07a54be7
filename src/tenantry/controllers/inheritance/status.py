"""What inheritance reports in the status of a Subnamespace, and of TenancyDefaults: pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import TenantryError, TerminalError
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.marks import INHERIT
from tenantry.api.model import Resource
from tenantry.api.subnamespace import InheritanceMode, Mode
from tenantry.api.tenancydefaults import TenancyDefaults, TenancyDefaultsStatus
from tenantry.api.wording import SHOWN, more, shortened
from tenantry.controllers import tenancyrules
from tenantry.controllers.inheritance.desired import (
    EXCEPTIONS,
    awaited,
    has_room,
    is_done,
    mode_of,
    needs_list,
    step_in,
)
from tenantry.controllers.inheritance.gather import ChildNamespace, InheritanceInputs, SourceInputs
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted, find, replaced
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, CopyStep, Plan
from tenantry.world import inheritance


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """The result of bringing every object of a parent into one child.

    Args:
        copied: For the status: the kinds of which copies were made, which happens once.
        blocked: What a person has to decide.
        error: The first refusal or failure.
    """

    copied: tuple[str, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    error: TenantryError | None = None


def inherited(
    inputs: InheritanceInputs, plan: Plan, outcome: Outcome, full: Mapping[Resource, Blocked] | None = None
) -> Inherited:
    """Return what the status of a child reports after its plan was carried out.

    Args:
        inputs: What the plan was computed from.
        plan: The plan.
        outcome: Its outcome.
        full: The kinds of which the plan leaves out copies, because a count limits them; see `desired.crowded`.
    """
    full = full or {}
    # A step of a later wave that was not tried has failed, too: what is copied once would be missing for good.
    tried = {id(step): result for step, result in outcome.copied}
    unfinished = {resource.full_name for resource in (*(resource for resource, _ in awaited(inputs)), *full)}
    for wave in plan.copies:
        for step in wave:
            if isinstance(tried.get(id(step), outcome.error), TenantryError):
                unfinished.add(step.resource.full_name)
    copied = finished(inputs.kinds, inputs.child, unfinished)
    error = outcome.error
    if full and error is None and inputs.child.subnamespace.spec.mode is Mode.SUBTENANT:
        # Its users wait for everything that it inherits, so that its parent adds nothing beside their objects.
        first = next(iter(full.values()))
        error = TerminalError(first.reason, first.message)
    return Inherited(copied=copied, blocked=_few(outcome.blocked), error=error)


def finished(kinds: Collection[Resource], child: ChildNamespace, unfinished: Collection[str]) -> tuple[str, ...]:
    """Return the kinds of which a child has its copies now, for its status; one that is no longer copied begins anew.

    Args:
        kinds: All that can be inherited.
        child: The child.
        unfinished: Those of which a copy is still missing.
    """
    spec = child.subnamespace.spec
    names = {
        kind.full_name
        for kind in kinds
        if inheritance.mode_for(spec, kind.full_name) is InheritanceMode.COPY
        and (kind.full_name in child.copied or kind.full_name not in unfinished)
    }
    if spec.mode is Mode.SUBTENANT and (EXCEPTIONS in child.copied or not unfinished):
        names.add(EXCEPTIONS)
    return tuple(sorted(names))


def concerned(inputs: SourceInputs) -> list[ChildNamespace]:
    """Return the children whose status must report something about an object, or may stop reporting it."""
    return [child for child in inputs.children if _is_concerned(inputs, child)]


def _is_concerned(inputs: SourceInputs, child: ChildNamespace) -> bool:
    resource, name = inputs.resource, inputs.name
    # A reported problem may have ended with this change, whatever it was about.
    reported = find(child.subnamespace.status.conditions, reasons.INHERITED)
    if reported is not None and reported.status != "True":
        return True
    step = step_in(resource, name, child, inputs.lookup, inputs.is_like)
    if isinstance(step, Blocked) or (step is not None and step.source is not None and not step.labels):
        return True
    if isinstance(step, CopyStep) and (needs_list(step) or not has_room(step, inputs, child)):
        return True
    source: Observed | None = inputs.lookup(resource, f"{child.parent}/{name}")
    annotation = source.annotations.get(INHERIT) if source is not None else None
    if annotation is not None and not inheritance.is_valid(annotation):
        return True
    is_copied = mode_of(resource, source, child) is InheritanceMode.COPY
    return is_copied and resource == RoleBinding.resource and not is_done(resource, child)


def of_defaults(defaults: TenancyDefaults, missing: Mapping[str, str], now: str) -> TenancyDefaultsStatus:
    """Return the status of TenancyDefaults.

    Args:
        defaults: With the conditions so far.
        missing: Why kinds cannot be inherited, by kind.
        now: RFC 3339.
    """
    count = len(defaults.spec.inheritable_kinds)
    # The rules are another controller's, but a condition has one writer.
    invalid = tenancyrules.invalid(defaults.spec.rules)
    problem = f"spec.rules are not in force: {invalid}" if invalid else shortened(missing.values(), separator="; ")
    trouble = reasons.INVALID_SPEC if invalid else reasons.KIND_NOT_INHERITABLE
    ready = Wanted(
        reasons.READY,
        not problem,
        trouble if problem else reasons.ESTABLISHED,
        problem or f"{count} kind{'' if count == 1 else 's'} can be inherited beside the seven",
    )
    generation = defaults.metadata.generation
    return TenancyDefaultsStatus(
        observed_generation=generation,
        conditions=replaced(defaults.status.conditions, [ready], generation=generation, now=now),
    )


def _few(blocked: tuple[Blocked, ...]) -> tuple[Blocked, ...]:
    """Return at most three problems; the last one says how many more there are."""
    if len(blocked) <= SHOWN:
        return blocked
    last = blocked[SHOWN - 1]
    counting = msgspec.structs.replace(last, message=f"{last.message}; {more(len(blocked) - SHOWN)}")
    return (*blocked[: SHOWN - 1], counting)
