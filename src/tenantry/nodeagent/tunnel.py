"""The node's end of the tunnel by which the API server of its cluster reaches it without a route.

    kubeconfig of the kubelet ─► API server, as system:node:NAME ─► 101 ─► streams ─► kubelet, pods of this node

The agent needs one way out, to the API server, and no port of its machine is open for it. It connects streams to the
kubelet at the addresses of this node and to pods in the range of this node, and to nothing else, whatever it is asked:
the other end must not reach the network of the machine through it.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import secrets
from pathlib import Path

import msgspec

from tenantry.api.errors import TenantryError, Unreachable
from tenantry.engine.agent import until_told_to_stop
from tenantry.hosting import frames, tunnelapi
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tunnel import CHUNK_BYTES, ByteStream, abort
from tenantry.kube import kubeconfig
from tenantry.kube.transport import Transport
from tenantry.world.addresses import Network

KUBELET_PORT = 10250

FIRST_PAUSE_SECONDS = 0.5
LAST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A tunnel that was open for so long has worked: the next pause is the first one again."""

log = logging.getLogger(__name__)


class TunnelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the agent.

    Args:
        kubeconfig: That of the kubelet, which is read again for each tunnel: its certificate is renewed.
        node: The name of the node.
        addresses: Of the node.
        pods: The range of its pods.
    """

    kubeconfig: Path
    node: str
    addresses: tuple[str, ...]
    pods: Network


async def serve(options: TunnelOptions) -> None:
    """Keep the tunnel open until SIGTERM."""
    await until_told_to_stop(_keep(options))


def admits(options: TunnelOptions, address: str, port: int) -> bool:
    """Return whether a stream may be connected to a port of an IP address."""
    if address in options.addresses:
        return port == KUBELET_PORT
    return ipaddress.ip_address(address) in options.pods


async def _keep(options: TunnelOptions) -> None:
    pause, loop = FIRST_PAUSE_SECONDS, asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await open_once(options)
        except (TenantryError, OSError, EOFError) as error:
            log.warning("the tunnel is not open", extra={"node": options.node, "problem": str(error)})
        if loop.time() - began > STEADY_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        # Nodes of a control plane that was away do not come back all at once.
        await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
        pause = min(2 * pause, LAST_PAUSE_SECONDS)


async def open_once(options: TunnelOptions) -> None:
    """Open the tunnel, and serve it until it ends.

    Raises:
        TenantryError: The API server refuses it or cannot be reached, or the gate breaks the protocol.
        OSError: The connection broke.
        EOFError: The gate has closed it.
    """
    connection = kubeconfig.load([options.kubeconfig])
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    asked = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}

    async def dial(address: str, port: int) -> ByteStream:
        if not admits(options, address, port):
            log.warning("a stream to another place is refused", extra={"address": address, "port": port})
            raise ConnectionRefusedError(f"{address}:{port} is neither the kubelet nor a pod of this node")
        return ByteStream(*await asyncio.open_connection(address, port, limit=CHUNK_BYTES))

    async with Transport(connection, max_connections=1) as transport:
        upgraded = await transport.upgrade("GET", tunnelapi.path_of(options.node), headers=asked)
        stream = ByteStream(upgraded.reader, upgraded.writer)
        try:
            if upgraded.headers.get("sec-websocket-accept") != frames.accept_key(key):
                raise Unreachable(f"{connection.server} does not lead to the tunnels of nodes")
            log.info("the tunnel is open", extra={"node": options.node})
            await StreamMux(stream, is_client=True, dial=dial).run()
        finally:
            abort(stream)
