"""An informer keeps a cache synchronised with the API server: it lists a kind once, then watches it.

It covers the whole kind, or one place of it; `tenantry.engine.scopedinformer` has an informer for each place of a kind.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from tenantry.api.errors import ApiError, Forbidden, Gone, Interrupted, NotFound
from tenantry.api.model import Resource, object_key
from tenantry.engine.cache import EVERYWHERE, Cache, Cached, Change
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
        namespace: The namespace to list and watch; "" for all.
        cache: The cache to fill, which informers of several places share; None for a new one.
        place: The place of that cache that the informer covers.
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
        namespace: str = "",
        cache: Cache[C] | None = None,
        place: str = EVERYWHERE,
    ) -> None:
        self._outage = outage
        self._namespace = namespace
        self._place = place
        self.resource = resource
        self.cluster = cluster
        self.cache: Cache[C] = Cache(indexes) if cache is None else cache
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.selectors = selectors
        self.decode = decode
        self.on_change = on_change
        self._last_seen = ""
        self._heard = time.monotonic()

    @property
    def age_seconds(self) -> float:
        """How long the API server has sent nothing; it sends a bookmark each minute."""
        return time.monotonic() - self._heard

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
                    self.answered.set()
                version = await self._watch(client, version)
                delay = FIRST_DELAY_SECONDS
            except Gone:
                version = ""
            except NotFound:
                # The kind itself went away: nothing of it exists any more.
                version = ""
                log.warning("the API server does not serve the kind", extra=self._fields)
                self._emit(self.cache.clear(self._place))
                self.answered.set()
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

    def end(self) -> None:
        """Release everything that waits for the informer, which is not run again."""
        self.synced.set()
        self.answered.set()

    def probe(self) -> tuple[str, dict[str, str]]:
        """Return the path and the query of the smallest list that needs the rights of this informer."""
        return wire.path(self.resource, self._namespace), {**(self.selectors or {}), "limit": "1"}

    @property
    def _fields(self) -> dict[str, str]:
        """Return the fields of its log messages."""
        place = {"place": self._place} if self._place != EVERYWHERE else {}
        return {"cluster": self.cluster, "resource": self.resource.full_name, **place}

    def _report(self, error: Exception) -> None:
        is_explained = False
        if self._outage is not None:
            if isinstance(error, ApiError):
                self._outage.begin(error)
            is_explained = self._outage.explains(error)
        if isinstance(error, Forbidden) and not is_explained:
            self.answered.set()
        level = logging.DEBUG if is_explained else logging.WARNING
        log.log(level, "watch failed", extra={**self._fields, "error": str(error)})

    async def _list(self, client: Client) -> str:
        listed: set[str] = set()
        version = ""
        self._heard = time.monotonic()
        restored: list[msgspec.Raw] = []
        pages = client.pages(self.resource, msgspec.Raw, namespace=self._namespace, selectors=self.selectors)
        async for page in pages:
            version = version or page.metadata.resource_version
            if self.cache.is_newer_than(int(version), self._place):
                # Emptied between two pages, the cache would show reconcilers that the rest is deleted.
                restored += page.items
                continue
            self._put(page.items, listed, int(version))
            await asyncio.sleep(0)  # decoding a page takes milliseconds: let the others run
        self._emit(self.cache.restart(int(version), self._place))
        self._put(restored, listed, int(version))
        self._emit(self.cache.finish_list(listed, int(version), self._place))
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
        watched = watch(
            client,
            self.resource,
            resource_version=version,
            selectors=self.selectors,
            namespace=self._namespace,
        )
        async for events in watched:
            self._heard = time.monotonic()
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
        self.cache.advance(version, self._place)
        return change

    def _read(self, raw: msgspec.Raw) -> C | None:
        """Return an object, None if it does not decode: one that another schema let in must not stop the rest."""
        try:
            return self.decode(raw)
        except wire.UNREADABLE as error:
            meta = _identified.decode(raw).metadata
            fields = {**self._fields, "key": object_key(meta.namespace, meta.name), "error": str(error)}
            log.warning("object not understood: it is left alone", extra=fields)
            return None

    def _emit(self, changes: Iterable[Change[C]]) -> None:
        for change in changes:
            self.on_change(change)
