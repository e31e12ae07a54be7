"""PodDisruptionBudgets. Pure.

The upper side decides evictions there by itself. The lower budget protects the same pods when an administrator drains a
lower node: it keeps as many pods as the upper one wants, but always lets a healthy one go, and all that are not ready.
Pods in two budgets are the exception: Kubernetes evicts none of them.

    upper  maxUnavailable: 0, of 3 pods    lower  minAvailable: 2
    upper  minAvailable: 50%, of 4 pods    lower  minAvailable: 2

The lower one never has a percentage or maxUnavailable, for which Kubernetes asks the controllers of pods how many there
should be: lower pods have none.

Source: Kubernetes, "Specifying a Disruption Budget for your Application".
"""

from __future__ import annotations

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.kinds.networkpolicies import confined
from tenantry.mirror.podfields import SELECTOR
from tenantry.mirror.shapes import fields, number_or_text, part, text

RESOURCE = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")

_SPEC = fields(
    {
        "selector": SELECTOR,
        "unhealthyPodEvictionPolicy": text,
        "minAvailable": number_or_text,
        "maxUnavailable": number_or_text,
    }
)


def translate(spec: Json, origin: Origin) -> None:
    """Have a budget keep lower pods.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.
    """
    # Without a selector it selects no pods, and stays so.
    if "selector" in spec:
        spec["selector"] = confined(spec["selector"], [origin.namespace], origin.profile)
    spec.pop("maxUnavailable", None)
    status = part(origin.upper, "status")
    wanted, there = _count(status, "desiredHealthy"), _count(status, "expectedPods")
    # Users write the status of the upper budget, but not what the lower side counts.
    below = origin.status.get("currentHealthy")
    healthy = below if isinstance(below, int) else there
    spec["minAvailable"] = max(0, min(wanted, there - 1, healthy - 1))
    # A pod that is never ready must not take the one that may go.
    spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"


def _count(status: Json, field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) else 0


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate)
