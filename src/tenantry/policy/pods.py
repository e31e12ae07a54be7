"""What is checked of pods: everything that a pod asks for, in one policy."""

from __future__ import annotations

from tenantry.policy.check import Subject
from tenantry.policy.images import IMAGES
from tenantry.policy.objects import KUBERNETES
from tenantry.policy.podsecurity import POD_SECURITY, has
from tenantry.policy.request import Request
from tenantry.policy.resources import POD_LIMITS, RESOURCES
from tenantry.policy.scheduling import NEIGHBOURS, SCHEDULING, TERMS

TEMPLATES = (
    ("apps", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", ("jobs", "cronjobs")),
)
"""API group and plurals of what pods are made from: whoever writes one is warned at once, pods are what is refused."""

_POD = (
    "has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec.template"
    " : has(object.spec.template) ? object.spec.template : object"
)
_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"
_INIT = "(has(variables.spec.initContainers) ? variables.spec.initContainers : [])"
_EPHEMERAL = "(has(variables.spec.ephemeralContainers) ? variables.spec.ephemeralContainers : [])"
_CONTEXT = "variables.spec.securityContext"


def _is_new(request: Request) -> bool:
    return request.operation == "CREATE" or request.object.get("spec") != request.old_object.get("spec")


PODS = Subject(
    name="pods",
    group="",
    resources=("pods", "pods/ephemeralcontainers", "pods/resize"),
    # What runs already, and was allowed to, may get its labels and lose its finalizers whatever the rules are now.
    # Kubernetes' own controllers write ReplicaSets and Jobs, and nobody reads their warnings.
    conditions={
        "spec-is-new": f"(request.operation == 'CREATE' || !({_OLD_SPEC}))"
        f" && (request.resource.group == '' || !{KUBERNETES})"
    },
    variables={
        "pod": _POD,
        "spec": "variables.pod.spec",
        "isTemplate": "request.resource.group != ''",
        "resourced": f"variables.spec.containers + {_INIT}",
        "all": f"variables.resourced + {_EPHEMERAL}",
        "secured": "variables.all.filter(c, has(c.securityContext))",
        "volumes": "has(variables.spec.volumes) ? variables.spec.volumes : []",
        "sysctls": f"{has('variables.spec', 'securityContext', 'sysctls')} ? {_CONTEXT}.sysctls : []",
        "linux": "!has(variables.spec.os) || variables.spec.os.name != 'windows'",
        "nonRoot": f"{has('variables.spec', 'securityContext', 'runAsNonRoot')} && {_CONTEXT}.runAsNonRoot",
        "seccomp": f"{has('variables.spec', 'securityContext', 'seccompProfile')}",
        "terms": TERMS,
        "neighbours": NEIGHBOURS,
        "podLimits": POD_LIMITS,
    },
    checks=(*POD_SECURITY, *IMAGES, *SCHEDULING, *RESOURCES),
    concerns=_is_new,
    many=True,
    templates=TEMPLATES,
)
