"""Lists that a user may lack the right to read: a view then shows the rest, and reports what it left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tenantry.api.errors import Forbidden
from tenantry.api.model import KubernetesObject
from tenantry.engine.reader import ObjectReader

K = TypeVar("K", bound=KubernetesObject)

NO_CLUSTER_BINDINGS = "cluster-wide rights are not shown: you may not read ClusterRoleBindings"
"""The note of a view that shows rights without the ClusterRoleBindings."""


async def list_permitted(
    reader: ObjectReader, kind: type[K], *, namespace: str = "", selectors: Mapping[str, str] | None = None
) -> list[K] | None:
    """Return all objects of a kind; None if the user may not list them."""
    try:
        return await reader.list(kind, namespace=namespace, selectors=selectors)
    except Forbidden:
        return None
