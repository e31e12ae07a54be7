"""The objects of one kind now, and again after each change: how verbs wait, by watching."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from tenantry.api.errors import Gone
from tenantry.api.model import KubernetesObject
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

K = TypeVar("K", bound=KubernetesObject)


async def follow(
    client: Client, kind: type[K], *, selectors: Mapping[str, str] | None = None, namespace: str = ""
) -> AsyncIterator[dict[str, K]]:
    """Yield the objects by key: as they are, then after each batch of changes, for ever.

    The mapping is the same one each time, changed in place. Break out of the loop under a deadline of your own.

    Raises:
        ApiError: The server refuses or is gone.
    """
    while True:
        try:
            found: dict[str, K] = {}
            version = ""
            async for page in client.pages(kind.resource, kind, namespace=namespace, selectors=selectors):
                found |= {item.key: item for item in page.items}
                version = page.metadata.resource_version or version
            yield found
            changes = watch(client, kind.resource, resource_version=version, selectors=selectors, namespace=namespace)
            async for events in changes:
                told = False
                for event in events:
                    if event.type is not EventType.BOOKMARK:
                        _take(found, client.decode(kind, event.object), gone=event.type is EventType.DELETED)
                        told = True
                if told:
                    yield found
        except Gone:
            continue  # the server forgot so old a version: list again


def only(names: tuple[str, ...]) -> dict[str, str]:
    """Return the selectors that fit best: one name can be selected, several cannot."""
    return {"fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else {}


def _take(found: dict[str, K], value: K, *, gone: bool) -> None:
    if gone:
        found.pop(value.key, None)
    else:
        found[value.key] = value
