"""Label selectors of NetworkPolicies: pure."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.world.netpol.objects import Selector
from tenantry.world.selectors import meets


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(meets(labels, each.key, each.operator, each.values) for each in selector.match_expressions)
