"""Which GitOps tool manages an object, by the marks that it leaves there. Pure.

    metadata.managedFields[].manager                   argocd-controller, kustomize-controller, helm-controller
    labels and annotations                             argocd.argoproj.io/…, kustomize.toolkit.fluxcd.io/…,
                                                       helm.toolkit.fluxcd.io/…
    label app.kubernetes.io/instance                   Argo CD's label in its tracking method `label`, and Helm's

A write by hand into such an object lasts until the tool compares it with Git.

Source: Argo CD, "Resource Tracking", "Server-Side Apply"; Flux, "Kustomization" and "HelmRelease", sections on
labels and on how to disable the reconciliation of an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ARGO_CD, FLUX, HELM = "Argo CD", "Flux", "Helm"

_MANAGERS = {
    "argocd-controller": ARGO_CD,
    "argocd-application-controller": ARGO_CD,
    "kustomize-controller": FLUX,
    "helm-controller": FLUX,
    "helm": HELM,
}
_PREFIXES = {
    "argocd.argoproj.io/": ARGO_CD,
    "kustomize.toolkit.fluxcd.io/": FLUX,
    "helm.toolkit.fluxcd.io/": FLUX,
    "meta.helm.sh/": HELM,
}
_INSTANCE = "app.kubernetes.io/instance"
_TRACKING = "argocd.argoproj.io/tracking-id"
_SWITCHED_OFF = {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}
"""An annotation by which users tell Flux to leave an object as it is."""

MARKS = (*_PREFIXES, _INSTANCE)
"""The beginnings of the keys that mark an object as one of a GitOps tool."""


class GitManager(msgspec.Struct, frozen=True):
    """A tool that keeps an object as Git has it.

    Args:
        tool: Its name.
        source: What of the tool has the object, as in an application's name; "" if no mark says it.
    """

    tool: str
    source: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.tool} ({self.source})" if self.source else self.tool


def manager_of(found: Mapping[str, Any]) -> GitManager | None:
    """Return the tool that manages an object; None for none.

    Args:
        found: The object as the API server returns it, with its managedFields.
    """
    meta: Mapping[str, Any] = found.get("metadata") or {}
    labels: Mapping[str, str] = meta.get("labels") or {}
    annotations: Mapping[str, str] = meta.get("annotations") or {}
    fields: Sequence[Mapping[str, str]] = meta.get("managedFields") or ()
    marks = {**labels, **annotations}
    if any(annotations.get(key) == value for key, value in _SWITCHED_OFF.items()):
        return None
    tools = [tool for prefix, tool in _PREFIXES.items() if any(key.startswith(prefix) for key in marks)]
    # A status is written by controllers, and by no tool.
    writers = [each.get("manager", "") for each in fields if not each.get("subresource")]
    tools += [_MANAGERS[each] for each in writers if each in _MANAGERS]
    if not tools and _INSTANCE in labels:
        # Of Helm only if nothing says so: Argo CD's tracking method `label` leaves nothing else.
        tools = [HELM if labels.get("app.kubernetes.io/managed-by") == HELM else ARGO_CD]
    return GitManager(tools[0], _source(tools[0], labels, annotations)) if tools else None


def _source(tool: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    if tool == ARGO_CD:
        name = annotations.get(_TRACKING, "").partition(":")[0] or labels.get(_INSTANCE, "")
        return f"application {name!r}" if name else ""
    if tool == HELM:
        name = annotations.get("meta.helm.sh/release-name") or labels.get(_INSTANCE, "")
        return f"release {name!r}" if name else ""
    for prefix, kind in (("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")):
        if f"{prefix}/name" in labels:
            return f"{kind} '{labels.get(f'{prefix}/namespace', '')}/{labels[f'{prefix}/name']}'"
    return ""
