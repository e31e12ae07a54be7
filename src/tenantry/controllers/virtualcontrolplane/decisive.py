"""What a namespace of the host decides about its control planes: pure."""

from __future__ import annotations

from tenantry.api.marks import CONTROL_PLANE, CONVERTING, NETWORK, OWNERS, SUSPENDED
from tenantry.engine.cache import Change
from tenantry.engine.observed import Observed


def is_open(namespace: Observed) -> bool:
    """Return whether users may use the control planes: the tenant is not suspended."""
    return SUSPENDED not in namespace.labels


def is_suspended(namespace: Observed | None) -> bool:
    """Return whether the tenant of a namespace is suspended; False if it is not known."""
    return namespace is not None and not is_open(namespace)


def has_changed(change: Change[Observed]) -> bool:
    """Return whether a change of a namespace, which is there before and after it, changes its control planes."""
    before, after = change.before, change.after
    return before is not None and after is not None and _seen(before) != _seen(after)


def _seen(namespace: Observed) -> tuple[object, ...]:
    labels, owners = namespace.labels, namespace.annotations.get(OWNERS, "")
    # With the label of its control plane, the kubeconfig is elsewhere.
    return is_open(namespace), CONVERTING in labels, labels.get(NETWORK, ""), labels.get(CONTROL_PLANE, ""), owners
