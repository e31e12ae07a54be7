"""Remove all rights in a suspended namespace, and give them back: pure.

    all namespaces of the tree are labelled ─► all bindings lose their subjects ─► the tenant is Suspended

A policy on the namespace's label stops writes and new tokens; reading is stopped by leaving every RoleBinding there
without subjects. They are kept in an annotation of the same binding, moved in one patch, so that a crash loses none.
The tenant controller does this for the whole tree at once. From then on, the controller of each namespace empties
bindings that come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import INHERITED_FROM, SUSPENDED, SUSPENDED_SUBJECTS
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Amendment, DirectWrite


def edits(bindings: list[Observed], *, suspended: bool, ours: str) -> tuple[Amendment, ...]:
    """Return the changes of the RoleBindings in a tenant's namespace.

    Args:
        bindings: Every RoleBinding of the namespace.
        suspended: Whether the tenant should be suspended.
        ours: The name of our own binding, which is not changed here.
    """
    if suspended:
        chosen = [binding for binding in bindings if binding.has_subjects]
        change = close
    else:
        chosen = [binding for binding in bindings if SUSPENDED_SUBJECTS in binding.annotations]
        change = reopen
    return tuple(
        Amendment(resource=RoleBinding.resource, seen=found, change=change, quiet=True)
        for found in chosen
        # The controller of the namespace writes our own binding, without subjects during a suspension.
        if found.name != ours
    )


def labels(namespaces: Iterable[Observed]) -> tuple[DirectWrite, ...]:
    """Return the writes by which a policy stops writes and new tokens in namespaces that are not suspended yet.

    An owner's finalizer can keep a namespace that is being deleted for any time, and its users can still write there.
    """
    return _labelling((each for each in namespaces if SUSPENDED not in each.labels), "true")


def unlabels(namespaces: Iterable[Observed]) -> tuple[DirectWrite, ...]:
    """Return the writes that end the suspension of namespaces which are being deleted.

    The subnamespace controller keeps the labels of a namespace only until its deletion begins.
    """
    return _labelling((each for each in namespaces if SUSPENDED in each.labels), None)


def _labelling(namespaces: Iterable[Observed], value: str | None) -> tuple[DirectWrite, ...]:
    body: Json = {"metadata": {"labels": {SUSPENDED: value}}}
    return tuple(
        DirectWrite(request=request.patch(Namespace.resource, "", each.name, body), quiet=True) for each in namespaces
    )


def open_bindings(bindings: Iterable[Observed]) -> list[Observed]:
    """Return the bindings that still have subjects.

    RBAC grants the rights of a binding that is being deleted until the last finalizer is gone.
    """
    return [each for each in bindings if each.has_subjects]


def is_kept(found: Observed, ours: str) -> bool:
    """Return whether a suspension keeps the subjects of a binding in its annotation.

    The operator knows the subjects of its own binding, and those of a copy from the source.
    """
    return found.name != ours and INHERITED_FROM not in found.labels


def closing(bindings: Iterable[Observed], whole: Mapping[str, bytes], ours: str) -> tuple[DirectWrite | Amendment, ...]:
    """Return the writes that take the subjects of bindings away.

    Args:
        bindings: Those with subjects, of all namespaces of a tenant.
        whole: By key, the JSON of bindings that were listed: the others are read one by one.
        ours: The name of the operator's own binding in each namespace.
    """
    return tuple(_closing(found, whole.get(found.key), ours) for found in bindings)


def _closing(found: Observed, data: bytes | None, ours: str) -> DirectWrite | Amendment:
    resource = RoleBinding.resource
    if not is_kept(found, ours):
        asked = request.patch(resource, found.namespace, found.name, {"subjects": None})
        return DirectWrite(request=asked, quiet=True)
    live: Json | None = msgspec.json.decode(data) if data is not None else None
    body = close(live) if live is not None else {}
    if live is None or not body:
        return Amendment(resource=resource, seen=found, change=close, quiet=True)
    body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    return DirectWrite(request=request.patch(resource, found.namespace, found.name, body), quiet=True)


def close(live: Mapping[str, Any]) -> Json:
    """Return the merge patch that takes a live binding's subjects away and keeps them."""
    subjects: list[Json] = live.get("subjects") or []
    if not subjects:
        return {}
    try:
        kept = _kept(live)
    except TerminalError:
        # A user who may write the binding may write this annotation: it must not preserve access.
        kept = []
    kept += [subject for subject in subjects if subject not in kept]
    annotation = msgspec.json.encode(kept, order="sorted").decode()
    return {"metadata": {"annotations": {SUSPENDED_SUBJECTS: annotation}}, "subjects": None}


def reopen(live: Mapping[str, Any]) -> Json:
    """Return the merge patch that gives a live binding's subjects back, beside any that it has got since."""
    annotations: dict[str, str] = live["metadata"].get("annotations") or {}
    if SUSPENDED_SUBJECTS not in annotations:
        return {}
    subjects: list[Json] = list(live.get("subjects") or [])
    subjects += [subject for subject in _kept(live) if subject not in subjects]
    return {"metadata": {"annotations": {SUSPENDED_SUBJECTS: None}}, "subjects": subjects or None}


def _kept(live: Mapping[str, Any]) -> list[Json]:
    annotations: dict[str, str] = live["metadata"].get("annotations") or {}
    text = annotations.get(SUSPENDED_SUBJECTS)
    if text is None:
        return []
    try:
        return msgspec.json.decode(text, type=list[Json])
    except msgspec.MsgspecError as error:
        name = f"{live['metadata']['namespace']}/{live['metadata']['name']}"
        raise TerminalError(
            reasons.INVALID_SPEC,
            f"RoleBinding {name!r}: annotation {SUSPENDED_SUBJECTS} must be a JSON list of subjects"
            f" ({error}); correct it, or remove it and set the subjects by hand",
        ) from error
