"""Looks in the API server for what is copied once: by a cache that is a moment behind, it would be missing for good.

What is kept the same comes with its own event, whenever that is.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from tenantry.api.model import Resource
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.world import inheritance


class _Turns:
    """The lists of one kind in one namespace: one after the other, each for all who asked before it began."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.begun = 0
        self.done = 0


class Sources:
    """Lists with the cluster's client.

    Args:
        cluster: Its caches take in what is found.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Kept only while a lookup is under way.
        self._turns: WeakValueDictionary[tuple[Resource, str], _Turns] = WeakValueDictionary()

    async def look(self, resource: Resource, namespace: str) -> None:
        """Have the cache hold whatever can be inherited of a kind, as it was when this was called or later.

        Raises:
            ApiError: The API server refuses or fails.
        """
        turns = self._turns.setdefault((resource, namespace), _Turns())
        before = turns.begun
        async with turns.lock:
            if turns.done > before:
                return  # a list that began after this was called
            turns.begun += 1
            turn = turns.begun
            await self._list(resource, namespace)
            turns.done = turn

    async def _list(self, resource: Resource, namespace: str) -> None:
        cache = self._cluster.cache(resource)
        selectors = inheritance.selectors_of(resource)
        async for raw in self._cluster.live.raw(resource, namespace=namespace, selectors=selectors):
            found: Observed = observe(resource, raw)
            change = cache.put(found) if isinstance(found, Inheritable) else None
            if change is not None:
                self._cluster.news(resource, change)
