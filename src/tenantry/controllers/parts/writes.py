"""Writes of parts: what nodes give, and which namespaces' pods run there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.node import Node
from tenantry.controllers.parts import desired
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed

Json = dict[str, Any]

ATTEMPTS = 5
"""How often a node is tried that its kubelet writes at the same time."""


async def change(cluster: Cluster, node: Node, patch: Callable[[Node], Json]) -> None:
    """Change a node at the version at which it was seen, and tell the cache and whoever it concerns.

    Args:
        cluster: Whose client writes.
        node: As last seen; where somebody has written since, it is read and looked at again.
        patch: From a node to the merge patch that it needs; {} for none.

    Raises:
        Conflict: It changes all the time, or `patch` found that it does not do any more.
    """
    name = node.metadata.name
    for attempt in range(ATTEMPTS):
        body = patch(node)
        if not body:
            return
        try:
            await cluster.writer.patch(Node.resource, "", name, body, subresource="status" if "status" in body else "")
        except NotFound:
            return
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            node = await cluster.live.get(Node, name)
        else:
            return


async def label(cluster: Cluster, namespaces: Sequence[Observed], name: str | None) -> None:
    """Have the pods that will be made in namespaces run in a slice's parts, or in none."""
    for namespace in namespaces:
        with suppress(NotFound):  # it was deleted meanwhile
            await cluster.writer.patch(Namespace.resource, "", namespace.name, desired.label_patch(name))
