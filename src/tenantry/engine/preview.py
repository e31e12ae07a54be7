"""What a plan would change, object by object: the plan without the write. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from tenantry.api.model import Json, Resource, object_key
from tenantry.engine.plan import Child, Edit, Step, StepAction, update_patch

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


def preview_edit(edit: Edit, live: Mapping[str, Any] | None) -> Preview | None:
    """Return what an edit would change; None if nothing differs, or the object is gone.

    Raises:
        TerminalError: The object is in a state that a person must fix first.
    """
    return None if live is None else _patched(edit, live, edit.change(live))


def _patched(about: Step | Edit, live: Mapping[str, Any], patch: Json) -> Preview | None:
    if not patch:
        return None
    before = shown(about.resource, live)
    return _preview(about, StepAction.UPDATE, before, shown(about.resource, merged(live, patch)))


def _preview(about: Step | Edit, action: StepAction, before: Json | None, after: Json | None) -> Preview:
    return Preview(
        action=action,
        kind=about.resource.kind,
        namespace=about.namespace,
        name=about.name,
        before=before,
        after=after,
    )


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
