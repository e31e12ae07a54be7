"""The way to one API server: TLS, credentials, connections, byte streams. `kube.client` speaks of objects over it.

    Client ─► Transport ─► aiohttp's pool ──TLS──► API server         requests and watches
              Transport.upgrade ──TLS──► API server                   exec, attach, port-forward: bytes both ways

All of it runs in one event loop: a watch costs a connection and no thread. The TLS context, and everything else that a
kubeconfig names, is read anew after one of its files has changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from yarl import URL

from tenantry import __version__
from tenantry.api.errors import ApiError, ConfigError, Interrupted, TooLarge, Unauthorized, Unreachable
from tenantry.kube import streams, wire
from tenantry.kube.credentials import Credentials, expired_certificate
from tenantry.kube.kubeconfig import Connection

log = logging.getLogger(__name__)

JSON = "application/json"
TIMEOUT = aiohttp.ClientTimeout(total=30.0)
"""The deadline of every request except watches and uploads: a server that hangs must not hold a reconcile."""
ROTATION_SECONDS = 10.0
"""How often the files that credentials come from are looked at, at the most."""

UPGRADE_SECONDS = 30.0
_ERROR_BYTES = 2**20
HEAD_LIMIT_BYTES = 64 * 1024
"""How long the head of a response to an upgrade may be."""

SWITCHING_PROTOCOLS = 101
FIRST_ERROR = 400

Pairs = Mapping[str, str] | Sequence[tuple[str, str]]
"""Names and values; pairs for a name that occurs more than once."""

Observer = Callable[[str, int, float], None]
"""Called after each request with its method, HTTP status (0: no response) and seconds."""


class HttpRequest(NamedTuple):
    """One HTTP request.

    Args:
        method: As in "GET".
        path: The path, escaped.
        query: Parameters, not escaped; pairs if a name occurs more than once, as `command` of exec does.
        body: The bytes to send.
        content_type: Of the body.
        timeout: Its deadlines; a stream, as a watch is, has no total.
    """

    method: str
    path: str
    query: Pairs | None = None
    body: bytes | None = None
    content_type: str = JSON
    timeout: aiohttp.ClientTimeout = TIMEOUT

    @property
    def is_stream(self) -> bool:
        """Return whether the response has no end in sight."""
        return self.timeout.total is None

    @property
    def target(self) -> str:
        """Return the path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Upgraded(NamedTuple):
    """A connection that speaks another protocol from now on.

    Args:
        headers: Of the response, names in lower case: `upgrade` and `sec-websocket-protocol` say what was agreed on.
        reader: What the API server sends.
        writer: What is sent to it; close it in the end.
    """

    headers: Mapping[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Transport:
    """Connections to one API server, kept in a pool.

    Args:
        connection: Where it is and who we are.
        max_connections: How many requests are under way at once; more wait for a connection. Streams do not count: a
            watch would keep its place for ever, and the watches of many kinds would leave none for a write.
        observer: Told of each request, for metrics.
        compressed: Ask for gzip, as client-go does. Bodies are not decompressed: for callers that only count bytes.
        accept: The Accept header.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        max_connections: int = 64,
        observer: Observer | None = None,
        compressed: bool = False,
        accept: str = JSON,
    ) -> None:
        self.connection = connection
        self._max_bytes = connection.max_bytes
        self.credentials = Credentials(connection)
        self._max_connections = max_connections
        self._observer = observer
        # No compression by default: on a list of thousands it costs the server more than the bytes do, and client-go's
        # default for loopback is the same.
        self._encoding = "gzip" if compressed else "identity"
        self._accept = accept
        self._session: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | bool = False
        self._files: tuple[tuple[int, int, int], ...] = connection.fingerprint()
        self._look_at = 0.0

    async def __aenter__(self) -> Self:
        """Open the pool; no request is sent yet.

        Raises:
            ConfigError: The credentials do not load.
        """
        self._tls = await self.credentials.tls()
        self._look_at = time.monotonic() + ROTATION_SECONDS
        self._session, self._streams = (
            _pool(each, self.connection.make_socket) for each in (self._max_connections, _UNLIMITED)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        for pool in (self._session, self._streams):
            if pool is not None:
                await pool.close()
        self._session = self._streams = None

    # -- requests -------------------------------------------------------------------------------

    def exchange(self, asked: HttpRequest) -> Exchange:
        """Return one request and its response, for `async with`; a response that is no success raises `ApiError`."""
        return Exchange(self, asked)

    async def send(self, asked: HttpRequest) -> aiohttp.ClientResponse:
        """Send one request and return the response, whose body is still to be read.

        Raises:
            ApiError: The class says what happened; `Unreachable` if there was no response.
        """
        session = self._streams if asked.is_stream else self._session
        if session is None:
            raise RuntimeError("the transport is not open: use it in `async with`")
        headers = await self._headers()
        if asked.body is not None:
            headers.append(("Content-Type", asked.content_type))
        began = time.perf_counter()
        status = 0
        try:
            response = await session.request(
                asked.method,
                # Escaped already: yarl would escape it a second time.
                URL(self.connection.server + asked.target, encoded=True),
                data=asked.body,
                headers=headers,
                timeout=asked.timeout,
                ssl=self._tls,
                proxy=self.connection.proxy_url or None,
                server_hostname=self.connection.tls_server_name or None,
            )
            status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self.unreachable(error) from error
        finally:
            if self._observer is not None:
                self._observer(asked.method, status, time.perf_counter() - began)
            log.debug("asked", extra={"method": asked.method, "path": asked.path, "status": status})
        if status < FIRST_ERROR:
            return response
        async with response:
            retry_after = response.headers.get("Retry-After", "")
            # Retry-After may also be a date (RFC 9110, section 10.2.3); API servers send seconds.
            seconds = float(retry_after) if retry_after.isdigit() else None
            # The rest of a longer one does not matter.
            body = b"".join([part async for part in _parts(response, _ERROR_BYTES)])
            raise self._refused(status, body, f"{asked.method} {asked.path}", seconds)

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body of a response.

        Raises:
            TooLarge: It is longer than this transport reads.
        """
        if self._max_bytes is None:
            return await response.read()
        size, parts = 0, list[bytes]()
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._max_bytes:
                raise TooLarge(
                    f"the response of {self.connection.server} to {response.method} {response.url.path} is longer than"
                    f" {self._max_bytes} bytes"
                )
            parts.append(part)
        return b"".join(parts)

    async def _headers(self) -> list[tuple[str, str]]:
        """Return the headers of every request, with the credentials of the moment."""
        if time.monotonic() >= self._look_at:
            await self._rotate()
        connection = self.connection
        headers = [
            ("User-Agent", f"tenantry/{__version__}"),
            ("Accept", self._accept),
            ("Accept-Encoding", self._encoding),
        ]
        if connection.impersonate:
            headers.append(("Impersonate-User", connection.impersonate))
            headers += [("Impersonate-Group", group) for group in connection.impersonate_groups]
        try:
            token = await self.credentials.header()
        except ConfigError as error:
            # They were there when the transport was opened: an exec plugin that fails now may work the next time.
            raise Unauthorized(str(error), status=401) from error
        if token:
            headers.append(("Authorization", token))
        return headers

    async def _rotate(self) -> None:
        """Read the credentials anew if one of their files has changed; connections with the old ones run out."""
        self._look_at = time.monotonic() + ROTATION_SECONDS
        seen = self.connection.fingerprint()
        if seen == self._files:
            return
        try:
            await self.use(self.connection.reloaded())
        except ConfigError as error:
            # Half of a pair may be written already: what was good stays, and the next look finds both.
            log.warning("credentials have changed and do not load", extra={"error": str(error)})
            return
        log.info("credentials have changed", extra={"source": self.connection.source})
        self._files = seen

    async def use(self, connection: Connection) -> None:
        """Send requests from now on with the credentials of another connection to the same API server.

        Requests and streams that are under way go on. No later request uses a connection that was opened before: pools
        keep those of one TLS context apart.

        Raises:
            ConfigError: The credentials do not load; those of before stay.
        """
        credentials = Credentials(connection)
        tls = await credentials.tls()
        self.connection, self.credentials, self._tls = connection, credentials, tls

    def _refused(self, status: int, body: bytes, what: str, retry_after_seconds: float | None) -> ApiError:
        error = wire.error_from(status, body, what, retry_after_seconds)
        if isinstance(error, Unauthorized):
            self.credentials.expire()
            expired = expired_certificate(self.connection)
            why = f"its client certificate expired at {expired}" if expired else "the API server does not know them"
            return Unauthorized(
                f"the credentials of {self.connection.source} are refused by {self.connection.server}: {why};"
                " get new ones, or name another kubeconfig with --kubeconfig",
                status=error.status,
                reason=error.reason,
            )
        return error

    def unreachable(self, error: Exception) -> Unreachable:
        """Return what a failed connection means, with the address and what to check."""
        connection = self.connection
        return Unreachable(
            f"the API server {connection.server} of {connection.source} cannot be reached: {_cause(error)}"
        )

    # -- other protocols ------------------------------------------------------------------------

    async def upgrade(self, method: str, path: str, *, query: Pairs | None = None, headers: Pairs) -> Upgraded:
        """Ask the API server to switch to another protocol, and return the connection once it has.

        Args:
            method: GET for WebSockets, POST for SPDY.
            path: As in `/api/v1/namespaces/acme/pods/web/exec`.
            query: Its parameters.
            headers: `Upgrade` and what that protocol needs, as in `Sec-WebSocket-Key`; pairs if a name occurs more than
                once, as `X-Stream-Protocol-Version` does.

        Raises:
            ApiError: The API server refuses, with its own error.
            Unreachable: There is no connection, or no response in time.
            ConfigError: The kubeconfig names a proxy, through which only requests go.

        Source: RFC 9110, section 7.8.
        """
        if self.connection.proxy_url:
            raise ConfigError(
                f"{self.connection.source} names the proxy {self.connection.proxy_url}, which only requests use;"
                " exec, attach and port-forward need a direct connection"
            )
        address = urlsplit(self.connection.server)
        # The address may have a path of its own, as behind a gateway to many clusters.
        asked = HttpRequest(method, f"{address.path.rstrip('/')}{path}", query)
        given = headers.items() if isinstance(headers, Mapping) else headers
        # What a stream carries has no media type: the API server answers an upgrade that asks for JSON with 406.
        common = [("Accept", "*/*") if name == "Accept" else (name, value) for name, value in await self._headers()]
        own = [*common, ("Host", address.netloc), ("Connection", "Upgrade"), *given]
        lines = [f"{method} {asked.target} HTTP/1.1", *(f"{name}: {value}" for name, value in own)]
        tls = self._tls if address.scheme == "https" and isinstance(self._tls, ssl.SSLContext) else None
        try:
            async with asyncio.timeout(UPGRADE_SECONDS):
                host = address.hostname or ""
                reader, writer = await streams.connect(
                    host,
                    address.port or (443 if tls else 80),
                    tls,
                    name=self.connection.tls_server_name or host,
                    limit=HEAD_LIMIT_BYTES,
                    make_socket=self.connection.make_socket,
                )
                try:
                    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
                    return await self._switched(reader, writer, f"{method} {path}")
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise self.unreachable(error) from error

    async def _switched(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> Upgraded:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        parts = head[0].split(" ", 2)
        if len(parts) < 2 or not parts[1].isdigit():  # noqa: PLR2004 - a version and a status
            raise ApiError(f"{what}: the API server {self.connection.server} does not speak HTTP")
        status = int(parts[1])
        found = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        if status == SWITCHING_PROTOCOLS:
            return Upgraded(found, reader, writer)
        length = found.get("content-length", "")
        body = await reader.readexactly(min(int(length), HEAD_LIMIT_BYTES)) if length.isdigit() else b""
        raise self._refused(status, body, what, None)


_UNLIMITED = 0


def _pool(max_connections: int, make_socket: Callable[[], socket.socket] | None) -> aiohttp.ClientSession:
    """Return a pool of connections that does nothing of itself: no cookies, no decompression."""

    def made(_: object) -> socket.socket:
        return make_socket() if make_socket is not None else socket.socket()

    factory = None if make_socket is None else made
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=max_connections, keepalive_timeout=60.0, socket_factory=factory),
        auto_decompress=False,
        timeout=TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _cause(error: Exception) -> str:
    """Return why a connection failed, and what to check; aiohttp's own texts contain addresses of Python objects."""
    found: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        found = error.os_error
    match found:
        case ssl.SSLCertVerificationError():
            why = f"its certificate does not verify ({found.verify_message}); check certificate-authority"
        case ssl.SSLError():
            why = f"TLS fails ({found.reason}); check that its address is the one of a server with https"
        case TimeoutError():
            why = "no answer in time; check that it runs, and that no firewall is in between"
        case aiohttp.ServerDisconnectedError():
            why = "it closed the connection without an answer; check that its address is the one of an API server"
        case socket.gaierror():
            why = f"{found.strerror}; check the host name in its address"
        case OSError() if found.errno:
            # The texts of asyncio's errors repeat the address; the error number has a plain text.
            why = f"{os.strerror(found.errno)}; check that it runs, and its address"
        case _:
            why = str(found) or type(found).__name__
    return why


class Exchange:
    """One request under way: entered, it is the response; left, the connection goes back to the pool."""

    def __init__(self, transport: Transport, asked: HttpRequest) -> None:
        self._transport = transport
        self._asked = asked
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        """Send the request.

        Raises:
            ApiError: See `Transport.send`.
        """
        self._response = await self._transport.send(self._asked)
        return self._response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the connection back, or end it if the body was not read to its end."""
        response = self._response
        if response is not None:
            connection = response.connection
            if connection is not None and connection.transport is not None and not response.content.is_eof():
                # TLS's farewell on a stream that is left in the middle would outlive the transport, unawaited.
                connection.transport.abort()
            response.release()
        if isinstance(error, aiohttp.ClientError | OSError | TimeoutError):
            raise Interrupted(
                f"the answer of {self._transport.connection.server} broke off: {str(error) or type(error).__name__}"
            ) from error


async def _parts(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """Yield a body until it has so many bytes."""
    async for part in response.content.iter_any():
        yield part
        limit -= len(part)
        if limit <= 0:
            return
