"""Remove all rights in a suspended namespace, and give them back: pure.

A policy on the namespace's label stops writes and new tokens; reading is stopped by leaving every RoleBinding there
without subjects. They are kept in an annotation of the same binding, moved in one patch, so that a crash loses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.model import Json
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Amendment


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
        if found.name != ours and not found.deleting
    )


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
