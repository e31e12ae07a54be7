"""Label selectors: pure. Source: Kubernetes, "Labels and Selectors"."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.netpol.objects import Selector, SelectorRequirement


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(_is_fulfilled(each, labels) for each in selector.match_expressions)


def _is_fulfilled(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
