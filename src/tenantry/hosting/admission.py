"""The admission step: a hosted API server gets leave from this process before it stores an object.

    kube-apiserver ──Unix socket──► AdmissionRequest ─► answer(request) ─► AdmissionAnswer
                                                                             ├─ object   is stored
                                                                             ├─ refusal  is what the client gets
                                                                             └─ warnings, which the client gets, too

The API server asks about the requests of `HostedPlane.admission`, before its mutating webhooks. While this process does
not answer, it refuses them. The server here holds no rule: `answer` is an argument, under these conditions:

- The object has not been validated yet, and later steps may still refuse it: an answer promises nothing.
- An object may come again: after a conflict, after a webhook changed it, or because a client tried again.
- A webhook may change the object after the answer. Only the stored object is certain.

Source: Kubernetes, "Admission Control in Kubernetes"; go/hosted/internal/admission.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import msgspec
from aiohttp import web

from tenantry.api.errors import ApiError
from tenantry.api.model import Json
from tenantry.hosting.listeners import listener
from tenantry.hosting.plane import AdmissionOperation

BODY_BYTES = 2 * 2**20
RETRY_SECONDS = 2
_CLOSING_SECONDS = 0.1
"""How long requests may go on at the end of the step; aiohttp takes 0 for no limit."""

log = logging.getLogger(__name__)


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a hosted API server that has passed its authorization.

    Args:
        operation: What the request does.
        group: The API group; "" for the core group.
        version: The API version, which is that of the objects.
        resource: The plural, as in "services".
        namespace: The namespace; "" for cluster-scoped resources.
        name: The name, also if the API server has generated it.
        user: The name of the user.
        is_dry_run: Nothing is stored, so that an answer must have no effects.
        object: The object to store.
        old: The stored object of an update.
    """

    operation: AdmissionOperation
    group: str
    version: str
    resource: str
    namespace: str
    name: str
    user: str
    is_dry_run: bool = msgspec.field(name="dryRun")
    object: Json
    old: Json | None = msgspec.field(name="oldObject", default=None)


class AdmissionRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an object is not stored (Kubernetes: "API conventions", response status kind).

    Args:
        code: The HTTP status, from 400 to 599.
        reason: As in "Forbidden".
        message: What the client shows.
        retry_after_seconds: When the client may try again; 0 for no such hint.
    """

    code: int
    reason: str
    message: str
    retry_after_seconds: int = 0


class AdmissionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: one of both.

    Args:
        object: What the API server shall store; kind, name, namespace, uid and resourceVersion must be the request's.
        refusal: Why it stores nothing.

    Raises:
        ValueError: There are both, or neither.
    """

    object: Json | None = None
    refusal: AdmissionRefusal | None = None

    def __post_init__(self) -> None:
        """Check that there is one."""
        if (self.object is None) == (self.refusal is None):
            raise ValueError("an answer must have an object or a refusal")


class AdmissionAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that is served anyway; see `AdmissionRule.is_advice`.

    Args:
        warnings: What the client shows; of one line each.
    """

    warnings: tuple[str, ...] = ()


AnswerAdmission = Callable[[AdmissionRequest], Awaitable[AdmissionAnswer | AdmissionAdvice]]


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one admission step.

    Args:
        open_connections: Connections at one time, which have a request each; the API server asks 32 times at once.
        answer_seconds: The time for an answer; the API server waits for 10 seconds.
    """

    open_connections: int = 40
    answer_seconds: float = 9.0


class AdmissionServer:
    """The admission step of one hosted API server.

    Args:
        path: The Unix socket.
        answer: Decides about a request. An ApiError becomes a refusal in its words.
        limits: The limits.
    """

    def __init__(self, path: Path, answer: AnswerAdmission, limits: AdmissionLimits | None = None) -> None:
        self._path = path
        self._answer = answer
        self._limits = limits or AdmissionLimits()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        """Listen while the context is open; its end ends all requests.

        Raises:
            OSError: The socket cannot be made.
        """
        loop = asyncio.get_running_loop()
        http = web.Server(self._handle, access_log=None)

        def accept() -> asyncio.Protocol:
            return http() if len(http.connections) < self._limits.open_connections else _Closing()

        with listener(self._path) as bound:
            server = await loop.create_unix_server(accept, sock=bound)
            try:
                yield
            finally:
                server.close()
                await http.shutdown(_CLOSING_SECONDS)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: The socket cannot be made.
        """
        async with self.serve():
            await asyncio.get_running_loop().create_future()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        length = request.content_length
        if request.method != "POST" or length is None or "Content-Encoding" in request.headers:
            return web.Response(status=HTTPStatus.BAD_REQUEST)
        if length > BODY_BYTES:
            return web.Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                try:
                    body = await request.content.read()
                except OSError:
                    # The client has ended.
                    return web.Response(status=HTTPStatus.BAD_REQUEST)
                found = await self._decide(msgspec.json.decode(body, type=AdmissionRequest))
        except msgspec.MsgspecError:
            # The other end is not of this version.
            log.exception("a request to the admission step cannot be read")
            return web.Response(status=HTTPStatus.BAD_REQUEST)
        except TimeoutError:
            found = _unavailable()
        return web.Response(body=_encoded(found), content_type="application/json")

    async def _decide(self, request: AdmissionRequest) -> AdmissionAnswer | AdmissionAdvice:
        """Return the answer; only cancellation and time-outs leave this method."""
        try:
            return await self._answer(request)
        except ApiError as error:
            return _refused(error)
        except TimeoutError:
            raise
        except Exception:  # a bug that one object triggers must not end the step for all others
            log.exception("the admission step has failed", extra={"resource": request.resource})
            message = "the admission step of the cluster that hosts this control plane has failed"
            return AdmissionAnswer(refusal=AdmissionRefusal(code=500, reason="InternalError", message=message))


class _Closing(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _unavailable() -> AdmissionAnswer:
    message = "the cluster that hosts this control plane does not answer: try again"
    refusal = AdmissionRefusal(
        code=503, reason="ServiceUnavailable", message=message, retry_after_seconds=RETRY_SECONDS
    )
    return AdmissionAnswer(refusal=refusal)


def _refused(error: ApiError) -> AdmissionAnswer:
    """Return the refusal for an error of a request to the host.

    No response, and rejected credentials, which are not the client's, are no answers to the client's request. Errors of
    the host's server name its webhooks and their addresses.
    """
    is_about_the_request = HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_about_the_request or error.status == HTTPStatus.UNAUTHORIZED:
        log.warning("the host has not answered the admission step", extra={"problem": str(error)})
        return _unavailable()
    refusal = AdmissionRefusal(
        code=error.status,
        reason=error.reason,
        message=str(error),
        retry_after_seconds=math.ceil(error.retry_after_seconds or 0),
    )
    return AdmissionAnswer(refusal=refusal)


def _encoded(found: AdmissionAnswer | AdmissionAdvice) -> bytes:
    if isinstance(found, AdmissionAdvice):
        return msgspec.json.encode({"warnings": found.warnings})
    refusal = found.refusal
    if refusal is None:
        return msgspec.json.encode({"object": found.object})
    status: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": refusal.code,
        "reason": refusal.reason,
        "message": refusal.message,
    }
    if refusal.retry_after_seconds:
        status["details"] = {"retryAfterSeconds": refusal.retry_after_seconds}
    return msgspec.json.encode({"status": status})
