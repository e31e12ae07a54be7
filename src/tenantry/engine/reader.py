"""Reads from an API server itself, for what no cache has, or may be behind on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import KubernetesObject, Resource
from tenantry.engine import served
from tenantry.kube import wire
from tenantry.kube.client import Client

K = TypeVar("K", bound=KubernetesObject)
T = TypeVar("T")


class ObjectReader(Protocol):
    """Reads of objects that a view needs: a `Client` has them, a `Reader` has them, and caches can have them."""

    async def get(self, kind: type[K], name: str, namespace: str = "") -> K:
        """Return one object.

        Raises:
            NotFound: There is none.
        """
        ...

    async def list(self, kind: type[K], *, namespace: str = "", selectors: Mapping[str, str] | None = None) -> list[K]:
        """Return all objects of a kind."""
        ...

    def items(
        self, resource: Resource, item: type[T], *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[T]:
        """Yield all objects of a kind, each decoded as a type: for kinds of which a view reads few fields."""
        ...

    async def count(self, resource: Resource, namespace: str = "") -> int:
        """Return the number of objects of a kind."""
        ...


class Reader:
    """Read from one API server.

    Args:
        client: Its requests have a deadline each.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, kind: type[K], name: str, namespace: str = "") -> K:
        """Return one object.

        Raises:
            NotFound: There is none.
        """
        return await self._client.get(kind, name, namespace)

    async def list(self, kind: type[K], *, namespace: str = "", selectors: Mapping[str, str] | None = None) -> list[K]:
        """Return all objects of a kind, in the server's order."""
        return await self._client.list(kind, namespace=namespace, selectors=selectors)

    async def raw(
        self, resource: Resource, *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[msgspec.Raw]:
        """Yield the JSON of all objects of a kind."""
        async for item in self._client.items(resource, msgspec.Raw, namespace=namespace, selectors=selectors):
            yield item

    async def items(
        self, resource: Resource, item: type[T], *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[T]:
        """Yield all objects of a kind, each decoded as a type."""
        async for each in self._client.items(resource, item, namespace=namespace, selectors=selectors):
            yield each

    async def count(self, resource: Resource, namespace: str = "") -> int:
        """Return the number of objects of a kind, and read at most one of them."""
        return await self._client.count(resource, namespace)

    async def read(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Return an object's JSON.

        Raises:
            NotFound: There is none.
        """
        return await self._client.request("GET", wire.path(resource, namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        """Return an object's JSON; None if there is none."""
        try:
            return await self.read(resource, namespace, name)
        except NotFound:
            return None

    async def recent(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Return an object's JSON from the cache of the API server, as its own admission plugins see it.

        Raises:
            NotFound: There is none.
        """
        return await self._client.request("GET", wire.path(resource, namespace, name), query={"resourceVersion": "0"})

    async def is_served(self, resource: Resource) -> bool:
        """Return whether the cluster serves a kind, and lets us list it.

        Raises:
            ApiError: Except `NotFound`: as the API server answers.
        """
        try:
            await self._client.count(resource)
        except NotFound:
            return False
        return True

    async def kinds(self, left_out: Collection[str] = ()) -> list[Resource]:
        """Return the kinds whose objects can be listed; see `served.listable`."""
        return await served.listable(partial(self._client.request, "GET"), left_out)
