"""A kubelet port: the API server of one cluster reaches the pods of a node that run in another one.

    API server ──TLS, its kubelet client certificate──► port ─► kubelet.serve ─► translate ─► API server of the pods

The gate plays kubelets for a hosted API server, which has no network. This port is for an API server that dials the
address and the port which a Node reports. Both serve connections by the same `kubelet.serve`.

Source: Kubernetes, "Kubelet authentication/authorization".
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from tenantry.api.errors import ApiError, ConfigError
from tenantry.hosting import kubelet
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.tlslistener import accepting, secured
from tenantry.hosting.unauthenticated import UnauthenticatedLimits
from tenantry.kube.credentials import load_pair

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


LIMITS = ConnectionLimits(
    connections_per_second=200, unauthenticated=UnauthenticatedLimits(per_source_per_second=50, most=100)
)
"""Other clients on the network keep no API server from the logs of pods: one has a source address of its own."""


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
        self._limits = limits or LIMITS
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
        async with accepting(self._place, self._connections, self._serve) as port:
            yield port

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            stream = await secured(accepted, self._inputs.tls, self._limits)
            # An authority of the cluster has signed the certificate of the client; `respond` checks its name.
            self._connections.authenticated()
            await kubelet.respond(self._inputs, self._node, stream, seconds=self._limits.head_seconds)
        except (asyncio.IncompleteReadError, ApiError, OSError) as error:
            # Streams break at any time, and anyone can try a handshake.
            log.debug("a connection broke", extra={"problem": type(error).__name__})
        except Exception:  # a bug that one request triggers must not end all other connections
            log.exception("a connection failed")
