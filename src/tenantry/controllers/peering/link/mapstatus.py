"""Writes the status of one NamespaceMap: one request at a time, which takes along all changes since the last one.

A write costs the API server time for each entry of the map, so that a write for each namespace would be quadratic.

    report n1 ─► PATCH {n1}        report n2, n3, n4 meanwhile ─► PATCH {n2, n3, n4}
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import Json
from tenantry.api.offloading import NamespaceMap
from tenantry.engine.cluster import Cluster


class MapStatusWriter:
    """Writes entries of the status of one map.

    Args:
        home: The cluster that has the map.
        name: The name of the map.
    """

    def __init__(self, home: Cluster, name: str) -> None:
        self._home = home
        self._name = name
        self._lock = asyncio.Lock()
        # By uid of the map: the entries that no request has taken along yet, as parts of a merge patch.
        self._waiting: dict[str, Json] = {}

    async def write(self, uid: str, entries: Json) -> None:
        """Write entries, and return when the API server has them, or the map is gone.

        Args:
            uid: Of the map.
            entries: Home namespace to the merge patch of its entry; None to remove it.

        Raises:
            ApiError: The API server failed; the entries are written by the next call, too.
        """
        self._waiting.setdefault(uid, {}).update(entries)
        async with self._lock:
            batch = self._waiting.pop(uid, None)
            if not batch or not entries.keys() & batch.keys():
                # The request before has taken them along; those of others wait for their own turn.
                if batch:
                    self._waiting[uid] = batch
                return
            body: Json = {"metadata": {"uid": uid}, "status": {"current": batch}}
            try:
                with suppress(NotFound, Conflict):
                    await self._home.writer.patch(NamespaceMap.resource, "", self._name, body, subresource="status")
            except BaseException:
                self._waiting[uid] = batch | self._waiting.get(uid, {})
                raise
