"""Which Subtenant of a tree a namespace is in: pure.

A Workspace may be a network zone of its own, and is its parent's all the same: zones do not tell Subtenants apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api.marks import KIND, KIND_SUBTENANT, PARENT, SUBNAMESPACE_UID

_DEEPEST = 64
"""A longer chain of parents has a loop in it."""


def subtenant_of(name: str, tree: Mapping[str, Mapping[str, str]]) -> str:
    """Return the uid of the nearest Subtenant at or above a namespace; "" if it is in none.

    Args:
        name: The namespace.
        tree: The labels of all namespaces of the tenant, by name.
    """
    for _ in range(_DEEPEST):
        labels = tree.get(name, {})
        if labels.get(KIND) == KIND_SUBTENANT:
            return labels.get(SUBNAMESPACE_UID, "")
        if PARENT not in labels:
            break
        name = labels[PARENT]
    return ""
