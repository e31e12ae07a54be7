"""What a plan would change, object by object: the plan without the write. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.engine.copies import content_of
from tenantry.engine.plan import Amendment, Child, CopyStep, DirectWrite, Step, StepAction, update_patch
from tenantry.engine.request import ApiRequest, Verb
from tenantry.world.inheritance import SECRETS

_NOISE = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "selfLink", "uid")
"""Metadata that the server keeps for itself."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """One object's change.

    Args:
        action: What would be done.
        kind: The object's kind.
        namespace: "" for a cluster-scoped object.
        name: Its name.
        before: As it is; None if it is not there.
        after: As it would be; None if it would be gone.
    """

    action: StepAction
    kind: str
    namespace: str
    name: str
    before: Json | None
    after: Json | None

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        return object_key(self.namespace, self.name)


def preview_step(step: Step, live: Mapping[str, Any] | None) -> Preview | None:
    """Return what a step would change; None if it turns out that nothing differs.

    Args:
        step: Of a plan.
        live: The object as it is, None if it is not there.
    """
    if step.action is StepAction.DELETE:
        return None if live is None else _preview(step, StepAction.DELETE, shown(step.resource, live), None)
    child = cast("Child", step.child)  # only deletions have none
    if live is None:
        whole: Json = msgspec.to_builtins(child.object)
        return _preview(step, StepAction.CREATE, None, shown(step.resource, whole))
    return _patched(step, live, update_patch(child.object, live))


def preview_write(write: DirectWrite | Amendment, live: Mapping[str, Any] | None) -> Preview | None:
    """Return what a write would change; None if nothing differs, the object is gone, or only its status changes.

    Raises:
        TerminalError: The object is in a state that a person must fix first.
    """
    if isinstance(write, Amendment):
        if live is None:
            return None
        # A change takes the form in which the object was seen.
        seen = msgspec.convert(live, type(write.seen)) if isinstance(write.seen, KubernetesObject) else live
        return _patched(write, live, write.change(seen))
    return _sent(write.request, live)


def _sent(asked: ApiRequest, live: Mapping[str, Any] | None) -> Preview | None:
    if asked.verb is Verb.DELETE or asked.subresource == "eviction":
        return None if live is None else _preview(asked, StepAction.DELETE, shown(asked.resource, live), None)
    # Diffs leave out the status (`shown`); no other subresource is written.
    if asked.subresource:
        return None
    if asked.verb is Verb.PATCH:
        return None if live is None else _patched(asked, live, cast("Json", asked.body))
    # A creation whose name is taken is refused, or adds its labels; a replacement of an object that is gone is refused.
    if (live is None) is not (asked.verb is Verb.CREATE):
        return None
    return _replaced(asked, live, msgspec.json.decode(msgspec.json.encode(asked.body)))


def preview_copy(step: CopyStep, source: bytes, live: Mapping[str, Any] | None) -> Preview | None:
    """Return what a step would change in a child's copy; None if nothing differs.

    Args:
        step: Of a plan.
        source: The JSON of the parent's object; b"" for a deletion.
        live: The copy as it is, None if it is not there.
    """
    if step.action is StepAction.DELETE:
        return None if live is None else _preview(step, StepAction.DELETE, shown(step.resource, live), None)
    content = content_of(step.resource, source, 0.0)
    if content is None:
        return None
    body = content.copy_for(step, live["metadata"] if live is not None else None)
    return _replaced(step, live, msgspec.json.decode(body))


def _replaced(about: CopyStep | ApiRequest, live: Mapping[str, Any] | None, whole: Json) -> Preview | None:
    before = shown(about.resource, live) if live is not None else None
    after = shown(about.resource, whole)
    if before == after:
        return None
    return _preview(about, StepAction.UPDATE if before is not None else StepAction.CREATE, before, after)


def _patched(about: Step | Amendment | ApiRequest, live: Mapping[str, Any], patch: Json) -> Preview | None:
    if not patch:
        return None
    before, after = shown(about.resource, live), shown(about.resource, merged(live, patch))
    return _preview(about, StepAction.UPDATE, before, after) if before != after else None


def _preview(
    about: Step | CopyStep | Amendment | ApiRequest, action: StepAction, before: Json | None, after: Json | None
) -> Preview:
    if about.resource.full_name == SECRETS.full_name:
        before, after = _masked(before, after)
    return Preview(
        action=action,
        kind=about.resource.kind,
        namespace=about.namespace,
        name=about.name,
        before=before,
        after=after,
    )


def _masked(before: Json | None, after: Json | None) -> tuple[Json | None, Json | None]:
    """Return a Secret before and after with its values hidden, as `kubectl diff` does; one that changes says so."""

    def hidden(value: Json | None, other: Json | None, mark: str) -> Json | None:
        if value is None:
            return None
        out = dict(value)
        for field in ("data", "stringData"):
            values: Json = value.get(field) or {}
            others: Json = (other or {}).get(field) or {}
            if values:
                out[field] = {
                    key: f"*** ({mark})" if others.get(key, text) != text else "***" for key, text in values.items()
                }
        return out

    return hidden(before, after, "before"), hidden(after, before, "after")


def shown(resource: Resource, live: Mapping[str, Any]) -> Json:
    """Return an object without what the server keeps for itself, in the usual order of fields."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in _NOISE}
    rest = {key: value for key, value in live.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}


def merged(live: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Return what a JSON merge patch makes of an object (RFC 7396)."""
    out: Json = copy.deepcopy(dict(live))
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            inner: object = out.get(key)
            before = cast("Json", inner) if isinstance(inner, dict) else {}
            out[key] = merged(before, cast("Json", value))
        else:
            out[key] = value
    return out
