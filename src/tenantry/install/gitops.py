"""When Argo CD and Flux treat Tenantry's objects as healthy. Pure.

    deploy/gitops/argocd-cm.yaml           the health check in resource.customizations of the ConfigMap argocd-cm
                  flux-kustomization.yaml  spec.healthCheckExprs of a Kustomization

All kinds follow the same conventions (kstatus), so that one check serves all:

    Ready       True: everything in the spec is in place
    Stalled     True: nothing changes until a person acts
    observedGeneration    older than metadata.generation: the operator has not seen the spec yet

A control plane that sleeps is as its spec wants it: Argo CD shows it as Suspended, and Flux goes on. So is a suspended
tenant. A request waits for a person, so Argo CD shows it as Suspended until it is decided.

Source: Argo CD, "Resource Health"; Flux, "Kustomization", spec.healthCheckExprs; cli-utils, kstatus.
"""

from __future__ import annotations

import msgspec

from tenantry.api import reasons
from tenantry.api.kinds import KINDS
from tenantry.api.marks import GROUP
from tenantry.api.model import Json, KubernetesObject


def _reports(kind: type[KubernetesObject]) -> bool:
    status = next((each.type for each in msgspec.structs.fields(kind) if each.name == "status"), None)
    if not (isinstance(status, type) and issubclass(status, msgspec.Struct)):
        return False
    return {"conditions", "observedGeneration"} <= {each.encode_name for each in msgspec.structs.fields(status)}


_STATELESS = sorted(kind.resource.kind for kind in KINDS if not _reports(kind))

HEALTH = f"""\
hs = {{ status = "Progressing", message = "The operator has not seen the object yet" }}
if obj.metadata.deletionTimestamp ~= nil then
  hs.message = "The object is being deleted"
  return hs
end
for _, kind in ipairs({{ {", ".join(f'"{kind}"' for kind in _STATELESS)} }}) do
  if obj.kind == kind then
    hs.status = "Healthy"
    hs.message = "Objects of this kind report nothing"
    return hs
  end
end
local status = obj.status or {{}}
local generation = obj.metadata.generation
if generation ~= nil and status.observedGeneration ~= generation then
  return hs
end
local found = {{}}
for _, condition in ipairs(status.conditions or {{}}) do
  found[condition.type] = condition
end
local ready = found["{reasons.READY}"]
for _, type in ipairs({{ "{reasons.STALLED}", "{reasons.DENIED}" }}) do
  if found[type] ~= nil and found[type].status == "True" then
    hs.status = "Degraded"
    hs.message = found[type].message
    return hs
  end
end
local suspended = found["{reasons.SUSPENDED}"]
if suspended ~= nil and suspended.status == "True" then
  hs.status = "Suspended"
  hs.message = suspended.message
elseif ready == nil then
  hs.message = "The object has no condition {reasons.READY} yet"
elseif ready.status == "True" then
  hs.status = "Healthy"
  hs.message = ready.message
elseif ready.reason == "{reasons.ASLEEP}" or ready.reason == "{reasons.AWAITING_DECISION}" then
  hs.status = "Suspended"
  hs.message = ready.message
else
  hs.message = ready.message
end
return hs
"""
"""Lua for Argo CD: `obj` is the object; the result has `status` and `message`."""

_SEEN = "status.observedGeneration == metadata.generation"


def _is(type_: str, *reasons_: str) -> str:
    """Return CEL: a condition is True, or has one of the reasons."""
    others = "".join(f" || e.reason == '{each}'" for each in reasons_)
    return f"status.conditions.exists(e, e.type == '{type_}' && (e.status == 'True'{others}))"


_FAILED = f"{_is(reasons.STALLED)} || {_is(reasons.DENIED)}"
_CURRENT = f"{_is(reasons.READY, reasons.ASLEEP)} || {_is(reasons.SUSPENDED)}"

EXPRESSIONS: Json = {
    "current": f"{_SEEN} && !({_FAILED}) && ({_CURRENT})",
    "failed": f"{_SEEN} && ({_FAILED})",
    "inProgress": f"!({_SEEN}) || !({_FAILED}) && !({_CURRENT})",
}
"""CEL for Flux: exactly one is true of an object with a status; `status` and `metadata` are those of the object."""


def kinds() -> list[type[KubernetesObject]]:
    """Return the kinds that report Ready."""
    return [kind for kind in KINDS if _reports(kind)]


def argocd() -> Json:
    """Return what the ConfigMap argocd-cm needs: a patch of it."""
    lines = "".join(f"    {line}\n" for line in HEALTH.splitlines())
    # Only this key knows patterns of kinds.
    checks = {"resource.customizations": f"{GROUP}/*:\n  health.lua: |\n{lines}"}
    labels = {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"}
    metadata = {"name": "argocd-cm", "namespace": "argocd", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": checks}


def flux() -> Json:
    """Return a Kustomization that waits for objects of all kinds: its path and source are to be replaced."""
    checks = [{"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **EXPRESSIONS} for kind in kinds()]
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": "tenants", "namespace": "flux-system"},
        "spec": {
            "interval": "10m",
            "path": "./tenants",
            "prune": True,
            "wait": True,
            "sourceRef": {"kind": "GitRepository", "name": "tenants"},
            "healthCheckExprs": checks,
        },
    }
