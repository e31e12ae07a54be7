"""Writes of parts: what nodes give, and which namespaces' pods run there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.controllers.nodes.controller import Node, decode_node
from tenantry.controllers.parts import desired
from tenantry.engine.observed import Observed, observe
from tenantry.engine.runtime import Engine

Json = dict[str, Any]

ATTEMPTS = 5
"""How often a node is tried that its kubelet writes at the same time."""


async def change(engine: Engine, node: Node, patch: Callable[[Node], Json]) -> None:
    """Change a node at the version at which it was seen, and tell the cache and whoever it concerns.

    Args:
        engine: Whose client writes.
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
        subresource = "status" if "status" in body else ""
        try:
            data = await engine.client.merge_patch(Node.resource, "", name, body, subresource=subresource)
        except NotFound:
            return
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            node = await engine.client.get(Node, name)
            continue
        seen = engine.cache(Node.resource).put(decode_node(msgspec.Raw(data)))
        if seen is not None:
            engine.news(Node.resource, seen)
        return


async def label(engine: Engine, namespaces: Sequence[Observed], name: str | None) -> None:
    """Have the pods that will be made in namespaces run in a slice's parts, or in none."""
    for namespace in namespaces:
        try:
            data = await engine.client.merge_patch(Namespace.resource, "", namespace.name, desired.label_patch(name))
        except NotFound:
            continue  # it was deleted meanwhile
        seen = engine.cache(Namespace.resource).put(observe(Namespace.resource, data))
        if seen is not None:
            engine.news(Namespace.resource, seen)
