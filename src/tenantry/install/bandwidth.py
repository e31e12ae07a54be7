"""Bandwidth as a resource: a policy writes the bandwidth annotations of a pod into it as extended resources. Pure.

Kubernetes has no quota key for bandwidth. A native ResourceQuota counts the extended resources
`tenantry.dev/ingress-mbps` and `egress-mbps`, in whole megabits per second (`requests.tenantry.dev/ingress-mbps`), and
the scheduler allocates them (E09).

A value that the container runtime would refuse when the pod starts is refused when the pod is created.

Source: Kubernetes, "Mutating Admission Policy", "Network Plugins" (traffic shaping), "Extended Resources"; containerd,
internal/cri/bandwidth, `validateBandwidthIsReasonable`.
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.install.policy import IN_TENANTS, NEW_PODS, bound, items, mutating, refusing
from tenantry.policy.users import NOT_MIRRORED

NAME = "tenantry-bandwidth"
LEAST, MOST = "1k", "1P"
"""The bits per second between which a value must be."""

ANNOTATIONS = {
    "kubernetes.io/ingress-bandwidth": marks.INGRESS_MBPS,
    "kubernetes.io/egress-bandwidth": marks.EGRESS_MBPS,
}


def bandwidth() -> list[Json]:
    """Return the policies and their bindings."""
    asked = " || ".join(f"'{annotation}' in object.metadata.annotations" for annotation in ANNOTATIONS)
    policy = mutating(
        NAME,
        [NEW_PODS],
        [_patch(annotation, resource) for annotation, resource in ANNOTATIONS.items()],
        conditions={
            "asks": f"has(object.metadata.annotations) && ({asked})",
            "has-containers": f"size({items('object.spec.containers')}) > 0",
        },
        where=IN_TENANTS,
    )
    return [*bound(policy), *_refused()]


def _refused() -> list[Json]:
    """Return the policy that refuses other values."""
    annotations = "object.metadata.annotations"
    wrong = {each: "!(" + _is_valid(f"{annotations}['{each}']") + ")" for each in ANNOTATIONS}
    bad = " || ".join(f"'{each}' in {annotations} && {is_wrong}" for each, is_wrong in wrong.items())
    names = ", ".join(f"'{each}'" for each in ANNOTATIONS)
    first = f"[{names}].filter(k, k in {annotations} && !({_is_valid(f'{annotations}[k]')}))[0]"
    message = (
        f"[{first}].map(k, 'metadata.annotations \\'' + k + '\\' must be a quantity of bits per second from {LEAST} to"
        f" {MOST}, as in 10M: it is \\'' + {annotations}[k] + '\\'')[0]"
    )
    conditions = {"names-other-values": f"has({annotations}) && ({bad})", "not-a-mirror": NOT_MIRRORED}
    return refusing(NAME, [NEW_PODS], message, told=True, conditions=conditions, where=IN_TENANTS)


def _is_valid(value: str) -> str:
    """Return CEL: whether the runtime accepts a value."""
    found = f"quantity({value})"
    return (
        f"isQuantity({value}) && !{found}.isLessThan(quantity('{LEAST}')) && !{found}.isGreaterThan(quantity('{MOST}'))"
    )


def _patch(annotation: str, resource: str) -> str:
    """Return the patch for one direction; requests and limits of an extended resource must be equal."""
    value = f"object.metadata.annotations['{annotation}']"
    # Rounded up to a whole megabit. A part of a bit is no integer; as a number with a fraction, a petabit is exact.
    megabits = f"string((int(quantity({value}).asApproximateFloat()) + 999999) / 1000000)"
    at = "/spec/containers/0/resources"
    steps: list[str] = []
    for side in ("limits", "requests"):
        steps += [
            (
                f"(has(object.spec.containers[0].resources.{side}) ? []"
                f' : [JSONPatch{{op: "add", path: "{at}/{side}", value: {{}}}}])'
            ),
            f'[JSONPatch{{op: "add", path: "{at}/{side}/" + jsonpatch.escapeKey("{resource}"), value: {megabits}}}]',
        ]
    return f"'{annotation}' in object.metadata.annotations && {_is_valid(value)} ? {' + '.join(steps)} : []"
