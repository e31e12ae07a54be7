"""What has to be written so that the world is as desired: pure, the same for apply, diff and render.

desired children ─┐
observed objects ─┼─► compare() ─► Plan: waves of steps, and what stands in the way
stale objects    ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ApiError, NotFound
from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.engine.observed import Inheritable, Observed, fingerprint, given, is_ours, remembered
from tenantry.engine.request import ApiRequest


class StepAction(StrEnum):
    """What a step does."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """An object that should be, whole, with only the fields that we own.

    Args:
        object: The object.
        wave: Lower waves are written first; what lets people in comes last.
        owner_uid: The required controlling owner. An existing object with another owner belongs to another client and
            is never changed. "" in a namespace of ours, in which the names that we use are ours too.
        marks: Labels and the values of which one must be there, likewise: how what has no owner is known as ours.
        once: An Applier that finds it there when it would make it sees to its labels, and leaves the rest as it is.
        with_namespace: Where its namespace is there already, it is written in the namespace's wave: the namespace's
            labels say where to look for it, and should say so neither long before it is there, nor only if it is.
        then: From the object as the API server stored it to the write that makes it usable, None if it is usable. If
            another client has changed the object meanwhile, it is called again. Pure.
    """

    object: KubernetesObject
    wave: int
    owner_uid: str = ""
    marks: Mapping[str, frozenset[str]] | None = None
    once: bool = False
    with_namespace: bool = False
    then: Callable[[Observed], DirectWrite | None] | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One write.

    Args:
        action: What it does.
        resource: The kind.
        namespace: "" for a cluster-scoped object.
        name: The object's name.
        child: What should be; None for a deletion.
        observed: What is; None for a creation.
        differs: What differs, as JSON paths, for people.
    """

    action: StepAction
    resource: Resource
    namespace: str
    name: str
    child: Child | None = None
    observed: Observed | None = None
    differs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the object's key in a cache."""
        return object_key(self.namespace, self.name)


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of a child.

    Args:
        reason: A constant of `tenantry.api.reasons`.
        message: What to do about it.
        passing: It goes away by itself.
    """

    reason: str
    message: str
    passing: bool = False


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A read from the API server itself into the cache of a kind that is watched, because the cache may be behind.

    Args:
        resource: The kind.
        namespace: "" for a cluster-scoped object.
        name: The object's name; "" for every object that the selectors select.
        selectors: As in the query of a list.
        version: The resourceVersion that the plan was computed from; 0 for an object that the cache lacks.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    selectors: Mapping[str, str] | None = None
    version: int = 0


class DirectWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write that is known whole: nothing is read before it.

    Args:
        request: A creation, patch, deletion or eviction; its preconditions are in its body.
        quiet: Do not wake the reconcilers that the write itself concerns.
        version: For a deletion: the object as it was seen.
        once: A creation that finds the name taken puts its labels on the object there, and changes nothing else.
        ignores: Refusals that are no failure, because the object is gone or another reconcile will look again.
        rereads: Objects that explain why the API server refuses the write: they are read after a Conflict, NotFound or
            Forbidden. If one of them has changed since the plan was computed, the refusal is no failure.
        then: From the object as the API server stored it to the request that follows, None if there is none: the
            status subresource takes a second request, at the resourceVersion of the first one's response. Pure.
    """

    request: ApiRequest
    quiet: bool = False
    version: int = 0
    once: bool = False
    ignores: tuple[type[ApiError], ...] = (NotFound,)
    rereads: tuple[Read, ...] = ()
    then: Callable[[Any], ApiRequest | None] | None = None


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """A change to an object that others write too, such as a Node or a RoleBinding of a tenant.

    It is tried first at the version at which the object was seen whole; an `Observed` is only a part of the object,
    which is read first. If the object has changed since, it is read again, and `change` is asked again.

    Args:
        resource: The kind.
        seen: The object as its cache has it.
        change: From the object (its JSON, if it was seen as `Observed`) to the merge patch, {} if nothing needs to
            change; it raises `Conflict` if the object may no longer be changed. A patch that has a status goes to that
            subresource. Pure.
        quiet: Do not wake the reconcilers that the write itself concerns.
        is_read: The object is read first, and `change` gets its JSON: the change needs fields that no cache keeps.
    """

    resource: Resource
    seen: KubernetesObject | Observed
    change: Callable[[Any], Json]
    quiet: bool = False
    is_read: bool = False

    @property
    def namespace(self) -> str:
        """Return the object's namespace, "" for a cluster-scoped object."""
        return self.seen.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Return the object's name."""
        return self.seen.key.rpartition("/")[2]


class CopyStep(msgspec.Struct, frozen=True, kw_only=True):
    """One write of a copy that one namespace has of an object of another namespace.

    Args:
        action: What it does; an update replaces the whole object.
        resource: The kind.
        namespace: The namespace of the copy.
        name: The name of the copy and of its source.
        source: The source; None for a deletion.
        observed: The object that has the name now; None for a creation.
        labels: The labels of a copy that is kept in sync; {} for one that is made once and then left to its namespace.
        is_closed: A RoleBinding is copied without subjects: the tenant is suspended.
        again: From the object that has the name after another client has written it, to what is needed then.
    """

    action: StepAction
    resource: Resource
    namespace: str
    name: str
    source: Inheritable | None
    observed: Observed | None
    again: Callable[[Observed | None], CopyStep | Blocked | None]
    labels: Mapping[str, str] = {}
    is_closed: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Waves of steps in order; deletions are the last. What is blocked ends the plan at its wave.

    Args:
        reads: What is read before anything is written. A plan that depends on it is computed again afterwards.
        before: Writes before the waves, as of a finalizer. If one is ignored or fails, nothing else is written.
        waves: The steps of one wave are carried out together.
        copies: Waves of copies, after the waves and whatever is blocked: each copy stands alone.
        blocked: What stands in the way.
        writes: Writes of objects that others own or made, together and after everything else, if nothing is blocked.
    """

    reads: tuple[Read, ...] = ()
    before: tuple[DirectWrite, ...] = ()
    waves: tuple[tuple[Step, ...], ...] = ()
    copies: tuple[tuple[CopyStep, ...], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    writes: tuple[DirectWrite | Amendment, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the world is as desired, without a look at the objects that amendments read."""
        return not (self.reads or self.before or self.waves or self.copies or self.blocked or self.writes)


IMMUTABLE = {
    "rolebindings": (("roleRef",),),
    "clusterrolebindings": (("roleRef",),),
    "resourcequotas": (("spec", "scopes"),),
}
"""Paths of fields that the API server never changes: an object that differs there is deleted and created."""

Lookup = Callable[[Resource, str], Observed | None]
Equivalent = Callable[[bytes, bytes], bool]
"""Whether an object of our fingerprint (first) is stored with this digest (second)."""

IsLike = Callable[[Resource, Inheritable, bytes], bool]
"""Whether an object is a copy of an object of this likeness."""


def same(wanted: bytes, found: bytes) -> bool:
    """Return whether two digests are equal: right if the API server adds no defaults of its own."""
    return wanted == found


def compare(
    children: Sequence[Child],
    lookup: Lookup,
    *,
    stale: Iterable[tuple[Resource, Observed]] = (),
    equivalent: Equivalent = same,
) -> Plan:
    """Return the fewest writes that make the world as desired.

    Args:
        children: What should be.
        lookup: What is, by kind and key.
        stale: What we once made and should not be any more.
        equivalent: See `Equivalent`.
    """
    waves: list[tuple[Step, ...]] = []
    blocked: list[Blocked] = []
    order = _waves(children, lookup)
    for wave in sorted(set(order)):
        steps: list[Step] = []
        for child, its_wave in zip(children, order, strict=True):
            if its_wave != wave:
                continue
            outcome = step_for(child, lookup(child.object.resource, child.object.key), equivalent)
            if isinstance(outcome, Blocked):
                blocked.append(outcome)
            elif outcome is not None:
                steps.append(outcome)
        if steps:
            waves.append(tuple(steps))
        if blocked:
            return Plan(waves=tuple(waves), blocked=tuple(blocked))
    deletions = tuple(
        Step(action=StepAction.DELETE, resource=resource, namespace=found.namespace, name=found.name, observed=found)
        for resource, found in stale
        if not found.deleting
    )
    return Plan(waves=(*waves, deletions) if deletions else tuple(waves))


def _waves(children: Sequence[Child], lookup: Lookup) -> list[int]:
    """Return the wave of each child."""
    there = {
        child.object.metadata.name: child.wave
        for child in children
        if _is_namespace(child.object.resource) and _is_usable(child, lookup(child.object.resource, child.object.key))
    }
    return [
        there.get(child.object.metadata.namespace, child.wave) if child.with_namespace else child.wave
        for child in children
    ]


def _is_usable(namespace: Child, found: Observed | None) -> bool:
    return found is not None and not found.deleting and _belongs(namespace, found)


def _is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces"


def step_for(child: Child, found: Observed | None, equivalent: Equivalent = same) -> Step | Blocked | None:
    """Return the write that one child needs, what stands in its way, or None if it is as it should be."""
    wanted = child.object
    resource, meta = wanted.resource, wanted.metadata
    if found is None:
        return Step(action=StepAction.CREATE, resource=resource, namespace=meta.namespace, name=meta.name, child=child)
    if found.deleting:
        return Blocked(
            reason=reasons.NAMESPACE_TERMINATING,
            message=f"{resource.kind} {found.key!r} is being deleted; waiting until it is gone",
            passing=True,
        )
    if not _belongs(child, found):
        return Blocked(reason=_exists_reason(resource), message=_foreign(resource, found.key))
    differs = differences(wanted, found, equivalent)
    if not differs:
        return None
    return Step(
        action=StepAction.UPDATE,
        resource=resource,
        namespace=meta.namespace,
        name=meta.name,
        child=child,
        observed=found,
        differs=differs,
    )


def _belongs(child: Child, found: Observed) -> bool:
    if child.owner_uid and found.owner_uid != child.owner_uid:
        return False
    return all(found.labels.get(key) in values for key, values in (child.marks or {}).items())


def _exists_reason(resource: Resource) -> str:
    return reasons.NAMESPACE_EXISTS if _is_namespace(resource) else reasons.OBJECT_EXISTS


def _foreign(resource: Resource, key: str) -> str:
    return (
        f"{resource.kind} {key!r} exists already and does not belong here; it is left as it is:"
        " delete or rename it, or choose another name"
    )


def differences(wanted: KubernetesObject, found: Observed, equivalent: Equivalent = same) -> tuple[str, ...]:
    """Return the paths at which an object differs from what it should be."""
    paths: list[str] = []
    if not equivalent(fingerprint(wanted), found.digest):
        paths += wanted.resource.owned
    ours = given(found.annotations)
    paths += _marks("metadata.labels", wanted.metadata.labels, found.labels, ours["labels"])
    paths += _marks("metadata.annotations", wanted.metadata.annotations, found.annotations, ours["annotations"])
    return tuple(paths)


def _marks(where: str, wanted: Mapping[str, str], found: Mapping[str, str], ours: frozenset[str]) -> list[str]:
    changed = [key for key, value in wanted.items() if found.get(key) != remembered(key, value)]
    surplus = [key for key in found if key not in wanted and (is_ours(key) or key in ours)]
    return [f"{where}[{key}]" for key in sorted(changed + surplus)]


# -- the content of an update ---------------------------------------------------------------------


def merge_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """Return the JSON merge patch (RFC 7396) that makes `live` exactly `wanted`; {} if it is."""
    patch: Json = {key: None for key in live if key not in wanted}
    for key, value in wanted.items():
        if key in live and is_same_json(live[key], value):
            continue
        before = live.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = merge_patch(cast("Json", before), cast("Json", value))
        else:
            patch[key] = value
    return patch


def is_same_json(one: Any, other: Any) -> bool:  # noqa: ANN401 - values of JSON
    """Return whether two values are the same in JSON, where true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        before, after = cast("Json", one), cast("Json", other)
        return before.keys() == after.keys() and all(is_same_json(before[key], after[key]) for key in before)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(cast("list[Any]", one), cast("list[Any]", other), strict=False)
        return len(cast("list[Any]", one)) == len(cast("list[Any]", other)) and all(
            is_same_json(*pair) for pair in pairs
        )
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def update_patch(wanted: KubernetesObject, live: Mapping[str, Any]) -> Json:
    """Return the merge patch that brings our fields of a live object to what they should be; {} if they are.

    Labels and annotations of others are left alone, but for those that we have put there.
    """
    whole: Json = msgspec.to_builtins(wanted)
    owned = wanted.resource.owned
    fields = merge_patch({f: live[f] for f in owned if f in live}, {f: whole[f] for f in owned if f in whole})
    metadata: Json = {}
    for marks, keys in given(live["metadata"].get("annotations")).items():
        before: dict[str, str] = live["metadata"].get(marks) or {}
        ours = {key: value for key, value in before.items() if is_ours(key) or key in keys}
        change = merge_patch(ours, whole["metadata"].get(marks) or {})
        if change:
            metadata[marks] = change
    return {**fields, **({"metadata": metadata} if metadata else {})}


def needs_new(resource: Resource, patch: Mapping[str, Any]) -> bool:
    """Return whether a merge patch touches a field that the API server never changes."""
    return any(_touches(patch, path) for path in IMMUTABLE.get(resource.plural, ()))


def _touches(patch: object, path: tuple[str, ...]) -> bool:
    if not path:
        return True
    return isinstance(patch, dict) and path[0] in patch and _touches(cast("object", patch[path[0]]), path[1:])
