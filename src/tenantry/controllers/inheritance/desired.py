"""What is to be written so that one child has of one object what it should have: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import InheritanceMode, Mode, Subnamespace
from tenantry.engine.observed import Inheritable, Observed
from tenantry.engine.plan import Blocked
from tenantry.world import inheritance

EXCEPTIONS = marks.INHERIT
"""In `status.copied`: the objects whose own annotation gives them to a child were copied."""

IsLike = Callable[[Resource, Inheritable, bytes], bool]
"""Whether a copy is what becomes of an object of this likeness."""


class ChildNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A child that inherits.

    Args:
        subnamespace: What it should be.
        namespace: What it is.
        copied: The kinds of which it had its copies, which are made once.
    """

    subnamespace: Subnamespace
    namespace: Observed
    copied: tuple[str, ...]

    @property
    def parent(self) -> str:
        """Return the namespace that it inherits from."""
        return self.subnamespace.metadata.namespace

    @property
    def name(self) -> str:
        """Return its namespace."""
        return self.namespace.name

    @property
    def is_suspended(self) -> bool:
        """Return whether no user has access."""
        return marks.SUSPENDED in self.namespace.labels

    def labels(self) -> Mapping[str, str]:
        """Return what selectors are about."""
        return self.namespace.labels

    def own_marks(self) -> dict[str, str]:
        """Return the labels that make an object in it a copy that is kept the same."""
        return {
            marks.MANAGED_BY: marks.MANAGER,
            marks.TENANT: self.namespace.labels.get(marks.TENANT, ""),
            marks.INHERITED_FROM: self.parent,
        }


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """What came of bringing everything of a parent into one child.

    Args:
        copied: For the status: the kinds of which copies were made, which happens once.
        blocked: What a person has to decide.
        error: The first refusal or failure.
    """

    copied: tuple[str, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    error: ApiError | None = None


class CopyAction(StrEnum):
    """What a step does."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"
    CLASH = "clash"
    """Nothing: an object that Tenantry does not manage has the name."""


class CopyStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one child needs of one object.

    Args:
        act: What is done.
        resource: The kind.
        name: The object's name.
        source: The parent's; None where it has none.
        found: The child's; None where it has none.
        is_kept: The copy is kept the same later; otherwise it is the child's own.
        is_closed: It is a binding of a suspended tenant, which has no subjects.
    """

    act: CopyAction
    resource: Resource
    name: str
    source: Inheritable | None = None
    found: Observed | None = None
    is_kept: bool = True
    is_closed: bool = False


def is_copy(found: Observed) -> bool:
    """Tell whether an object is kept the same as another one. A policy guards the label."""
    return marks.INHERITED_FROM in found.labels


def is_untouched(found: Observed) -> bool:
    """Return whether an object is a copy that was made once and not changed since."""
    return isinstance(found, Inheritable) and found.writer == marks.FIELD_MANAGER


def is_source(found: Observed) -> bool:
    """Tell whether children can inherit an object: copies are passed on, what else Tenantry made is not."""
    ours = found.labels.get(marks.MANAGED_BY) == marks.MANAGER
    return isinstance(found, Inheritable) and (not ours or is_copy(found))


def is_closed(found: Observed) -> bool:
    """Tell whether a suspension took a binding's subjects away."""
    return marks.SUSPENDED_SUBJECTS in found.annotations


def mode_of(resource: Resource, source: Observed | None, child: ChildNamespace) -> InheritanceMode:
    """Return what becomes of an object in a child."""
    if source is None or not is_source(source):
        return InheritanceMode.NONE
    annotation = source.annotations.get(marks.INHERIT)
    return inheritance.verdict(child.subnamespace.spec, resource.full_name, annotation, child.labels)


def is_done(resource: Resource, child: ChildNamespace) -> bool:
    """Tell whether a child had its copies of a kind, or of what is given to it by annotations alone."""
    kind = resource.full_name
    by_spec = inheritance.mode_for(child.subnamespace.spec, kind) is InheritanceMode.COPY
    return (kind if by_spec else EXCEPTIONS) in child.copied


def due(kinds: Iterable[Resource], subnamespace: Subnamespace) -> list[Resource]:
    """Return the kinds of which a child is to have copies that are made once, and has not had them yet."""
    spec, copied = subnamespace.spec, subnamespace.status.copied
    by_annotation = spec.mode is Mode.SUBTENANT and EXCEPTIONS not in copied

    def is_due(kind: str) -> bool:
        if inheritance.mode_for(spec, kind) is InheritanceMode.COPY and kind not in copied:
            return True
        return by_annotation and inheritance.for_subtenants(kind) is InheritanceMode.COPY

    return [kind for kind in kinds if is_due(kind.full_name)]


def decide(  # noqa: PLR0911 - a return for each thing that can be so
    resource: Resource,
    name: str,
    source: Observed | None,
    found: Observed | None,
    child: ChildNamespace,
    *,
    is_like: IsLike,
) -> CopyStep | None:
    """Return what one child needs of one object, None where it is as it should be.

    Args:
        resource: The kind.
        name: The object's name.
        source: The parent's object.
        found: The child's object of that name.
        child: The child.
        is_like: See `IsLike`.
    """
    if found is not None and found.deleting:
        return None  # the watch tells when it is gone
    mode = mode_of(resource, source, child)
    if mode is InheritanceMode.NONE or not isinstance(source, Inheritable):
        return _none(resource, name, found)
    if mode is InheritanceMode.COPY:
        if is_done(resource, child):
            return _none(resource, name, found)
        if found is None:
            return CopyStep(act=CopyAction.CREATE, resource=resource, name=name, source=source, is_kept=False)
        if is_copy(found):
            return CopyStep(
                act=CopyAction.REPLACE, resource=resource, name=name, source=source, found=found, is_kept=False
            )
        return None
    is_closed = resource == RoleBinding.resource and child.is_suspended
    if found is None:
        return CopyStep(act=CopyAction.CREATE, resource=resource, name=name, source=source, is_closed=is_closed)
    if not is_copy(found) and not is_untouched(found):
        return CopyStep(act=CopyAction.CLASH, resource=resource, name=name, source=source, found=found)
    if _is_right(resource, source, found, child, is_like):
        return None
    return CopyStep(
        act=CopyAction.REPLACE, resource=resource, name=name, source=source, found=found, is_closed=is_closed
    )


def _none(resource: Resource, name: str, found: Observed | None) -> CopyStep | None:
    if found is None or not is_copy(found):
        return None
    return CopyStep(act=CopyAction.DELETE, resource=resource, name=name, found=found)


def _is_right(resource: Resource, source: Inheritable, found: Observed, child: ChildNamespace, is_like: IsLike) -> bool:
    if found.labels != child.own_marks():
        return False
    if any(marks.is_protected(key) and key != marks.SUSPENDED_SUBJECTS for key in found.annotations):
        return False
    if resource == RoleBinding.resource and child.is_suspended:
        return not found.has_subjects
    return isinstance(found, Inheritable) and is_like(resource, found, source.likeness)


def finished(kinds: Iterable[Resource], child: ChildNamespace, unfinished: set[str]) -> tuple[str, ...]:
    """Return the kinds of which a child has its copies now, for its status; one that is no longer copied begins anew.

    Args:
        kinds: All that can be inherited.
        child: The child.
        unfinished: Those of which something is still missing.
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


def clash(step: CopyStep, child: ChildNamespace) -> Blocked:
    """Return what a person is told of a name that is taken."""
    kind, name = step.resource.kind, step.name
    return Blocked(
        reason=reasons.INHERITANCE_CLASH,
        message=(
            f"{kind} {name!r} of namespace {child.parent!r} is not inherited by {child.name!r}, where another {kind} of"
            f" that name is: delete or rename one of them, or annotate the one in {child.parent!r} with"
            f" {marks.INHERIT}: none"
        ),
    )


def not_understood(resource: Resource, source: Observed) -> Blocked:
    """Return what a person is told of an annotation that means nothing."""
    return Blocked(
        reason=reasons.INVALID_SPEC,
        message=(
            f"{resource.kind} {source.key!r} is not inherited: its annotation {marks.INHERIT} is"
            f" {source.annotations.get(marks.INHERIT, '')[:100]!r}; it must be all, none or a label selector, as in"
            " team=x,stage in (dev,test)"
        ),
    )
