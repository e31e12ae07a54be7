"""The writes that make a pod leave its node: pure. Source: Kubernetes, "API-initiated Eviction"."""

from __future__ import annotations

from tenantry.api.errors import Conflict, NotFound, TooManyRequests
from tenantry.api.model import Resource
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite

PODS = Resource("", "v1", "pods", "Pod")


def eviction(namespace: str, name: str, uid: str, *, grace_period_seconds: int | None = None) -> DirectWrite:
    """Return the eviction of a pod, which a disruption budget may refuse: the caller looks again.

    Args:
        namespace: The namespace of the pod.
        name: Its name.
        uid: Its uid; another pod of the name stays.
        grace_period_seconds: How long it may take to stop; None for what its spec says.
    """
    asked = request.evict(PODS, namespace, name, uid, grace_period_seconds=grace_period_seconds)
    return DirectWrite(request=asked, ignores=(TooManyRequests, NotFound, Conflict))


def deletion(namespace: str, name: str, uid: str, *, grace_period_seconds: int | None = None) -> DirectWrite:
    """Return the deletion of a pod, whatever disruption budgets say; the arguments are those of `eviction`."""
    asked = request.delete(PODS, namespace, name, uid=uid, grace_period_seconds=grace_period_seconds)
    return DirectWrite(request=asked, ignores=(NotFound, Conflict))
