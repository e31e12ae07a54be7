"""How many pods run on the nodes inside of control planes, for what chooses the nodes that leave. The glue.

The caches have no pods of nodes that stay: users inside create as many as they like. They are counted when a pool
shrinks, by a list of the pods of each node, in the process that has the connection to the control plane.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.controllers.slices import pods
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.reader import Reader

COUNT_SECONDS = 5.0
"""How long the counts of all nodes of one cluster may take: users inside can make an API server slow."""

MOST_COUNTED = 1000
"""Pods of one node; what it has more does not count."""

log = logging.getLogger(__name__)


class PodCounts:
    """The readers of the control planes that are connected, by their uids. Links write them."""

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[], Reader | None]] = {}

    def put(self, uid: str, reader: Callable[[], Reader | None]) -> None:
        """Record how a control plane is read: None while it is not connected."""
        self._readers[uid] = reader

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane."""
        self._readers.pop(uid, None)

    async def count(self, uid: str, nodes: Iterable[str]) -> Mapping[str, int]:
        """Return how many pods would have to leave each of some nodes; {} if that cannot be known in time.

        Args:
            uid: The uid of the VirtualControlPlane.
            nodes: The names of nodes inside.
        """
        known = self._readers.get(uid)
        reader = known() if known is not None else None
        if reader is None:
            return {}
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                return {name: await _count(reader, name) for name in nodes}
        except (TimeoutError, TenantryError, msgspec.MsgspecError) as error:
            log.warning("the pods of nodes cannot be counted", extra={"uid": uid, "error": str(error)})
            return {}


async def _count(reader: Reader, node: str) -> int:
    found = 0
    async for raw in reader.raw(Pod.resource, selectors={"fieldSelector": f"spec.nodeName={node}"}):
        found += not pods.observe(raw).stays
        if found >= MOST_COUNTED:
            break
    return found
