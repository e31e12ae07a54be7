"""API groups of a hosted API server that this process answers: reads only.

    kube-apiserver ──Unix socket──► GET /apis/GROUP/VERSION/… ─► ForwardedRead ─► answer(read) ─► an object, or a list

The API server has authorized the request, and passes neither the user nor a header on: the answer is the same for all
users. The server here holds no rule: `answer` is an argument. Users inside can ask as often as they like, so that the
rate is bounded here, and answers should be cheap.

Source: Kubernetes, "API concepts"; go/hosted/internal/forwarded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, unquote

import msgspec
from aiohttp import web

from tenantry.api.errors import ApiError
from tenantry.api.model import Json
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.hosting.listeners import listener
from tenantry.hosting.plane import ForwardedGroup

_CLOSING_SECONDS = 0.1
"""How long requests may go on at the end; aiohttp takes 0 for no limit."""

_MOST_QUERY = 4096
"""The length of a query that is read; selectors of users may be long."""

log = logging.getLogger(__name__)


class ForwardedRead(msgspec.Struct, frozen=True, kw_only=True):
    """A read of an API group.

    Args:
        resource: One of the group's.
        namespace: The namespace; "" for all of them, and for cluster-scoped resources.
        name: The name; "" for a list.
        label_selector: As the client wrote it; "" for none.
        field_selector: As the client wrote it; "" for none.
    """

    resource: str
    namespace: str = ""
    name: str = ""
    label_selector: str = ""
    field_selector: str = ""


AnswerRead = Callable[[ForwardedRead], Awaitable[Json]]


class ForwardingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one API group.

    Args:
        reads_per_second: The sustained rate, which is also the largest burst.
        open_connections: Connections at one time, which have a request each; the API server asks 8 times at once.
        answer_seconds: The time for an answer; the API server waits for 10 seconds.
    """

    reads_per_second: int = 20
    open_connections: int = 16
    answer_seconds: float = 9.0


def read_of(group: ForwardedGroup, target: str) -> ForwardedRead | None:
    """Return the read that a request target asks for; None for one that the group does not have.

    Args:
        group: The group.
        target: As it stands in the request line, escaped.
    """
    path, _, query = target.partition("?")
    root = f"/apis/{group.group}/{group.version}/"
    if not path.startswith(root) or len(query) > _MOST_QUERY:
        return None
    parts = [unquote(each) for each in path.removeprefix(root).split("/")]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:  # noqa: PLR2004 - a resource follows the namespace
        namespace, parts = parts[1], parts[2:]
    known = next((each for each in group.resources if each.name == parts[0]), None)
    is_whole = 0 < len(parts) <= 2 and all(parts)  # noqa: PLR2004 - a resource, and a name
    if known is None or not is_whole or (bool(namespace) and not known.namespaced):
        return None
    name = parts[1] if len(parts) > 1 else ""
    if name and known.namespaced and not namespace:
        return None
    asked = parse_qs(query)
    return ForwardedRead(
        resource=known.name,
        namespace=namespace,
        name=name,
        label_selector=asked.get("labelSelector", [""])[0],
        field_selector=asked.get("fieldSelector", [""])[0],
    )


class ForwardingServer:
    """Answers one API group of one hosted API server.

    Args:
        path: The Unix socket.
        group: The group.
        answer: Returns an object or a list. An ApiError becomes a Status in its words.
        limits: The limits.
    """

    def __init__(
        self, path: Path, group: ForwardedGroup, answer: AnswerRead, limits: ForwardingLimits | None = None
    ) -> None:
        self._path = path
        self._group = group
        self._answer = answer
        self._limits = limits or ForwardingLimits()
        self._bucket: TokenBucket | None = None

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        """Listen while the context is open; its end ends all requests.

        Raises:
            OSError: The socket cannot be made.
        """
        loop = asyncio.get_running_loop()
        self._bucket = TokenBucket.per_second(self._limits.reads_per_second)
        http = web.Server(self._handle, access_log=None)

        def accept() -> asyncio.Protocol:
            return http() if len(http.connections) < self._limits.open_connections else _ClosingProtocol()

        with listener(self._path) as bound:
            server = await loop.create_unix_server(accept, sock=bound)
            try:
                yield
            finally:
                server.close()
                await http.shutdown(_CLOSING_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            return web.Response(status=HTTPStatus.METHOD_NOT_ALLOWED)
        if self._bucket is None or not self._bucket.try_take(asyncio.get_running_loop().time()):
            return _status(HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "too many requests: try again", 1)
        read = read_of(self._group, request.raw_path)
        if read is None:
            return _status(HTTPStatus.NOT_FOUND, "NotFound", f"{self._group.group} has no such resource here")
        return await self._answered(read)

    async def _answered(self, read: ForwardedRead) -> web.Response:
        """Return the response to a read; only cancellation leaves this method."""
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                found = await self._answer(read)
        except ApiError as error:
            seconds = math.ceil(error.retry_after_seconds or 0)
            return _status(error.status or HTTPStatus.SERVICE_UNAVAILABLE, error.reason, str(error), seconds)
        except TimeoutError:
            message = "the cluster that hosts this control plane does not answer: try again"
            return _status(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        except Exception:  # a bug that one request triggers must not end all others
            log.exception("a read of an API group has failed", extra={"resource": read.resource})
            message = "the cluster that hosts this control plane has failed"
            return _status(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")


class _ClosingProtocol(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _status(code: int, reason: str, message: str, retry_after_seconds: int = 0) -> web.Response:
    """Return a Status of the failure of a request (Kubernetes: "API conventions", response status kind)."""
    found: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    if retry_after_seconds:
        found["details"] = {"retryAfterSeconds": retry_after_seconds}
    return web.Response(status=code, body=msgspec.json.encode(found), content_type="application/json")
