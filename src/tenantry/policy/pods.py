"""What is checked of pods."""

from __future__ import annotations

from tenantry.policy.check import Subject
from tenantry.policy.images import IMAGES
from tenantry.policy.request import Request

_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"


def _is_new(request: Request) -> bool:
    return request.operation == "CREATE" or request.object.get("spec") != request.old_object.get("spec")


PODS = Subject(
    name="pods",
    group="",
    resources=("pods", "pods/ephemeralcontainers"),
    # What runs already, and was allowed to, may get its labels and lose its finalizers whatever the rules are now.
    conditions={"spec-is-new": f"request.operation == 'CREATE' || !({_OLD_SPEC})"},
    variables={
        "all": "object.spec.containers"
        " + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
        " + (has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : [])",
    },
    checks=(*IMAGES,),
    concerns=_is_new,
)
