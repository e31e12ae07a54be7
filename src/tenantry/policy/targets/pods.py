"""Pods: everything that a pod asks for is checked in one policy, and its runtime in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tenantry.api.marks import RUNTIME
from tenantry.policy.check import CheckScope, RuleTarget, has
from tenantry.policy.mend import into, merged
from tenantry.policy.request import Item, Json, Review, is_new, part, parts
from tenantry.policy.users import CONTROL_PLANE, NOT_MIRRORED, is_mirrored

TEMPLATES = (
    ("apps", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", ("jobs", "cronjobs")),
)
"""API group and plurals of kinds with a pod template: their author is warned at once, the pods are refused."""

MADE_BY_TEMPLATES = ("pod-template-hash", "controller-revision-hash", "batch.kubernetes.io/controller-uid")
"""Labels of pods that controllers create from these templates (Kubernetes, "Well-Known Labels")."""

SPEC = "variables.spec"
"""CEL: the spec of the pod, or of the pod template."""

_CONTEXT = "variables.spec.securityContext"
_POD = (
    "has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec.template"
    " : has(object.spec.template) ? object.spec.template : object"
)
_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"
_INIT = "(has(variables.spec.initContainers) ? variables.spec.initContainers : [])"
_EPHEMERAL = "(has(variables.spec.ephemeralContainers) ? variables.spec.ephemeralContainers : [])"

PODS = RuleTarget(
    name="pods",
    group="",
    resources=("pods", "pods/ephemeralcontainers", "pods/resize"),
    # A running pod, allowed when it was created, may get labels and lose finalizers whatever the rules are now.
    # Kubernetes' own controllers write ReplicaSets and Jobs; no person reads their warnings.
    conditions={
        "spec-is-new": f"(request.operation == 'CREATE' || !({_OLD_SPEC}))"
        f" && (request.resource.group == '' || !{CONTROL_PLANE})"
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
    },
    concerns=lambda request: is_new(request, "spec"),
    many=True,
    templates=TEMPLATES,
    unread=MADE_BY_TEMPLATES,
)

SANDBOX = RuleTarget(
    name="sandbox",
    group="",
    resources=("pods",),
    marked=RUNTIME,
    # The runtime of a pod never changes, and ephemeral containers run in it, too.
    operations=("CREATE",),
    conditions={"not-a-mirror": NOT_MIRRORED},
    variables={},
    concerns=lambda request: not is_mirrored(request),
)


# -- scopes ---------------------------------------------------------------------------------------


_CONTAINER = {"name": "c", "image": "busybox", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}


def _sample(fragment: Json) -> Item:
    return merged({"metadata": {"name": "p"}, "spec": {"containers": [_CONTAINER]}}, fragment)


def _whole(target: RuleTarget) -> CheckScope:
    return CheckScope(
        target=target.name,
        path="'pod'",
        values=lambda review: [("pod", review.spec)],
        held=lambda pod: [("pod", pod)],
        sample=_sample,
    )


POD = _whole(PODS)
"""The pod itself: in Python a check gets its spec, and a fix the whole pod."""

SANDBOXED_POD = _whole(SANDBOX)


def all_containers(pod: Json) -> list[Item]:
    """Return every container of a pod."""
    return _fields(pod, "containers", "initContainers", "ephemeralContainers")


def _fields(pod: Json, *names: str) -> list[Item]:
    return [each for name in names for each in parts(pod, "spec", name)]


def _items(noun: str, among: str, of: Callable[[Json], list[Item]], sample: Callable[[Json], Item]) -> CheckScope:
    """Return the scope of items that have a name.

    Args:
        noun: The word for one in messages.
        among: The CEL variable with the items.
        of: Python: the same, in the same order.
        sample: A pod with a fragment in one of the items.
    """

    def values(review: Review) -> Iterator[tuple[str, Item]]:
        yield from ((f"{noun} '{item['name']}'", item) for item in of(review.request.object))

    def held(pod: Item) -> Iterator[tuple[str, Item]]:
        yield from ((f"{noun} '{item.get('name')}'", item) for item in of(pod))

    path = f"'{noun} \\'' + c.name + '\\''"
    return CheckScope(target=PODS.name, path=path, among=among, values=values, held=held, sample=sample)


def _with_container(fragment: Json) -> Item:
    return _sample({"spec": {"containers": [{**_CONTAINER, **fragment}]}})


def _with_volume(fragment: Json) -> Item:
    return _sample({"spec": {"volumes": [{"name": "v", **fragment}]}} if fragment else {})


def _with_sysctl(fragment: Json) -> Item:
    return _sample({"spec": {"securityContext": {"sysctls": [fragment]}}} if fragment else {})


def _sysctls(pod: Json) -> list[Item]:
    return parts(pod, "spec", "securityContext", "sysctls")


CONTAINERS = _items("container", "variables.all", all_containers, _with_container)

SECURED = _items(
    "container",
    "variables.secured",
    lambda pod: [c for c in all_containers(pod) if "securityContext" in c],
    _with_container,
)
"""Containers that have a securityContext."""

RESOURCED = _items(
    "container", "variables.resourced", lambda pod: _fields(pod, "containers", "initContainers"), _with_container
)
"""Containers that may have resources."""

VOLUMES = _items("volume", "variables.volumes", lambda pod: _fields(pod, "volumes"), _with_volume)


def _held_sysctls(pod: Item) -> list[tuple[str, Item]]:
    return [(f"sysctl '{each.get('name')}'", pod) for each in _sysctls(pod)]


SYSCTLS = msgspec.structs.replace(_items("sysctl", "variables.sysctls", _sysctls, _with_sysctl), held=_held_sysctls)
"""The pod's sysctls; a fix gets the whole pod, because it removes them from the list."""


def context(holder: Json) -> Item:
    """Return the security context of a container or of a pod's spec."""
    return part(holder, "securityContext")


def context_of(holder: Item) -> Item:
    """Return the same, created if it is not there."""
    return into(holder, "securityContext")
