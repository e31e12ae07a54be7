"""The policy that fits the defaults of a LimitRange into the resources of the whole pod. Pure.

A pod may have resources for all its containers together (`spec.resources`). The LimitRange of its namespace gives each
container that has none the defaults of a container, whatever the pod has. If these do not fit, Kubernetes would refuse
the pod, although its author wrote nothing wrong:

    pod limit of cpu 100m, request 100m   ─►  two containers with a limit of 500m and a request of 100m each: refused
    with this policy                      ─►  two containers with a limit of 100m and a request of 50m each

Only values that the LimitRange has set are changed, as its annotation on the pod lists them. A quota counts the
resources of the pod. Source: Kubernetes, "Mutating Admission Policy", "Assign Pod-level CPU and memory resources".
"""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api.model import Json
from tenantry.install.policy import IN_TENANTS, NEW_PODS, bound, items, mutating

NAME = "tenantry-pod-resources"
ANNOTATION = "kubernetes.io/limit-ranger"
"""What a LimitRange has set: `LimitRanger plugin set: cpu, memory request for container web; cpu limit for …`."""

_PREFIX = "LimitRanger plugin set: "

_WHOLE = {"cpu": 1000, "memory": 1}
"""The resources that a pod and the defaults may have, and how many of the written units are one of the resource."""
_UNIT = {"cpu": "m", "memory": ""}
_PLAIN, _INIT = "containers", "initContainers"


def everything() -> list[Json]:
    """Return the policy and its binding."""
    variables = {"defaults": f"object.metadata.annotations['{ANNOTATION}'].replace('{_PREFIX}', '').split('; ')"}
    # Sidecars are init containers that run beside the others.
    running = f"({items(f'object.spec.{_PLAIN}')} + {items(f'object.spec.{_INIT}')}"
    running += ".filter(c, c.?restartPolicy.orValue('') == 'Always'))"
    variables["running"] = running
    for resource in _WHOLE:
        variables |= _shares(resource)
    patches = [
        *(_patch(_PLAIN, "limit", resource, _limit) for resource in _WHOLE),
        *(_patch(among, "request", resource, _request) for resource in _WHOLE for among in (_PLAIN, _INIT)),
    ]
    policy = mutating(
        NAME,
        [NEW_PODS],
        # In one expression: the next one would see shares of what this one has changed.
        [" + ".join(patches)],
        conditions={
            "has-resources-of-its-own": "has(object.spec.resources) && has(object.metadata.annotations)"
            f" && '{ANNOTATION}' in object.metadata.annotations"
        },
        where=IN_TENANTS,
        variables=variables,
    )
    return bound(policy)


def _amount(value: str) -> str:
    return f"quantity(string({value})).asApproximateFloat()"


def _is_default(side: str, resource: str) -> str:
    """Return CEL: whether the LimitRange has set a request or limit of the container `c`, of either kind."""
    return (
        f"variables.defaults.exists(s, s.endsWith('container ' + c.name) && s.contains(' {side} for ')"
        f" && (' ' + s).contains(' {resource}'))"
    )


def _shares(resource: str) -> dict[str, str]:
    """Return variables: what the pod requests, and the part of it that each container gets that has a default."""
    has, own = f"{resource}Requested", f"c.?resources.requests['{resource}'].orValue('0')"
    default = _is_default("request", resource)
    total = f"variables.running.map(c, {_amount(own)})"
    written = f"variables.running.filter(c, !{default}).map(c, {_amount(own)})"
    number = f"variables.running.filter(c, {default}).size()"
    left = f"variables.{has} - {written}.sum()"
    return {
        has: _amount(f"object.?spec.resources.requests['{resource}'].orValue('0')"),
        f"{resource}Share": f"!('{resource}' in object.?spec.resources.requests.orValue({{}}))"
        f" || {total}.sum() <= variables.{has} || {number} == 0 || {left} <= 0.0 ? -1.0 : ({left}) / double({number})",
    }


def _limit(resource: str) -> tuple[str, str]:
    """Return CEL for a limit of `c`: whether it is more than the pod's, and the pod's."""
    most = f"object.?spec.resources.limits['{resource}'].orValue('')"
    given = f"c.?resources.limits['{resource}'].orValue('0')"
    return (
        (
            f"'{resource}' in object.?spec.resources.limits.orValue({{}})"
            f" && quantity(string({given})).isGreaterThan(quantity(string({most})))"
        ),
        f"string({most})",
    )


def _request(resource: str) -> tuple[str, str]:
    """Return CEL for a request of `c`: whether it is more than its share, and the share."""
    share = f"variables.{resource}Share"
    given = f"c.?resources.requests['{resource}'].orValue('0')"
    value = f"string(int({share} * {_WHOLE[resource]}.0)) + '{_UNIT[resource]}'"
    return f"{share} >= 0.0 && {_amount(given)} > {share}", value


def _patch(among: str, side: str, resource: str, changed: Callable[[str], tuple[str, str]]) -> str:
    too_much, value = changed(resource)
    path = f"'/spec/{among}/' + string(i) + '/resources/{side}s/{resource}'"
    return (
        f"{items(f'object.spec.{among}')}.transformList(i, c, {too_much}"
        f" && {_is_default(side, resource)}, JSONPatch{{op: 'replace', path: {path}, value: {value}}})"
    )
