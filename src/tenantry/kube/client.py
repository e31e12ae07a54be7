"""Typed requests to one API server: objects in and out, over a `Transport`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from tenantry.api.errors import ApiError, TooLarge, TooManyRequests
from tenantry.api.marks import CLI_FIELD_MANAGER
from tenantry.api.model import KubernetesObject, Resource
from tenantry.kube import wire
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import JSON, TIMEOUT, Exchange, HttpRequest, Observer, Transport

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MAX_RETRY_AFTER_SECONDS = 30.0
"""A longer Retry-After is cut to this, so that one header does not stop a caller for minutes."""

ATTEMPTS = 5
PAGE_SIZE = 500
"""The page size of client-go."""

_SMALLER = 8


class _CountMeta(msgspec.Struct, frozen=True, rename="camel"):
    remaining_item_count: int = 0


class _Count(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...]
    metadata: _CountMeta


class ApiAnswer(msgspec.Struct, frozen=True):
    """The response to a request that succeeded.

    Args:
        body: Its body.
        warnings: Its Warning headers (RFC 7234, section 5.5).
    """

    body: bytes
    warnings: tuple[str, ...] = ()


class Client:
    """Requests to one API server.

    Args:
        connection: Where it is and who we are.
        field_manager: The name under which the server records what we write.
        max_connections: See `Transport`.
        observer: See `Transport`.
        compressed: See `Transport`.
    """

    accept = JSON

    def __init__(
        self,
        connection: Connection,
        *,
        field_manager: str = CLI_FIELD_MANAGER,
        max_connections: int = 64,
        observer: Observer | None = None,
        compressed: bool = False,
    ) -> None:
        self.field_manager = field_manager
        self.transport = Transport(
            connection,
            max_connections=max_connections,
            observer=observer,
            compressed=compressed,
            accept=self.accept,
        )
        self._decoders: dict[type, msgspec.json.Decoder[object]] = {}

    @property
    def connection(self) -> Connection:
        """Return where the API server is and who we are."""
        return self.transport.connection

    async def __aenter__(self) -> Self:
        """Open the transport; no request is sent yet."""
        await self.transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self.transport.__aexit__(kind, error, trace)

    # -- the one way out ------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> bytes:
        """Send a request and return the response's body; see `ask`.

        Raises:
            ApiError: The class says what happened; `Unreachable` if there was no response.
        """
        answer = await self.ask(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )
        return answer.body

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> ApiAnswer:
        """Send a request and return the response.

        A response with Retry-After is to a request that the server did not carry out: it is sent again, a few times.

        Args:
            method: As in "GET".
            path: The path, escaped.
            query: Parameters, not escaped.
            body: The bytes to send.
            content_type: Of the body.
            attempts: How often it is sent at most.
            seconds: The deadline of all attempts together, with the wait for a connection; None for the deadline of
                each attempt alone. Nothing is sent after it.

        Raises:
            ApiError: The class says what happened; `Unreachable` if there was no response.
        """
        asked = HttpRequest(method, path, query, body, content_type)
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await self._asked(asked, attempts, deadline.when())
        except TimeoutError as error:
            raise self.transport.unreachable(error) from error

    async def _asked(self, asked: HttpRequest, attempts: int, until: float | None) -> ApiAnswer:
        """Send a request until a response is final.

        Args:
            asked: The request.
            attempts: How often it is sent at most.
            until: The time of the event loop after which it is not sent again; None for no limit.
        """
        loop = asyncio.get_running_loop()
        for attempt in range(1, attempts + 1):
            try:
                async with self.transport.exchange(asked) as response:
                    body = await self.transport.read(response)
                    return ApiAnswer(body, tuple(response.headers.getall("Warning", ())))
            except ApiError as error:
                # Without Retry-After, the server may have carried out the write: only the caller can repeat it.
                again = isinstance(error, TooManyRequests) or error.status >= 500  # noqa: PLR2004
                if not again or error.retry_after_seconds is None or attempt == attempts:
                    raise
                pause = min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
                if until is not None and loop.time() + pause >= until:
                    raise  # the response that there was says more than a deadline that passes
                await asyncio.sleep(pause)
        raise AssertionError("the loop returns or raises")

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: aiohttp.ClientTimeout = TIMEOUT,
    ) -> Exchange:
        """Return one request and its response, for `async with`; a response that is no success raises."""
        return self.transport.exchange(HttpRequest(method, path, query, body, content_type, timeout))

    # -- objects --------------------------------------------------------------------------------

    def decode(self, kind: type[T], data: bytes | msgspec.Raw) -> T:
        """Return bytes as a typed object.

        Raises:
            ApiError: The server sent something that is not of that type.
        """
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        try:
            return decoder.decode(data)  # pyright: ignore[reportReturnType] - the decoder was made for this type
        except wire.UNREADABLE as error:
            raise ApiError(f"the API server's {kind.__name__} does not decode: {error}") from error

    async def get(self, kind: type[K], name: str, namespace: str = "") -> K:
        """Return one object.

        Raises:
            NotFound: There is none.
        """
        return self.decode(kind, await self.request("GET", wire.path(kind.resource, namespace, name)))

    async def pages(
        self, resource: Resource, item: type[T], *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[wire.Page[T]]:
        """Yield a collection page by page; a page that is too large for this client is read in smaller ones.

        Args:
            resource: What to list.
            item: The type of its items.
            namespace: "" for all.
            selectors: `labelSelector` and `fieldSelector`, as in the API.

        Raises:
            Gone: The list took so long that its snapshot is gone; begin again.
            TooLarge: One object is larger than what this client reads.
        """
        url, size, query = wire.path(resource, namespace), PAGE_SIZE, dict(selectors or {})
        page_type = wire.Page[item]
        while True:
            query["limit"] = str(size)
            try:
                page = self.decode(page_type, await self.request("GET", url, query=query))
            except TooLarge:
                if size == 1:
                    raise
                size = max(1, size // _SMALLER)
                continue
            yield page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def list(self, kind: type[K], *, namespace: str = "", selectors: Mapping[str, str] | None = None) -> list[K]:
        """Return all objects of a kind, in the server's order."""
        found: list[K] = []
        async for page in self.pages(kind.resource, kind, namespace=namespace, selectors=selectors):
            found += page.items
        return found

    async def items(
        self, resource: Resource, item: type[T], *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[T]:
        """Yield all objects of a kind, each decoded as a type; `msgspec.Raw` is its JSON."""
        async for page in self.pages(resource, item, namespace=namespace, selectors=selectors):
            for each in page.items:
                yield each

    async def count(self, resource: Resource, namespace: str = "") -> int:
        """Return the number of objects of a kind, and read at most one of them."""
        first = self.decode(_Count, await self.request("GET", wire.path(resource, namespace), query={"limit": "1"}))
        # The API server omits remainingItemCount from the last page.
        return len(first.items) + first.metadata.remaining_item_count

    async def create(self, value: KubernetesObject) -> bytes:
        """POST an object and return it as the server made it.

        Raises:
            AlreadyExists: An object of this name exists.
        """
        url = wire.path(value.resource, value.metadata.namespace)
        return await self.request("POST", url, query=self._manager, body=wire.encode(value))

    async def merge_patch(
        self, resource: Resource, namespace: str, name: str, patch: object, *, subresource: str = ""
    ) -> bytes:
        """Change an object by a JSON merge patch (RFC 7396) and return it as it is then.

        Raises:
            Conflict: The patch names a resourceVersion that is no longer the object's.
        """
        url = wire.path(resource, namespace, name, subresource)
        return await self.request(
            "PATCH", url, query=self._manager, body=wire.encode_json(patch), content_type=MERGE_PATCH
        )

    async def apply(
        self, resource: Resource, namespace: str, name: str, value: object, *, dry_run: bool = False
    ) -> bytes:
        """Server-side apply an object, taking over fields that others own (what `tenantry install` does).

        Args:
            resource: Its kind.
            namespace: "" for a cluster-scoped one.
            name: Its name.
            value: Its fields.
            dry_run: Only return what the API server would store.
        """
        query = {**self._manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        url = wire.path(resource, namespace, name)
        return await self.request("PATCH", url, query=query, body=wire.encode_json(value), content_type=APPLY_PATCH)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: int = 0,
        propagation: str = "Background",
    ) -> None:
        """Ask for an object's end; its finalizers may keep it for a while.

        Args:
            resource: Its kind.
            namespace: "" for a cluster-scoped one.
            name: Its name.
            uid: Delete only the object of this uid; "" for whichever has the name.
            version: Delete it only at this resourceVersion; 0 for any.
            propagation: What becomes of its dependents: Background, Foreground or Orphan.

        Raises:
            Conflict: The name now belongs to an object of another uid, or the object has changed.
        """
        options: dict[str, object] = {"propagationPolicy": propagation}
        preconditions = ({"uid": uid} if uid else {}) | ({"resourceVersion": str(version)} if version else {})
        if preconditions:
            options["preconditions"] = preconditions
        await self.request("DELETE", wire.path(resource, namespace, name), body=wire.encode_json(options))

    @property
    def _manager(self) -> dict[str, str]:
        return {"fieldManager": self.field_manager}
