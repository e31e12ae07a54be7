"""Which objects a GitOps tool would prune: those that it manages, and that the files have no longer. Pure.

    files name Tenant acme, which application "tenants" manages ─► every other object of application "tenants"

An object that the operator creates has no marks of these tools, and is never pruned by itself.

Source: Argo CD, "Sync Options", section "No Prune Resources"; Flux, "Kustomization", section "Prune"; Helm, "Chart Tips
and Tricks", section "Tell Helm not to uninstall a resource".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tenantry.api.errors import InputError
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json
from tenantry.views.gitmanagers import GitManager, manager_of

Key = tuple[str, str, str]
"""Kind, namespace and name."""

_ARGO_CD = "argocd.argoproj.io/sync-options"
_KEPT = {"kustomize.toolkit.fluxcd.io/prune": "disabled", "helm.sh/resource-policy": "keep"}


def key_of(found: Mapping[str, Any]) -> Key:
    """Return what identifies an object."""
    meta: Mapping[str, Any] = found["metadata"]
    return found["kind"], meta.get("namespace", ""), meta["name"]


def pruned(live: Sequence[Json], wanted: AbstractSet[Key], labels: Mapping[str, str]) -> list[Json]:
    """Return the objects that would be pruned, in the order of the cluster.

    Args:
        live: All objects of Tenantry's kinds that the cluster has, with their managedFields.
        wanted: What the files have.
        labels: Labels that select the objects of the files; {} for the marks of the tool that manages these.

    Raises:
        InputError: No object of the files has the mark of a tool, and there are no labels.
    """
    of_files = _managers(each for each in live if key_of(each) in wanted)
    if not labels and not of_files:
        raise InputError(
            "--prune finds nothing in the cluster that Argo CD, Flux or Helm manages among the objects of the files:"
            " give the label that all of them have, as in `-l team=platform`"
        )
    found: list[Json] = []
    for each in live:
        own: Mapping[str, str] = each["metadata"].get("labels") or {}
        is_selected = all(own.get(key) == value for key, value in labels.items()) if labels else True
        is_managed = bool(labels) or manager_of(each) in of_files
        if key_of(each) not in wanted and is_selected and is_managed and not _is_kept(each) and not _is_operators(each):
            found.append(each)
    return found


def _managers(found: Iterable[Json]) -> set[GitManager]:
    managers = {manager_of(each) for each in found}
    # Without a source, the objects of every application of the tool would be pruned.
    return {each for each in managers if each is not None and each.source}


def _is_kept(found: Mapping[str, Any]) -> bool:
    """Return whether an object says that no tool may prune it."""
    meta: Mapping[str, Any] = found["metadata"]
    labels: Mapping[str, str] = meta.get("labels") or {}
    annotations: Mapping[str, str] = meta.get("annotations") or {}
    marks = {**labels, **annotations}
    options = [each.strip() for each in marks.get(_ARGO_CD, "").split(",")]
    return "Prune=false" in options or any(marks.get(key) == value for key, value in _KEPT.items())


def _is_operators(found: Mapping[str, Any]) -> bool:
    """Return whether the operator creates an object, or another object does that owns it."""
    meta: Mapping[str, Any] = found["metadata"]
    owners: Sequence[Mapping[str, Any]] = meta.get("ownerReferences") or ()
    labels: Mapping[str, str] = meta.get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER or any(each.get("controller") for each in owners)
