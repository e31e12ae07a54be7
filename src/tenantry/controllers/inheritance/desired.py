"""What one child should have of its parent's objects, and the plan of the writes: pure.

InheritanceInputs ─► plan         every object of the parent, for one child: created, or with another spec
SourceInputs      ─► plan_source  one object that changed, for every child of its namespace

    acme/db-login (Secret), inherited by acme-dev as Sync:
    absent in acme-dev              CREATE, with the labels of a copy
    a copy that was edited there    UPDATE: the whole object is replaced
    an object of acme-dev's own     blocked: InheritanceClash
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource, object_key
from tenantry.api.policyparameters import MOST_BYTES, PolicyParameters, parameters, size, texts_of
from tenantry.api.subnamespace import InheritanceMode, Mode, Subnamespace
from tenantry.controllers.inheritance.gather import ChildNamespace, InheritanceInputs, SourceInputs, is_copy, is_source
from tenantry.controllers.inheritance.headroom import fitting
from tenantry.engine.observed import Inheritable, Observed
from tenantry.engine.plan import Blocked, Child, CopyStep, IsLike, Lookup, Plan, StepAction, compare
from tenantry.world import inheritance

EXCEPTIONS = marks.INHERIT
"""In `status.copied`: the objects whose own annotation gives them to a child were copied."""


def is_untouched(found: Observed) -> bool:
    """Return whether an object is a copy that was made once and not changed since."""
    return isinstance(found, Inheritable) and found.writer == marks.FIELD_MANAGER


def is_closed(found: Observed) -> bool:
    """Return whether a suspension emptied a binding."""
    return marks.SUSPENDED_SUBJECTS in found.annotations


def closed(inputs: InheritanceInputs) -> list[tuple[Resource, Observed]]:
    """Return the bindings of the parent that a suspension has emptied."""
    return [(kind, source) for kind in inputs.kinds for source in inputs.sources[kind] if is_closed(source)]


def awaited(inputs: InheritanceInputs) -> list[tuple[Resource, Observed]]:
    """Return those of them that are to be copied once: a copy of an empty binding would be empty for good."""
    return [
        (kind, source) for kind, source in closed(inputs) if mode_of(kind, source, inputs.child) is InheritanceMode.COPY
    ]


def mode_of(resource: Resource, source: Observed | None, child: ChildNamespace) -> InheritanceMode:
    """Return how a child inherits an object."""
    if source is None or not is_source(source):
        return InheritanceMode.NONE
    annotation = source.annotations.get(marks.INHERIT)
    return inheritance.verdict(child.subnamespace.spec, resource.full_name, annotation, child.labels)


def is_done(resource: Resource, child: ChildNamespace) -> bool:
    """Return whether a child received its copies of a kind, or those that only annotations give to it."""
    kind = resource.full_name
    by_spec = inheritance.mode_for(child.subnamespace.spec, kind) is InheritanceMode.COPY
    return (kind if by_spec else EXCEPTIONS) in child.copied


def due(kinds: Iterable[Resource], subnamespace: Subnamespace) -> list[Resource]:
    """Return the kinds of which a child still lacks the copies that are made once."""
    spec, copied = subnamespace.spec, subnamespace.status.copied
    # In a Workspace, an annotation means Sync, which needs no list; in a Subtenant it means Copy.
    by_annotation = spec.mode is Mode.SUBTENANT and EXCEPTIONS not in copied

    def is_due(kind: str) -> bool:
        if inheritance.mode_for(spec, kind) is InheritanceMode.COPY and kind not in copied:
            return True
        return by_annotation and inheritance.for_subtenants(kind) is InheritanceMode.COPY

    return [kind for kind in kinds if is_due(kind.full_name)]


def followed(kinds: Iterable[Resource], subnamespace: Subnamespace) -> list[Resource]:
    """Return the kinds of which a child may have copies that are kept in sync."""
    spec = subnamespace.spec
    # Also where the spec says None: in a Workspace, the annotation of an object gives it to the child.
    if spec.mode is Mode.SUBTENANT:
        return []
    return [kind for kind in kinds if inheritance.mode_for(spec, kind.full_name) is not InheritanceMode.COPY]


# -- plans ----------------------------------------------------------------------------------------


def plan(inputs: InheritanceInputs) -> Plan:
    """Return the writes that bring every object of the parent into one child; bindings, which admit users, are last."""
    steps, blocked = _steps(inputs)
    fits, crowded_kinds = fitting(steps, inputs.child, inputs.lookup, inputs.present)
    blocked += crowded_kinds.values()
    # A failed copy of a limit or a NetworkPolicy must keep users out, so bindings are a wave of their own.
    admits = [step for step in fits if step.resource == RoleBinding.resource and step.action is not StepAction.DELETE]
    waves = ([step for step in fits if step not in admits], admits)
    listing = copies_listed(inputs, fits)
    if isinstance(listing, Blocked):
        blocked.append(listing)
        waves = ([step for step in waves[0] if not needs_list(step)], admits)
        listing = Plan()
    return Plan(
        waves=listing.waves,
        copies=tuple(tuple(wave) for wave in waves if wave),
        blocked=(*blocked, *listing.blocked),
    )


def crowded(inputs: InheritanceInputs) -> dict[Resource, Blocked]:
    """Return the kinds of which a child cannot have all copies, because a count limits them, and what blocks them."""
    return fitting(_steps(inputs)[0], inputs.child, inputs.lookup, inputs.present)[1]


def _steps(inputs: InheritanceInputs) -> tuple[list[CopyStep], list[Blocked]]:
    """Return the writes that one child needs, whether it has room for them or not, and what blocks others."""
    child = inputs.child
    late = {(resource, source.name) for resource, source in awaited(inputs)}
    steps: list[CopyStep] = []
    blocked = list(inputs.problems)
    for resource in inputs.kinds:
        for source in inputs.sources[resource]:
            if not inheritance.is_valid(source.annotations.get(marks.INHERIT, inheritance.InheritAnnotation.ALL)):
                blocked.append(invalid_annotation(resource, source))
            if (resource, source.name) in late:
                continue
            step = step_in(resource, source.name, child, inputs.lookup, inputs.is_like)
            if isinstance(step, Blocked):
                blocked.append(step)
            elif step is not None:
                steps.append(step)
        # Copies whose source is gone or no longer inherited are found by the child's own index, not by the parent's.
        for found in inputs.copies[resource]:
            step = step_in(resource, found.name, child, inputs.lookup, inputs.is_like)
            if isinstance(step, CopyStep) and step.action is StepAction.DELETE:
                steps.append(step)
    return steps, blocked


def copies_listed(inputs: InheritanceInputs, steps: Iterable[CopyStep]) -> Plan | Blocked:
    """Return the plan that lists a child's copies of workloads before they are made, for the policy on scaling.

    Args:
        inputs: The inputs.
        steps: What is about to be copied or deleted.
    """
    child, texts = inputs.child, dict[str, str]()
    for resource in (kind for kind in inputs.kinds if inheritance.is_scaled(kind.full_name)):
        names = {found.name for found in inputs.copies[resource]}
        for step in (step for step in steps if step.resource == resource):
            names = names | {step.name} if step.labels else names - {step.name}
        if names:
            texts[resource.plural] = "\n".join(["", *sorted(names), ""])
    there = inputs.lookup(PolicyParameters.resource, object_key(child.name, inheritance.COPIES))
    if not texts:
        return compare((), inputs.lookup, stale=[(PolicyParameters.resource, there)] if there is not None else ())
    wanted = parameters(
        inheritance.COPIES, child.name, inheritance.COPIES_MARK, {inheritance.SOURCE: child.parent, **texts}
    )
    if size(texts_of(wanted.metadata.annotations)) > MOST_BYTES:
        return Blocked(
            reason=reasons.INHERITANCE_CLASH,
            message=f"namespace {child.name!r} inherits more workloads than Tenantry can list: it is to have"
            f" {sum(text.count(chr(10)) - 1 for text in texts.values())}; set spec.inheritance.others to None",
        )
    return compare([Child(object=wanted, wave=0)], inputs.lookup)


def needs_list(step: CopyStep) -> bool:
    """Return whether a step changes which workloads of its namespace are copies, which is listed first."""
    if not inheritance.is_scaled(step.resource.full_name):
        return False
    return step.source is None or step.observed is None or not is_copy(step.observed)


def plan_source(inputs: SourceInputs) -> Plan:
    """Return the writes that keep the copies of one object in sync.

    Clashes, copies that are made once or must be listed, and children without room are left to the plan of the child,
    whose status reports them.
    """
    steps = [
        step
        for child in inputs.children
        if isinstance(
            step := step_in(inputs.resource, inputs.name, child, inputs.lookup, inputs.is_like),
            CopyStep,
        )
        and (step.labels or step.action is StepAction.DELETE)
        and not needs_list(step)
        and has_room(step, inputs, child)
    ]
    return Plan(copies=(tuple(steps),) if steps else ())


def has_room(step: CopyStep, inputs: SourceInputs, child: ChildNamespace) -> bool:
    """Return whether the counts of a child allow a step."""
    present = {inputs.resource: inputs.present.get(child.name, 0)}
    return not fitting([step], child, inputs.lookup, present)[1]


def step_in(
    resource: Resource, name: str, child: ChildNamespace, lookup: Lookup, is_like: IsLike
) -> CopyStep | Blocked | None:
    """Return the write that one child needs for one object, what blocks it, or None if it is as it should be."""

    def again(found: Observed | None) -> CopyStep | Blocked | None:
        # A suspension may have begun meanwhile: an earlier decision would open a binding that it has closed.
        namespace = lookup(Namespace.resource, child.name) or child.namespace
        current = msgspec.structs.replace(child, namespace=namespace)
        source = lookup(resource, object_key(child.parent, name))
        return _step(resource, name, source, found, current, is_like=is_like, again=again)

    source = lookup(resource, object_key(child.parent, name))
    found = lookup(resource, object_key(child.name, name))
    return _step(resource, name, source, found, child, is_like=is_like, again=again)


def _step(
    resource: Resource,
    name: str,
    source: Observed | None,
    found: Observed | None,
    child: ChildNamespace,
    *,
    is_like: IsLike,
    again: Callable[[Observed | None], CopyStep | Blocked | None],
) -> CopyStep | Blocked | None:
    if found is not None and found.deleting:
        return None  # the watch reports when it is gone
    step = partial(CopyStep, resource=resource, namespace=child.name, name=name, observed=found, again=again)
    action = StepAction.CREATE if found is None else StepAction.UPDATE
    is_ours = found is not None and is_copy(found)
    mode = mode_of(resource, source, child)
    is_once = mode is InheritanceMode.COPY
    if mode is InheritanceMode.NONE or not isinstance(source, Inheritable) or (is_once and is_done(resource, child)):
        return step(action=StepAction.DELETE, source=None) if is_ours else None
    if is_once:
        # A copy that was kept in sync until now becomes the child's own; another object of the name is left alone.
        return step(action=action, source=source) if found is None or is_ours else None
    # An unchanged copy that was made once is taken over, as when the spec changes from Copy to Sync.
    if found is not None and not is_ours and not is_untouched(found):
        return clash(resource, name, child)
    if found is not None and _is_right(resource, source, found, child, is_like):
        return None
    is_empty = resource == RoleBinding.resource and child.is_suspended
    return step(action=action, source=source, labels=child.own_marks(), is_closed=is_empty)


def _is_right(resource: Resource, source: Inheritable, found: Observed, child: ChildNamespace, is_like: IsLike) -> bool:
    if found.labels != child.own_marks():
        return False
    # Only Tenantry sets marks: a copy with one was edited, or was made by an older version.
    if any(marks.is_protected(key) and key != marks.SUSPENDED_SUBJECTS for key in found.annotations):
        return False
    if resource == RoleBinding.resource and child.is_suspended:
        return not found.has_subjects
    return isinstance(found, Inheritable) and is_like(resource, found, source.likeness)


# -- what a person must resolve -------------------------------------------------------------------


def clash(resource: Resource, name: str, child: ChildNamespace) -> Blocked:
    """Return the problem of a name that another object of the child has."""
    kind = resource.kind
    return Blocked(
        reason=reasons.INHERITANCE_CLASH,
        message=(
            f"{kind} {name!r} of namespace {child.parent!r} is not inherited by {child.name!r}, where another {kind} of"
            f" that name is: delete or rename one of them, or annotate the one in {child.parent!r} with"
            f" {marks.INHERIT}: none"
        ),
    )


def invalid_annotation(resource: Resource, source: Observed) -> Blocked:
    """Return the problem of an annotation `tenantry.dev/inherit` that does not parse."""
    return Blocked(
        reason=reasons.INVALID_SPEC,
        message=(
            f"{resource.kind} {source.key!r} is not inherited: its annotation {marks.INHERIT} is"
            f" {source.annotations.get(marks.INHERIT, '')[:100]!r}; it must be all, none or a label selector, as in"
            " team=x,stage in (dev,test)"
        ),
    )
