"""Warnings inside about pods that the host will refuse: users see them at once, and not in the status of a pod later.

kubectl apply ─► API server inside ─► Advice ─► a dry run on the host ─► Warning: the host refuses its pods: … (rule …)

What is applied is stored in any case: the rules of the host may change, and its quota may have room by then.
"""

from __future__ import annotations

from contextlib import suppress

from tenantry.api.errors import ApiError
from tenantry.api.model import Json
from tenantry.hosting.admission import AdmissionAdvice, AdmissionRequest
from tenantry.hosting.plane import AdmissionOperation, AdmissionRule
from tenantry.mirror.podtrial import PodTrial
from tenantry.mirror.shapes import part
from tenantry.policy.explain import hostwarning

_TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("apps", "daemonsets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
}
"""Where each kind of workload has the template of its pods."""

_NO_UID = "00000000-0000-0000-0000-000000000000"
"""In place of the uid of a pod that is not stored (RFC 9562, section 5.9)."""

RULES = (
    AdmissionRule(resource="pods", operations=(AdmissionOperation.CREATE,), is_advice=True),
    *(AdmissionRule(group=group, resource=resource, is_advice=True) for group, resource in _TEMPLATES),
)
"""The requests that an API server inside asks for advice about."""


class Advice:
    """The advice to one control plane.

    Args:
        trial: Asks the host.
    """

    def __init__(self, trial: PodTrial) -> None:
        self._trial = trial

    async def answer(self, asked: AdmissionRequest) -> AdmissionAdvice:
        """Return what users are to be warned of; the host may leave a question open."""
        pod = tried_pod(asked)
        refusal = ""
        if pod is not None:
            with suppress(ApiError):
                refusal = await self._trial.refusal(pod)
        if not refusal:
            return AdmissionAdvice()
        what = hostwarning.THIS_POD if asked.resource == "pods" else hostwarning.ITS_PODS
        return AdmissionAdvice(warnings=(hostwarning.told(what, refusal),))


def tried_pod(asked: AdmissionRequest) -> Json | None:
    """Return the pod to try out for a request; None if the request changes no pods."""
    if asked.resource == "pods":
        return {**asked.object, "metadata": {**part(asked.object, "metadata"), "uid": _NO_UID}}
    path = _TEMPLATES[asked.group, asked.resource]
    template = _at(asked.object, path)
    if asked.old is not None and template == _at(asked.old, path):
        return None
    meta = {"name": asked.name, "namespace": asked.namespace, "uid": _NO_UID}
    return {"metadata": {**part(template, "metadata"), **meta}, "spec": part(template, "spec")}


def _at(value: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        value = part(value, name)
    return value
