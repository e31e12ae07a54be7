"""Requests to one API server over a pool of connections that are kept."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from tenantry import __version__
from tenantry.api.errors import ApiError, ConfigError, TooManyRequests, Unauthorized, Unreachable
from tenantry.api.model import KubernetesObject, Resource
from tenantry.kube import wire
from tenantry.kube.credentials import Credentials, expired_certificate
from tenantry.kube.kubeconfig import Connection

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

TIMEOUT = aiohttp.ClientTimeout(total=30.0)
MAX_RETRY_AFTER_SECONDS = 30.0
ATTEMPTS = 5
PAGE_SIZE = 500

Observer = Callable[[str, int, float], None]
"""Called after each request with its method, HTTP status (0: no answer) and seconds."""


class Client:
    """A connection pool to one API server.

    Args:
        connection: Where it is and who we are.
        field_manager: The name under which the server records what we write.
        max_connections: How many requests are under way at once; more wait for a connection.
        observer: Told of each request, for metrics.
        compressed: Ask for gzip, as client-go does. The bodies come as they are: for who only counts them.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        field_manager: str = "tenantry",
        max_connections: int = 64,
        observer: Observer | None = None,
        compressed: bool = False,
    ) -> None:
        self.connection = connection
        self.field_manager = field_manager
        self._credentials = Credentials(connection)
        self._max_connections = max_connections
        self._observer = observer
        self._encoding = "gzip" if compressed else "identity"
        self._session: aiohttp.ClientSession | None = None
        self._decoders: dict[type, msgspec.json.Decoder[object]] = {}

    async def __aenter__(self) -> Self:
        """Open the pool; no request is sent yet."""
        connector = aiohttp.TCPConnector(
            limit=self._max_connections, ssl=await self._credentials.tls(), keepalive_timeout=60.0
        )
        # No compression by default: on a list of thousands it costs the server more than the bytes do, and client-go's
        # default for loopback is the same.
        headers = [("User-Agent", f"tenantry/{__version__}"), ("Accept", JSON), ("Accept-Encoding", self._encoding)]
        if self.connection.impersonate:
            headers.append(("Impersonate-User", self.connection.impersonate))
            headers += [("Impersonate-Group", group) for group in self.connection.impersonate_groups]
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            auto_decompress=False,
            timeout=TIMEOUT,
            proxy=self.connection.proxy_url or None,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- the one way out ------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send a request and return the answer's body.

        An answer with Retry-After is a request that the server did not carry out: it is sent again, a few times.

        Raises:
            ApiError: The class tells what happened; `Unreachable` where there was no answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self.open(method, path, query=query, body=body, content_type=content_type) as response:
                    return await response.read()
            except ApiError as error:
                again = isinstance(error, TooManyRequests) or error.status >= 500  # noqa: PLR2004
                if not again or error.retry_after_seconds is None or attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
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
    ) -> _Exchange:
        """Return the exchange of one request and its answer, for `async with`; an answer that is no success raises."""
        return _Exchange(self, _Request(method, path, query, body, content_type, timeout))

    async def send(self, asked: _Request) -> aiohttp.ClientResponse:
        """Send one request; see `open`."""
        session = self._session
        if session is None:
            raise RuntimeError("the client is not open: use it in `async with`")
        query = f"?{urlencode(asked.query)}" if asked.query else ""
        url = URL(f"{self.connection.server}{asked.path}{query}", encoded=True)
        headers = {"Content-Type": asked.content_type} if asked.body is not None else {}
        try:
            token = await self._credentials.header()
        except ConfigError as error:
            # They were there when the client was opened: an exec plugin that fails now may work the next time.
            raise Unauthorized(str(error), status=401) from error
        if token:
            headers["Authorization"] = token
        began = time.perf_counter()
        status = 0
        try:
            response = await session.request(
                asked.method,
                url,
                data=asked.body,
                headers=headers,
                timeout=asked.timeout,
                server_hostname=self.connection.tls_server_name or None,
            )
            status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error
        finally:
            if self._observer is not None:
                self._observer(asked.method, status, time.perf_counter() - began)
            log.debug("asked", extra={"method": asked.method, "path": asked.path, "status": status})
        if status < 400:  # noqa: PLR2004
            return response
        async with response:
            raise self._refused(response, await response.read(), f"{asked.method} {asked.path}")

    def _refused(self, response: aiohttp.ClientResponse, body: bytes, what: str) -> ApiError:
        retry_after = response.headers.get("Retry-After", "")
        seconds = float(retry_after) if retry_after.isdigit() else None
        error = wire.error_from(response.status, body, what, seconds)
        if isinstance(error, Unauthorized):
            self._credentials.expire()
            expired = expired_certificate(self.connection)
            why = f"its client certificate expired at {expired}" if expired else "the API server does not know them"
            return Unauthorized(
                f"the credentials of {self.connection.source} are refused by {self.connection.server}: {why};"
                " get new ones, or name another kubeconfig with --kubeconfig",
                status=error.status,
                reason=error.reason,
            )
        return error

    def _unreachable(self, error: Exception) -> Unreachable:
        connection = self.connection
        if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
            why = f"its certificate does not verify ({error}); check certificate-authority"
        elif isinstance(error, TimeoutError):
            why = "no answer in time"
        else:
            why = str(error) or type(error).__name__
        return Unreachable(f"the API server {connection.server} of {connection.source} cannot be reached: {why}")

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
        except msgspec.MsgspecError as error:
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
        """Yield a collection page by page.

        Args:
            resource: What to list.
            item: The type of its items.
            namespace: "" for all.
            selectors: `labelSelector` and `fieldSelector`, as in the API.

        Raises:
            Gone: The list took so long that its snapshot is gone; begin again.
        """
        url, query = wire.path(resource, namespace), {**(selectors or {}), "limit": str(PAGE_SIZE)}
        page_type = wire.Page[item]
        while True:
            page = self.decode(page_type, await self.request("GET", url, query=query))
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

    async def create(self, value: KubernetesObject) -> bytes:
        """POST an object and return it as the server made it.

        Raises:
            AlreadyExists: An object of this name is there, whoever made it.
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

    async def strategic_patch(
        self, resource: Resource, namespace: str, name: str, patch: object, *, subresource: str = ""
    ) -> bytes:
        """Change an object of Kubernetes' own kinds by a patch that merges its lists by their keys.

        Source: Kubernetes, "Update API Objects in Place Using kubectl patch".
        """
        url = wire.path(resource, namespace, name, subresource)
        return await self.request(
            "PATCH", url, query=self._manager, body=wire.encode_json(patch), content_type=STRATEGIC_PATCH
        )

    async def apply(self, resource: Resource, namespace: str, name: str, value: object) -> bytes:
        """Server-side apply an object, taking over fields that others own (what `tenantry install` does)."""
        query = {**self._manager, "force": "true"}
        url = wire.path(resource, namespace, name)
        return await self.request("PATCH", url, query=query, body=wire.encode_json(value), content_type=APPLY_PATCH)

    async def replace(self, value: KubernetesObject, *, subresource: str = "") -> bytes:
        """PUT an object whose metadata names the resourceVersion that it replaces.

        Raises:
            Conflict: It is no longer at that resourceVersion.
        """
        url = wire.path(value.resource, value.metadata.namespace, value.metadata.name, subresource)
        return await self.request("PUT", url, query=self._manager, body=wire.encode(value))

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


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    timeout: aiohttp.ClientTimeout


class _Exchange:
    """One request under way: entered, it is the answer; left, the connection goes back to the pool."""

    def __init__(self, client: Client, asked: _Request) -> None:
        self._client = client
        self._asked = asked
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        self._response = await self._client.send(self._asked)
        return self._response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        response = self._response
        if response is not None:
            connection = response.connection
            if connection is not None and connection.transport is not None and not response.content.is_eof():
                # A stream that is left in the middle: TLS's farewell would outlive the client, and nobody waits for it.
                connection.transport.abort()
            response.release()
        if isinstance(error, aiohttp.ClientError | OSError | TimeoutError):
            raise Unreachable(
                f"the answer of {self._client.connection.server} broke off: {str(error) or type(error).__name__}"
            ) from error
