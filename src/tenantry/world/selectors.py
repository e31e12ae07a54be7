"""Label selectors: pure. Source: Kubernetes, "Labels and Selectors"."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def meets(labels: Mapping[str, str], key: str, operator: str, values: Collection[str]) -> bool:
    """Return whether labels meet one expression of a selector; NotIn also holds without the label.

    Args:
        labels: The labels of an object.
        key: The label of the expression.
        operator: In, NotIn, Exists or DoesNotExist; no other operator is ever met.
        values: For In and NotIn.
    """
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
