"""The kubelet that the gate and a kubelet port play: it reads one request of an API server, and asks the host's one.

    TLS stream ─► head ─► translate(node, method, target) ─► HostPath
                                                               ├─ log            Transport.exchange ─► chunks
                                                               └─ exec, attach,  Transport.upgrade  ─► splice
                                                                  portforward

The host's API server decides with the rights of the transport's credentials. Of the request, only the target and the
headers of the upgrade pass, the target in translation. Each connection serves one request.

The host is the cluster in which the pods run, and its clients are the API servers that show these pods.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import msgspec

from tenantry.api.errors import ApiError, ConfigError, Unauthorized
from tenantry.engine.tasks import in_background
from tenantry.hosting import heads
from tenantry.hosting.destinations import HostPath
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.tunnel import ByteStream, abort, end, read_head, secured, splice
from tenantry.kube.transport import HttpRequest, Transport, Upgraded

CONNECT_SECONDS = 10.0
FIRST_ERROR = 400
REQUEST_HEAD_BYTES = 64 * 1024

log = logging.getLogger(__name__)

Translate = Callable[[str, str, str], HostPath | None]
"""Returns the request to the host for (node, method, target); None for one that is not admitted."""


class _ClientLeft(Exception):
    """The client closed its connection."""


class KubeletInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What it needs to play kubelets.

    Args:
        tls: The serving certificate. It must require client certificates, and trust only the authority of the API
            server that asks. It must not offer HTTP/2.
        translate: The rule for targets, without I/O; `kubeletpaths.translate` with a `locate`.
        transport: Speaks to the host's API server; open, and not compressed.
        clients: The common names of clients that are served; None if the authority signs for no other client.

    Raises:
        ConfigError: Client certificates are not required.
    """

    tls: ssl.SSLContext
    translate: Translate
    transport: Transport
    clients: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Check the context."""
        if self.tls.verify_mode is not ssl.CERT_REQUIRED:
            raise ConfigError("the TLS context of a kubelet must require client certificates (ssl.CERT_REQUIRED)")


async def serve(inputs: KubeletInputs, node: str, stream: ByteStream, *, seconds: float) -> None:
    """Serve one connection to its end, inside TLS, and close it.

    Args:
        inputs: What it needs.
        node: The node whose kubelet is played.
        stream: The connection, of which no byte of the handshake was read.
        seconds: The time for the handshake, and for the head of the request.

    Raises:
        ApiError: The body of the host's answer broke off.
        OSError: A connection broke, or the client has no certificate of the authority.
    """
    try:
        inner = await secured(stream, inputs.tls, seconds=seconds, limit_bytes=REQUEST_HEAD_BYTES)
    except BaseException:
        # The handshake has taken the transport over, and nothing reports its end to this stream any more.
        abort(stream)
        raise
    try:
        await respond(inputs, node, inner, seconds=seconds)
    finally:
        abort(stream)


async def respond(inputs: KubeletInputs, node: str, stream: ByteStream, *, seconds: float) -> None:
    """Serve one connection to its end, after the handshake, and close it; arguments and errors as `serve`."""
    try:
        await answer(inputs, node, stream, head_seconds=seconds)
    except HttpRefusal as refusal:
        stream.writer.write(refusal.response())
    except BaseException:
        abort(stream)
        raise
    finally:
        await end(stream)


def _admit(clients: frozenset[str] | None, stream: ByteStream) -> None:
    """Check the name of the client.

    Raises:
        HttpRefusal: It is not served.
    """
    if clients is not None and not clients & _common_names(stream.writer.get_extra_info("peercert")):
        raise HttpRefusal(403, "a client certificate of the API server is needed here")


def _common_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the common name of a client's certificate; nothing if it has several, which readers would choose from."""
    subject: Sequence[Sequence[tuple[str, str]]] = (certificate or {}).get("subject", ())
    names = [value for attributes in subject for name, value in attributes if name == "commonName"]
    return frozenset(names) if len(names) == 1 else frozenset()


async def answer(inputs: KubeletInputs, node: str, stream: ByteStream, *, head_seconds: float) -> None:
    """Serve the one request of a connection; the caller writes refusals and closes the stream.

    Raises:
        HttpRefusal: The request is malformed or not admitted, or the host's API server refuses it.
        ApiError: The body of the host's answer broke off.
        OSError: A connection broke.
    """
    head = heads.parse(await read_head(stream, head_seconds))
    # After the head: a client whose write fails does not read the response.
    _admit(inputs.clients, stream)
    found = inputs.translate(node, head.method, head.target)
    if found is None:
        raise HttpRefusal(404, f"node {node} serves logs, exec, attach and port-forward of its pods only")
    headers = head.upgrade_headers()
    if found.is_upgrade and not headers:
        raise HttpRefusal(400, "the request must be an upgrade to SPDY/3.1 or websocket")
    if found.is_upgrade:
        upgraded = await _upgraded(inputs.transport, head.method, found, headers)
        upstream = ByteStream(upgraded.reader, upgraded.writer)
        own = [("Connection", "Upgrade"), *heads.switching(list(upgraded.headers.items()))]
        stream.writer.write(heads.response_head(101, "Switching Protocols", own))
        await splice(stream, upstream)
        return
    # A log that is followed may be silent for hours, so that only the client's end shows that it has left.
    with suppress(_ClientLeft):
        async with in_background(_watch(stream.reader)):
            await _copy(inputs.transport, found, stream.writer)


async def _upgraded(transport: Transport, method: str, found: HostPath, headers: list[tuple[str, str]]) -> Upgraded:
    try:
        return await transport.upgrade(method, found.path, query=found.query, headers=headers)
    except (ApiError, ConfigError) as error:
        raise _refusal(error) from error


async def _copy(transport: Transport, found: HostPath, writer: asyncio.StreamWriter) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    async with AsyncExitStack() as stack:
        try:
            asked = HttpRequest("GET", found.path, found.query, timeout=timeout)
            response = await stack.enter_async_context(transport.exchange(asked))
        except ApiError as error:
            raise _refusal(error) from error
        own = [
            ("Content-Type", response.headers.get("Content-Type", "text/plain")),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
        ]
        writer.write(heads.response_head(200, "OK", own))
        # An error after this head cannot become a response: without the last chunk, the client sees the loss.
        async for chunk in response.content.iter_any():
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")


async def _watch(reader: asyncio.StreamReader) -> None:
    # A second request on the connection is not served, and ends the first.
    await reader.read(1)
    raise _ClientLeft


def _refusal(error: ApiError | ConfigError) -> HttpRefusal:
    """Return what the client reads of an error."""
    status = error.status if isinstance(error, ApiError) else 0
    if status < FIRST_ERROR or isinstance(error, Unauthorized):
        # The texts of these errors name addresses and files of this machine.
        log.warning("the host's API server cannot be asked", extra={"problem": str(error)})
        return HttpRefusal(502, "the host's API server is not available")
    return HttpRefusal(status, str(error))
