"""What is checked of pods: everything that a pod asks for, in one policy."""

from __future__ import annotations

from tenantry.policy.check import Subject
from tenantry.policy.images import IMAGES
from tenantry.policy.podsecurity import POD_SECURITY, has
from tenantry.policy.request import Request
from tenantry.policy.resources import POD_LIMITS, RESOURCES
from tenantry.policy.scheduling import SCHEDULING, TERMS

_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"
_INIT = "(has(object.spec.initContainers) ? object.spec.initContainers : [])"
_CONTEXT = "object.spec.securityContext"


def _is_new(request: Request) -> bool:
    return request.operation == "CREATE" or request.object.get("spec") != request.old_object.get("spec")


PODS = Subject(
    name="pods",
    group="",
    resources=("pods", "pods/ephemeralcontainers", "pods/resize"),
    # What runs already, and was allowed to, may get its labels and lose its finalizers whatever the rules are now.
    conditions={"spec-is-new": f"request.operation == 'CREATE' || !({_OLD_SPEC})"},
    variables={
        "resourced": f"object.spec.containers + {_INIT}",
        "all": "variables.resourced + (has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : [])",
        "secured": "variables.all.filter(c, has(c.securityContext))",
        "volumes": "has(object.spec.volumes) ? object.spec.volumes : []",
        "sysctls": f"{has('object.spec', 'securityContext', 'sysctls')} ? {_CONTEXT}.sysctls : []",
        "linux": "!has(object.spec.os) || object.spec.os.name != 'windows'",
        "nonRoot": f"{has('object.spec', 'securityContext', 'runAsNonRoot')} && {_CONTEXT}.runAsNonRoot",
        "seccomp": f"{has('object.spec', 'securityContext', 'seccompProfile')}",
        "terms": TERMS,
        "podLimits": POD_LIMITS,
    },
    checks=(*POD_SECURITY, *IMAGES, *SCHEDULING, *RESOURCES),
    concerns=_is_new,
)
