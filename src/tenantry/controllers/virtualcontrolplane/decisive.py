"""What a namespace of the host decides about its control planes: pure."""

from __future__ import annotations

from tenantry.api.marks import CONVERTING, NETWORK, OWNERS, SUSPENDED
from tenantry.engine.observed import Observed


def is_open(namespace: Observed) -> bool:
    """Return whether users may use the control planes: the tenant is not suspended."""
    return SUSPENDED not in namespace.labels


def seen(namespace: Observed) -> tuple[bool, bool, str, str]:
    """Return everything of a namespace that changes its control planes."""
    labels = namespace.labels
    return is_open(namespace), CONVERTING in labels, labels.get(NETWORK, ""), namespace.annotations.get(OWNERS, "")
