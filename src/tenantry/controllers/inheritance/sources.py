"""Lists the sources of copies that are made once: a source that a lagging cache lacks would be missing for good.

Copies that are kept in sync need no list: the watch reports their sources, however late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakValueDictionary

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.engine.tasks import all_of
from tenantry.world import inheritance


class _Turns:
    """The lists of one kind in one namespace, one after the other: each serves all callers that waited for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.begun = 0
        self.done = 0


class Sources:
    """The lists that are under way."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[tuple[str, Resource, str], _Turns] = WeakValueDictionary()

    async def look(self, cluster: Cluster, kinds: Iterable[Resource], namespace: str) -> ApiError | None:
        """Bring caches up to date with the objects of a namespace, as they are when this is called or later.

        Returns:
            The first refusal or failure.
        """
        # Other reconciles wait for the same lists: the failure of one must not cancel the rest.
        results = await all_of(self._try(cluster, kind, namespace) for kind in kinds)
        return next((result for result in results if result is not None), None)

    async def _try(self, cluster: Cluster, resource: Resource, namespace: str) -> ApiError | None:
        turns = self._turns.setdefault((cluster.id, resource, namespace), _Turns())
        before = turns.begun
        async with turns.lock:
            # A hundred children that are created at once share a few lists instead of a hundred.
            if turns.done > before:
                return None  # a list that began after this was called
            turns.begun += 1
            turn = turns.begun
            try:
                await _list(cluster, resource, namespace)
            except ApiError as error:
                return error
            turns.done = turn
            return None


async def _list(cluster: Cluster, resource: Resource, namespace: str) -> None:
    cache = cluster.cache(resource)
    selectors = inheritance.selectors_of(resource)
    async for raw in cluster.live.raw(resource, namespace=namespace, selectors=selectors):
        found: Observed = observe(resource, raw)
        change = cache.put(found) if isinstance(found, Inheritable) else None
        if change is not None:
            cluster.notify(resource, change)
