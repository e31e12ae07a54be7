"""An informer keeps a cache synchronised with the API server: it lists a kind once, then watches it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from tenantry.api.errors import ApiError, Gone, Interrupted, NotFound
from tenantry.api.model import Resource, object_key
from tenantry.engine.cache import Cache, Cached, Change
from tenantry.engine.outage import Outage
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, WatchEvent, watch

C = TypeVar("C", bound=Cached)

FIRST_DELAY_SECONDS = 0.1
LAST_DELAY_SECONDS = 15.0

log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""


class _Identified(msgspec.Struct, frozen=True):
    """As much of an object as a bookmark has, or as one that does not decode needs to be known by."""

    metadata: _Metadata


_identified = msgspec.json.Decoder(_Identified)


class Informer(Generic[C]):
    """The cache of one kind, kept current.

    Args:
        resource: The kind.
        decode: From an object's JSON to what the cache keeps.
        on_change: Told of each change that was not a write of our own, in order.
        selectors: `labelSelector` and `fieldSelector`.
        indexes: See `Cache`.
        cluster: The `ClusterId` of the API server, for logs.
        outage: The outage of the API server, which all its informers wait for together; None to wait alone.
    """

    def __init__(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], C],
        on_change: Callable[[Change[C]], None],
        *,
        selectors: Mapping[str, str] | None = None,
        indexes: Mapping[str, Callable[[C], Iterable[str]]] | None = None,
        cluster: str = "",
        outage: Outage | None = None,
    ) -> None:
        self._outage = outage
        self.resource = resource
        self.cluster = cluster
        self.cache: Cache[C] = Cache(indexes)
        self.synced = asyncio.Event()
        self.selectors = selectors
        self.decode = decode
        self.on_change = on_change
        self._last_seen = ""

    async def run(self, client: Client) -> None:
        """List and watch until cancelled. Failures are waited out; only a change of the cache is ever seen outside."""
        delay = FIRST_DELAY_SECONDS
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(client)
                    delay = FIRST_DELAY_SECONDS
                    self.synced.set()
                version = await self._watch(client, version)
                delay = FIRST_DELAY_SECONDS
            except Gone:
                version = ""
            except NotFound:
                # The kind itself went away: nothing of it exists any more.
                version = ""
                fields = {"cluster": self.cluster, "resource": self.resource.full_name}
                log.warning("the API server does not serve the kind", extra=fields)
                self._emit(self.cache.clear())
                # Only for kinds that are not optional: the CRD of an optional one ends its informer (`_crd_changed`).
                await asyncio.sleep(LAST_DELAY_SECONDS)
            except (ApiError, msgspec.MsgspecError, ValueError) as error:
                # A watch whose connection broke goes on where it was. One that cannot be opened begins with a list: the
                # server may come back with other data. A server that sends what is no
                # Kubernetes object, or no number as resourceVersion, must not end the work on other servers.
                version = self._last_seen if isinstance(error, Interrupted) and version else ""
                self._report(error)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
                delay = min(delay * 2, LAST_DELAY_SECONDS)
                if self._outage is not None and not self._outage.is_over:
                    version = "" if await self._outage.wait() else version
                    delay = FIRST_DELAY_SECONDS

    def _report(self, error: Exception) -> None:
        level = logging.WARNING
        if self._outage is not None:
            if isinstance(error, ApiError):
                self._outage.begin(error)
            level = logging.DEBUG if self._outage.explains(error) else level
        fields = {"cluster": self.cluster, "resource": self.resource.full_name, "error": str(error)}
        log.log(level, "watch failed", extra=fields)

    async def _list(self, client: Client) -> str:
        listed: set[str] = set()
        version = ""
        restored: list[msgspec.Raw] = []
        async for page in client.pages(self.resource, msgspec.Raw, selectors=self.selectors):
            version = version or page.metadata.resource_version
            if self.cache.is_newer_than(int(version)):
                # Emptied between two pages, the cache would show reconcilers that the rest is deleted.
                restored += page.items
                continue
            self._put(page.items, listed, int(version))
            await asyncio.sleep(0)  # decoding a page takes milliseconds: let the others run
        self._emit(self.cache.restart(int(version)))
        self._put(restored, listed, int(version))
        self._emit(self.cache.finish_list(listed, int(version)))
        return version

    def _put(self, items: Iterable[msgspec.Raw], listed: set[str], version: int) -> None:
        """Store a part of a list of this resourceVersion, and add its keys to those that are listed."""
        for raw in items:
            value = self._read(raw)
            if value is None:
                continue
            listed.add(value.key)
            change = self.cache.put(value, listed=version)
            if change is not None:
                self.on_change(change)

    async def _watch(self, client: Client, version: str) -> str:
        self._last_seen = version
        async for events in watch(client, self.resource, resource_version=version, selectors=self.selectors):
            for event in events:
                change = self._take(event)
                if change is not None:
                    self.on_change(change)
        return self._last_seen

    def _take(self, event: WatchEvent) -> Change[C] | None:
        value = self._read(event.object) if event.type is not EventType.BOOKMARK else None
        if value is not None:
            version = value.version
            deleted = event.type is EventType.DELETED
            change = self.cache.remove(value.key, version) if deleted else self.cache.put(value)
        else:
            meta = _identified.decode(event.object).metadata
            version = int(meta.resource_version)
            # A bookmark has no name: nothing is known by that key.
            change = self.cache.remove(object_key(meta.namespace, meta.name), version)
        self._last_seen = str(version)
        self.cache.advance(version)
        return change

    def _read(self, raw: msgspec.Raw) -> C | None:
        """Return an object, None if it does not decode: one that another schema let in must not stop the rest."""
        try:
            return self.decode(raw)
        except wire.UNREADABLE as error:
            meta = _identified.decode(raw).metadata
            fields = {
                "cluster": self.cluster,
                "resource": self.resource.full_name,
                "key": object_key(meta.namespace, meta.name),
            }
            log.warning("object not understood: it is left alone", extra={**fields, "error": str(error)})
            return None

    def _emit(self, changes: Iterable[Change[C]]) -> None:
        for change in changes:
            self.on_change(change)
