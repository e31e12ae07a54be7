"""The end of a Subnamespace: first its namespace is deleted, with the Subnamespaces inside if that is allowed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import FINALIZER
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.wording import shortened
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.engine import request
from tenantry.engine.plan import Blocked, DirectWrite, Plan, Step, StepAction


def plan(inputs: SubnamespaceInputs) -> Plan:
    """Return the next step towards the end of a deleted Subnamespace; the events of its namespace bring the others."""
    subnamespace, bound = inputs.subnamespace, inputs.bound
    if FINALIZER not in subnamespace.metadata.finalizers:
        return Plan()
    if bound is None:
        rest = [name for name in subnamespace.metadata.finalizers if name != FINALIZER]
        return Plan(writes=(finalizers(subnamespace, rest),))
    # The finalizer stays until the namespace is gone; the event of its deletion brings the next step.
    if bound.deleting:
        return Plan()
    if not may_cascade(inputs):
        return Plan(blocked=(Blocked(reason=reasons.CHILDREN_EXIST, message=inside(subnamespace, inputs.children)),))
    deletion = Step(
        action=StepAction.DELETE, resource=Namespace.resource, namespace="", name=bound.name, observed=bound
    )
    return Plan(waves=((deletion,),))


def is_due(inputs: SubnamespaceInputs) -> bool:
    """Return whether the lease has ended and the Subnamespace is to be deleted."""
    return inputs.lease.is_expired and may_cascade(inputs)


def finalizers(subnamespace: Subnamespace, names: Sequence[str]) -> DirectWrite:
    """Return the write that sets a Subnamespace's finalizers, at the resourceVersion that it was read at."""
    return DirectWrite(request=request.finalizers(subnamespace, names), quiet=True)


def may_cascade(inputs: SubnamespaceInputs) -> bool:
    """Return whether the namespace may be deleted with the Subnamespaces inside.

    It may if the parent itself is being deleted: a refusal would only stop Kubernetes' namespace controller half-way.
    """
    return (
        not inputs.children
        or inputs.subnamespace.spec.allow_cascading_deletion
        or inputs.parent is None
        or inputs.parent.deleting
    )


def inside(subnamespace: Subnamespace, children: list[Subnamespace]) -> str:
    """Return why a Subnamespace is not deleted, with the names inside; for a Subtenant, only their number."""
    names = shortened(repr(child.metadata.name) for child in children)
    listed = f": {names}" if subnamespace.spec.mode is Mode.WORKSPACE else ""
    return (
        f"it cannot be deleted yet: it contains {len(children)} Subnamespaces{listed};"
        " delete them first, or set spec.allowCascadingDeletion to true"
    )
