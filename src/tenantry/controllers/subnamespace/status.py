"""Compute the status of a Subnamespace: pure."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import object_key
from tenantry.api.subnamespace import Inheritance, Mode, Subnamespace, SubnamespaceQuota, SubnamespaceStatus
from tenantry.controllers import controlplane, tenancyrules, tenantnamespace
from tenantry.controllers.conclusion import PATIENCE, exceeding, expiring, is_over_quota, problem_of, ready, trouble
from tenantry.controllers.hosts import clashes as taken
from tenantry.controllers.inheritance.status import Inherited
from tenantry.controllers.runtime import sandboxed
from tenantry.controllers.subnamespace.checks import allowed_depth
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted, find, is_true, merge
from tenantry.engine.plan import Blocked
from tenantry.world.hosts import HostClash

FIRST = 3
"""The number of children that the status names."""


def compute(
    inputs: SubnamespaceInputs,
    outcome: Outcome,
    *,
    attempt: int,
    now: str,
    clashes: tuple[HostClash, ...] | None = (),
) -> SubnamespaceStatus:
    """Return the status to write.

    Args:
        inputs: What the plan was computed from.
        outcome: The outcome of the plan.
        attempt: The number of tries that failed before this one.
        now: RFC 3339.
        clashes: The hosts in the child that other namespaces hold; None before the first comparison.
    """
    subnamespace = inputs.subnamespace
    before, inherited = subnamespace.status, inputs.inherited
    problem = problem_of(outcome)
    if problem is not None and problem.passing and not outcome.blocked and attempt < PATIENCE and before.conditions:
        return before  # conditions must not flap; the next try is under way
    verdict = inputs.verdict
    if problem is None and verdict is not None:
        problem = verdict.blocked or verdict.idle  # the child exists, and may not grow
    own = controlplane.name_of(subnamespace)
    lacks = controlplane.problem(own, inputs.plane)
    problem = problem or lacks
    done = problem is None
    # The parent sees totals, not names, below a Subtenant.
    blind = subnamespace.spec.mode is Mode.SUBTENANT
    conditions = [
        ready(problem, "namespace, rights, limits and isolation are in place"),
        *trouble(problem),
        *_inherited(subnamespace, inherited),
        *_sandboxed(inputs),
        *controlplane.condition(own, lacks),
        *taken.condition(clashes, before.conditions, is_blind=blind),
        *_exceeding(inputs),
        *_too_deep(inputs),
        *expiring(
            subnamespace.spec.expires_at,
            inputs.lease,
            then="is deleted",
            ended="; it is not deleted while Subnamespaces are inside" if inputs.children else "",
        ),
    ]
    generation = subnamespace.metadata.generation
    names = [child.metadata.name for child in inputs.children]
    return SubnamespaceStatus(
        observed_generation=generation,
        namespace=inputs.namespace if done or inputs.bound is not None else before.namespace,
        depth=len(inputs.ancestors),
        quota=verdict.totals if verdict is not None else _before(inputs),
        children=len(names),
        first_children=() if blind else tuple(names[:FIRST]),
        copied=inherited.copied if inherited is not None else before.copied,
        conversion=before.conversion,
        conditions=merge(before.conditions, conditions, generation=generation, now=now),
    )


def ending(subnamespace: Subnamespace, namespace: str, *, now: str) -> SubnamespaceStatus:
    """Return the status of a deleted Subnamespace whose namespace is being deleted."""
    told = f"it is being deleted: namespace {namespace!r} and everything in it are being deleted"
    going = Blocked(reason=reasons.NAMESPACE_TERMINATING, message=told, passing=True)
    return refused(subnamespace, going, now=now)


def refused(subnamespace: Subnamespace, problem: Blocked, *, now: str) -> SubnamespaceStatus:
    """Return the status of a deleted Subnamespace whose namespace must not be deleted yet."""
    generation = subnamespace.metadata.generation
    told = [ready(problem, ""), *trouble(problem)]
    conditions = merge(subnamespace.status.conditions, told, generation=generation, now=now)
    return replace(subnamespace.status, observed_generation=generation, conditions=conditions)


def _before(inputs: SubnamespaceInputs) -> SubnamespaceQuota:
    """Return the totals of the last status, until this process has computed them."""
    limited = inputs.tenant is not None and bool(inputs.tenant.spec.quota.hard)
    return inputs.subnamespace.status.quota if limited else SubnamespaceQuota()


def _sandboxed(inputs: SubnamespaceInputs) -> list[Wanted]:
    """Return the condition Sandboxed, if the Subnamespace itself sets the runtime (E14)."""
    runtime = inputs.subnamespace.spec.isolation.runtime
    if runtime is UNSET or inputs.tenant is None:
        return []
    refuser = tenancyrules.refuser(inputs.defaults, inputs.tenant, inputs.above)
    told = sandboxed(runtime, inputs.sandbox, refuser)
    return [told] if told is not None else []


def _exceeding(inputs: SubnamespaceInputs) -> list[Wanted]:
    """Return the condition ObjectsExceeded; the owners of a Subtenant's parent do not learn what is inside."""
    if inputs.bound is None or inputs.subnamespace.spec.mode is Mode.SUBTENANT:
        return []
    counts = inputs.lookup(ResourceQuota.resource, object_key(inputs.namespace, tenantnamespace.COUNTS))
    return exceeding(inputs.namespace, tenantnamespace.exceeded(counts), "child")


def _too_deep(inputs: SubnamespaceInputs) -> list[Wanted]:
    """Return the condition DepthExceeded: a limit that was lowered moves no namespace."""
    allowed = allowed_depth(inputs, inputs.tenant) if inputs.tenant is not None and inputs.bound is not None else ""
    if not allowed:
        return []
    message = (
        f"its depth is {len(inputs.ancestors)}, and {allowed}: it stays, and no Subnamespace may be created in it; move"
        " or delete it, or ask an administrator to raise the limit"
    )
    return [Wanted(reasons.DEPTH_EXCEEDED, True, reasons.LIMIT_REACHED, message, only_true=True)]


def refusal_of(inherited: Inherited | None) -> Blocked | None:
    """Return the refusal of an inherited object by a full quota; None if there is none."""
    error = inherited.error if inherited is not None else None
    return problem_of(Outcome(error=error)) if is_over_quota(error) else None


def _inherited(subnamespace: Subnamespace, inherited: Inherited | None) -> list[Wanted]:
    """Return the condition Inherited, if the child inherits anything or an object is in the way."""
    if inherited is None:
        before = subnamespace.status.conditions
        known = find(before, reasons.INHERITED)
        holds = is_true(before, reasons.INHERITED)
        return [Wanted(known.type, holds, known.reason, known.message)] if known is not None else []
    problem = problem_of(Outcome(blocked=inherited.blocked, error=inherited.error))
    if problem is not None:
        message = "; ".join(blocked.message for blocked in inherited.blocked) or problem.message
        return [Wanted(reasons.INHERITED, False, problem.reason, message)]
    if subnamespace.spec.inheritance == Inheritance():
        return []
    return [Wanted(reasons.INHERITED, True, reasons.ESTABLISHED, "all inherited objects are in place")]
