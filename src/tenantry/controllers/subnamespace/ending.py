"""The end of a Subnamespace: its namespace goes first, and with it what is inside, where that is allowed."""

from __future__ import annotations

import msgspec

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import FINALIZER
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.wording import shortened
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.conditions import merge
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Action, Blocked, Plan, Step


async def finish(cluster: Cluster, inputs: SubnamespaceInputs) -> None:
    """Take a deleted Subnamespace a step nearer to its end; the namespace's events bring the next one.

    Raises:
        ApiError: Something failed; it is tried again.
    """
    subnamespace, bound = inputs.subnamespace, inputs.bound
    if FINALIZER not in subnamespace.metadata.finalizers:
        return
    if bound is None:
        rest = [name for name in subnamespace.metadata.finalizers if name != FINALIZER]
        await cluster.writer.metadata(subnamespace, {"finalizers": rest})
    elif bound.deleting:
        return
    elif may_cascade(inputs):
        outcome = await cluster.writer.apply(Plan(waves=((_deletion(bound),),)))
        if outcome.error is not None:
            raise outcome.error
    else:
        await _refuse(cluster, inputs)


def may_cascade(inputs: SubnamespaceInputs) -> bool:
    """Tell whether the namespace may go with what is in it.

    It may where the parent itself is going: to refuse then would only stop Kubernetes' namespace controller half-way.
    """
    return (
        not inputs.children
        or inputs.subnamespace.spec.allow_cascading_deletion
        or inputs.parent is None
        or inputs.parent.deleting
    )


def _deletion(found: Observed) -> Step:
    return Step(action=Action.DELETE, resource=Namespace.resource, namespace="", name=found.name, observed=found)


async def _refuse(cluster: Cluster, inputs: SubnamespaceInputs) -> None:
    subnamespace = inputs.subnamespace
    problem = Blocked(reason=reasons.CHILDREN_EXIST, message=inside(subnamespace, inputs.children))
    conditions = merge(
        subnamespace.status.conditions,
        [ready(problem, ""), *trouble(problem)],
        generation=subnamespace.metadata.generation,
        now=rfc3339(cluster.clock.now()),
    )
    if conditions != subnamespace.status.conditions:
        status = msgspec.structs.replace(subnamespace.status, conditions=conditions)
        await cluster.writer.status(msgspec.structs.replace(subnamespace, status=status))


def inside(subnamespace: Subnamespace, children: list[Subnamespace]) -> str:
    """Return why a Subnamespace is not deleted, and what is inside; of a Subtenant's, how many only."""
    names = shortened(repr(child.metadata.name) for child in children)
    listed = f": {names}" if subnamespace.spec.mode is Mode.WORKSPACE else ""
    return (
        f"it is being deleted, and waits: {len(children)} Subnamespaces are inside{listed};"
        " delete them first, or set spec.allowCascadingDeletion to true"
    )
