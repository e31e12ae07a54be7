"""Writes copies of objects: whole, by POST and PUT, so that a thousand of them cost a thousand requests and no read.

What the server answers is taken into the caches; where others wrote meanwhile, `look` tells what is there now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable
from contextlib import suppress

from tenantry.api.errors import NotFound
from tenantry.api.model import Resource, object_key
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.engine.runtime import Engine
from tenantry.kube import wire

REMEMBERED = 10_000
"""How many copies may be kept in mind that the server stores in another way than they were written."""


class Copier:
    """Writes with the engine's client.

    Args:
        engine: Its caches hear of every write.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # By copy: the likeness that it should have, and the one that it was stored with. A mutating webhook may add
        # to every object of a namespace, and must not be fought.
        self._stored_as: OrderedDict[tuple[Resource, str], tuple[bytes, bytes]] = OrderedDict()

    def is_like(self, resource: Resource, found: Inheritable, wanted: bytes) -> bool:
        """Tell whether a copy is what becomes of an object of this likeness."""
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
        request = self._engine.client.request("POST", wire.path(resource, namespace), query=self._manager, body=body)
        await self._write(resource, object_key(namespace, name), request, wanted)

    async def replace(self, resource: Resource, found: Observed, body: bytes, wanted: bytes) -> None:
        """PUT a copy in the place of one whose resourceVersion the body names.

        Raises:
            Conflict: It is no longer at that resourceVersion.
            NotFound: It is gone.
        """
        url = wire.path(resource, found.namespace, found.name)
        request = self._engine.client.request("PUT", url, query=self._manager, body=body)
        await self._write(resource, found.key, request, wanted)

    async def delete(self, resource: Resource, found: Observed) -> None:
        """DELETE a copy, and not another object of its name.

        Raises:
            Conflict: The name belongs to another object now.
        """
        with suppress(NotFound):
            await self._engine.client.delete(resource, found.namespace, found.name, uid=found.uid)
        self._engine.cache(resource).forget(found.key, found.version)

    async def read(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        """GET an object; None where there is none."""
        try:
            return await self._engine.client.request("GET", wire.path(resource, namespace, name))
        except NotFound:
            return None

    async def look(self, resource: Resource, namespace: str, name: str) -> Observed | None:
        """GET an object, tell the cache, and return what was seen."""
        cache = self._engine.cache(resource)
        data = await self.read(resource, namespace, name)
        key = object_key(namespace, name)
        if data is None:
            known = cache.get(key)
            if known is not None:
                cache.forget(key, known.version)
            return None
        found = observe(resource, data)
        # What is left out of the watch is left out of the cache: nobody would tell it that the object is gone.
        if isinstance(found, Inheritable):
            change = cache.put(found)
            if change is not None:
                self._engine.news(resource, change)
        return found

    async def _write(self, resource: Resource, key: str, answer: Awaitable[bytes], wanted: bytes) -> None:
        cache = self._engine.cache(resource)
        cache.expect(key)
        found: Observed | None = None
        try:
            found = observe(resource, await answer)
        finally:
            change = cache.settle(key, found)
            if change is not None:
                self._engine.news(resource, change)
        if wanted and isinstance(found, Inheritable) and found.likeness != wanted:
            self._stored_as[resource, key] = (wanted, found.likeness)
            while len(self._stored_as) > REMEMBERED:
                self._stored_as.popitem(last=False)

    @property
    def _manager(self) -> dict[str, str]:
        return {"fieldManager": self._engine.client.field_manager}
