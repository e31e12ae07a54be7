"""Bandwidth as a resource: a policy writes the bandwidth annotations of a pod into it as extended resources. Pure.

Kubernetes has no quota key for bandwidth. A native ResourceQuota counts the extended resources
`tenantry.dev/ingress-mbps` and `egress-mbps`, in whole megabits per second (`requests.tenantry.dev/ingress-mbps`), and
the scheduler allocates them (E09).

Source: Kubernetes, "Mutating Admission Policy", "Network Plugins" (traffic shaping), "Extended Resources".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.install.policy import IN_TENANTS, NEW_PODS, bound, items, mutating

NAME = "tenantry-bandwidth"
ANNOTATIONS = {
    "kubernetes.io/ingress-bandwidth": marks.INGRESS_MBPS,
    "kubernetes.io/egress-bandwidth": marks.EGRESS_MBPS,
}


def bandwidth() -> list[Json]:
    """Return the policy and its binding."""
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
    return bound(policy)


def _patch(annotation: str, resource: str) -> str:
    """Return the patch for one direction; requests and limits of an extended resource must be equal."""
    value = f"object.metadata.annotations['{annotation}']"
    # Rounded up to a whole megabit.
    megabits = f"string((quantity({value}).asInteger() + 999999) / 1000000)"
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
    # The network plugin refuses a value that is not a quantity.
    return f"'{annotation}' in object.metadata.annotations && isQuantity({value}) ? {' + '.join(steps)} : []"
