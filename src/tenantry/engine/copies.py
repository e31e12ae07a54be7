"""Write copies of objects: whole, by POST and PUT, so that a thousand of them cost a thousand requests and no read."""

from __future__ import annotations

from collections import OrderedDict

from tenantry.api.model import Resource, object_key
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.engine.request import ApiRequest, Verb

REMEMBERED = 10_000
"""How many copies are remembered that the API server stores in another form than they were written."""


class Copier:
    """Write copies to a cluster.

    Args:
        cluster: Its caches hear of every write.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By copy: the likeness that it should have, and the one that it was stored with. A mutating webhook may add
        # to every object of a namespace, and must not be fought.
        self._stored_as: OrderedDict[tuple[Resource, str], tuple[bytes, bytes]] = OrderedDict()

    def is_like(self, resource: Resource, found: Inheritable, wanted: bytes) -> bool:
        """Return whether a copy is what becomes of an object of this likeness."""
        return found.likeness == wanted or self._stored_as.get((resource, found.key)) == (wanted, found.likeness)

    async def create(self, resource: Resource, namespace: str, name: str, body: bytes, wanted: bytes) -> None:
        """POST a copy.

        Args:
            resource: The kind.
            namespace: Where.
            name: Its name.
            body: Its JSON.
            wanted: The likeness that it should have.

        Raises:
            AlreadyExists: An object of this name is there.
        """
        await self._write(
            ApiRequest(verb=Verb.CREATE, resource=resource, namespace=namespace, name=name, body=body), wanted
        )

    async def replace(self, resource: Resource, found: Observed, body: bytes, wanted: bytes) -> None:
        """PUT a copy in the place of one whose resourceVersion the body names.

        Raises:
            Conflict: It is no longer at that resourceVersion.
            NotFound: It is gone.
        """
        asked = ApiRequest(verb=Verb.REPLACE, resource=resource, namespace=found.namespace, name=found.name, body=body)
        await self._write(asked, wanted)

    async def delete(self, resource: Resource, found: Observed) -> None:
        """DELETE a copy, and not another object of its name.

        Raises:
            Conflict: The name belongs to another object now.
        """
        await self._cluster.writer.remove(resource, found.namespace, found.name, uid=found.uid)
        self._cluster.cache(resource).forget(found.key, found.version)

    async def read(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        """GET an object; None if there is none."""
        return await self._cluster.live.find(resource, namespace, name)

    async def look(self, resource: Resource, namespace: str, name: str) -> Observed | None:
        """GET an object, tell the cache, and return what was seen."""
        cache = self._cluster.cache(resource)
        data = await self.read(resource, namespace, name)
        if data is None:
            known = cache.get(object_key(namespace, name))
            if known is not None:
                cache.forget(known.key, known.version)
            return None
        found = observe(resource, data)
        # What is left out of the watch is left out of the cache: no event would report that the object is gone.
        if isinstance(found, Inheritable):
            change = cache.put(found)
            if change is not None:
                self._cluster.news(resource, change)
        return found

    async def _write(self, asked: ApiRequest, wanted: bytes) -> None:
        found: object = await self._cluster.writer.own(asked, quiet=True)
        if wanted and isinstance(found, Inheritable) and found.likeness != wanted:
            self._stored_as[asked.resource, found.key] = (wanted, found.likeness)
            while len(self._stored_as) > REMEMBERED:
                self._stored_as.popitem(last=False)
