"""The objects of one kind, now and after each change. Verbs that wait use this instead of polling."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar, cast

from tenantry.api.errors import Gone
from tenantry.api.model import KubernetesObject, Resource
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, WatchEvent, watch

K = TypeVar("K", bound=KubernetesObject)


async def follow(
    client: Client, kind: type[K], *, selectors: Mapping[str, str] | None = None, namespace: str = ""
) -> AsyncGenerator[dict[str, K]]:
    """Yield the objects by key: now, and after each batch of changes.

    The mapping is the same one each time, changed in place. The caller sets the deadline and uses `aclosing`: a
    generator that is not closed keeps its connection.

    Raises:
        ApiError: The API server refuses the request, or cannot be reached.
    """
    while True:
        try:
            found: dict[str, K] = {}
            version = ""
            async for page in client.pages(kind.resource, kind, namespace=namespace, selectors=selectors):
                found |= {item.key: item for item in page.items}
                version = page.metadata.resource_version or version
            yield found
            async with changes(client, kind.resource, version, selectors=selectors, namespace=namespace) as batches:
                async for events in batches:
                    told = False
                    for event in events:
                        if event.type is not EventType.BOOKMARK:
                            _take(found, client.decode(kind, event.object), gone=event.type is EventType.DELETED)
                            told = True
                    if told:
                        yield found
        except Gone:
            continue  # the API server has compacted this resourceVersion: list again


@asynccontextmanager
async def changes(
    client: Client,
    resource: Resource,
    version: str,
    *,
    selectors: Mapping[str, str] | None = None,
    namespace: str = "",
) -> AsyncGenerator[AsyncIterator[list[WatchEvent]]]:
    """Watch, and release the connection at the end of the block, also after an error."""
    batches = watch(client, resource, resource_version=version, selectors=selectors, namespace=namespace)
    async with aclosing(cast("AsyncGenerator[list[WatchEvent]]", batches)):
        yield batches


def only(names: tuple[str, ...]) -> dict[str, str]:
    """Return selectors for objects of these names: a field selector can name one object, not several."""
    return {"fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else {}


def _take(found: dict[str, K], value: K, *, gone: bool) -> None:
    if gone:
        found.pop(value.key, None)
    else:
        found[value.key] = value
