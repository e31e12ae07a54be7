"""Bandwidth as a resource: the API server writes into a pod what its annotations ask for, so that it is counted. Pure.

Kubernetes has no quota key for bandwidth. As extended resources `tenantry.dev/ingress-mbps` and `egress-mbps`, in whole
megabits a second, a native ResourceQuota counts it (`requests.tenantry.dev/ingress-mbps`), and the scheduler gives it
out (E09). Source: Kubernetes, "Mutating Admission Policy", "Network Plugins" (traffic shaping), "Extended Resources".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.install.policy import IN_TENANTS, NEW_PODS, bound, mutating

Json = dict[str, Any]

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
        conditions={"asks": f"has(object.metadata.annotations) && ({asked})"},
        where=IN_TENANTS,
    )
    return bound(policy)


def _patch(annotation: str, resource: str) -> str:
    """Return the patch that asks for one direction; extended resources are requested as they are limited."""
    value = f"object.metadata.annotations['{annotation}']"
    # A part of a megabit counts as a whole one.
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
    # What is no quantity is refused by the network plugin, and has nothing to be counted.
    return f"'{annotation}' in object.metadata.annotations && isQuantity({value}) ? {' + '.join(steps)} : []"
