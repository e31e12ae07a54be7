"""A kubelet port: the API server of one cluster reaches the pods of a node that run in another one.

    API server ──TLS, its kubelet client certificate──► port ─► kubelet.serve ─► translate ─► API server of the pods

The gate plays kubelets for a hosted API server, which has no network. This port is for an API server that dials the
address and the port which a Node reports. Both serve connections by the same `kubelet.serve`.

Anyone who reaches the port can take up places until the handshake is late, so rate and number of connections are
bounded, and a connection above a limit is closed at once: a response would need a handshake. Sockets are accepted here,
and not by a server of the event loop, which counts a connection only after its handshake.

Source: Kubernetes, "Kubelet authentication/authorization".
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from tenantry.api.errors import ApiError, ConfigError
from tenantry.engine.tasks import in_background
from tenantry.hosting import kubelet
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.kubelet import REQUEST_HEAD_BYTES, KubeletInputs
from tenantry.hosting.tunnel import CLOSING_SECONDS, ByteStream
from tenantry.kube.credentials import load_pair

_BACKLOG = 100
_PAUSE_SECONDS = 1.0

log = logging.getLogger(__name__)


def serving_context(certificate: bytes, key: bytes, client_ca: bytes) -> ssl.SSLContext:
    """Return a TLS context that requires client certificates.

    Args:
        certificate: The serving certificate, PEM.
        key: Its key, PEM.
        client_ca: The authority of clients, PEM; no other is trusted.

    Raises:
        ConfigError: They do not load.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=client_ca.decode())
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the authority of clients of the kubelet port does not load: {error}") from error
    load_pair(context, certificate, key, "the serving certificate of the kubelet port")
    return context


class KubeletServer:
    """The kubelet port of one node.

    Args:
        node: The name of the node, as the API server that asks knows it.
        inputs: What it needs; `clients` must name the API server's kubelet client, because the authority of a cluster
            signs for other clients, too.
        address: The IP address to listen on.
        port: The port; 0 for any.
        limits: The limits.

    Raises:
        ConfigError: The inputs admit every client of the authority.
    """

    def __init__(
        self,
        node: str,
        inputs: KubeletInputs,
        *,
        address: str,
        port: int = 0,
        limits: ConnectionLimits | None = None,
    ) -> None:
        if inputs.clients is None:
            raise ConfigError("a kubelet port must name the common names of its clients")
        self._node = node
        self._inputs = inputs
        self._place = address, port
        self._limits = limits or ConnectionLimits()
        self._connections = Connections(self._limits)

    @property
    def open_connections(self) -> int:
        """Return the number of connections."""
        return len(self._connections.open)

    def use(self, tls: ssl.SSLContext) -> None:
        """Use another TLS context for handshakes from now on; connections that are open go on.

        Raises:
            ConfigError: It does not require client certificates.
        """
        self._inputs = msgspec.structs.replace(self._inputs, tls=tls)

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[int]:
        """Listen while the context is open, and return the port; the end ends all connections at once.

        Raises:
            OSError: The address cannot be listened on.
        """
        family = socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET
        with socket.create_server(self._place, family=family, backlog=_BACKLOG) as listening:
            listening.setblocking(False)
            async with self._connections.running(), in_background(self._accept(listening)):
                yield listening.getsockname()[1]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Too many open files, most likely: as asyncio's servers, it goes on when some are closed.
                log.warning("no connection is accepted", extra={"problem": str(error)})
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._connections.begin(partial(self._serve, accepted)):
                accepted.close()

    async def _secured(self, accepted: socket.socket) -> ByteStream:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_HEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._inputs.tls,
                ssl_handshake_timeout=self._limits.head_seconds,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except BaseException:
            accepted.close()
            raise
        return ByteStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            stream = await self._secured(accepted)
            await kubelet.respond(self._inputs, self._node, stream, seconds=self._limits.head_seconds)
        except (asyncio.IncompleteReadError, ApiError, OSError) as error:
            # Streams break at any time, and anyone can try a handshake.
            log.debug("a connection broke", extra={"problem": type(error).__name__})
        except Exception:  # a bug that one request triggers must not end all other connections
            log.exception("a connection failed")
