"""A machine from outside, as a program: it joins with a token as a kubelet does, and answers through its tunnel."""

from __future__ import annotations

import asyncio
import base64
import secrets
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from tenantry.api.errors import TenantryError
from tenantry.api.model import Json
from tenantry.api.signing import CLIENT, SERVING, SigningRequest
from tenantry.hosting import frames, tunnelapi
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tunnel import ByteStream
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport
from testkit.api import Api, until
from testkit.nodecsrs import CLIENT_USAGES, SERVING_USAGES, csr

REQUESTS = SigningRequest.resource


def _key() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    return key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def decided(api: Api, name: str, text: str, signer: str, usages: tuple[str, ...]) -> tuple[str, bytes]:
    """Request a certificate; return the decision, and the certificate if it is granted."""
    await api.create(
        REQUESTS,
        {"metadata": {"name": name}, "spec": {"request": text, "signerName": signer, "usages": [*usages]}},
    )

    async def so() -> tuple[str, bytes] | None:
        status: Json = (await api.get(REQUESTS, name)).get("status") or {}
        conditions: list[Json] = status.get("conditions") or []
        if any(each["type"] == "Denied" for each in conditions):
            return "Denied", b""
        return ("Approved", base64.b64decode(status["certificate"])) if status.get("certificate") else None

    return await until(so, f"the request {name!r} is decided")


class OutsideMachine:
    """A machine that has joined.

    Args:
        node: The name of its node.
        connection: The API server, as this node.
        address: Its address.
    """

    def __init__(self, node: str, connection: Connection, address: str) -> None:
        self.node = node
        self.connection = connection
        self.address = address
        self.dialled: list[tuple[str, int]] = []
        """What the other end of the tunnel has asked for."""

    @classmethod
    async def join(cls, token: Connection, node: str, address: str) -> OutsideMachine:
        """Return the machine with the certificate that its token is worth.

        Args:
            token: The API server, with the token.
            node: The name of its node.
            address: Its address.
        """
        key, pem = _key()
        async with Client(token) as client:
            text = csr(f"system:node:{node}", "system:nodes", key=key)
            verdict, certificate = await decided(Api(client), f"first-{node}", text, CLIENT, CLIENT_USAGES)
        assert verdict == "Approved"
        return cls(node, replace(token, token="", certificate=certificate, key=pem), address)

    async def serving(self, folder: Path, address: str) -> ssl.SSLContext | None:
        """Request the certificate of its kubelet for an address; None if it is denied."""
        key, pem = _key()
        async with Client(self.connection) as client:
            text = csr(f"system:node:{self.node}", "system:nodes", key=key, names=[address])
            name = f"serving-{self.node}-{secrets.token_hex(3)}"
            verdict, certificate = await decided(Api(client), name, text, SERVING, SERVING_USAGES)
        if verdict != "Approved":
            return None
        file = folder / "kubelet.pem"
        file.write_bytes(certificate + pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    @asynccontextmanager
    async def tunnel(self, port: int, node: str = "") -> AsyncGenerator[asyncio.Task[None]]:
        """Open its tunnel, and connect streams to its kubelet to a port of loopback; yield what ends with the tunnel.

        Args:
            port: The port.
            node: The node whose tunnel it asks for; its own without.

        Raises:
            ApiError: The API server refuses.
        """
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}

        async def dial(address: str, to: int) -> ByteStream:
            self.dialled.append((address, to))
            return ByteStream(*await asyncio.open_connection("127.0.0.1", port))

        async with Transport(self.connection, max_connections=1) as transport:
            upgraded = await transport.upgrade("GET", tunnelapi.path_of(node or self.node), headers=asked)
            assert upgraded.headers["sec-websocket-accept"] == frames.accept_key(key)
            mux = StreamMux(ByteStream(upgraded.reader, upgraded.writer), is_client=True, dial=dial)

            async def run() -> None:
                with suppress(TenantryError, OSError, EOFError):
                    await mux.run()

            running = asyncio.create_task(run())
            try:
                yield running
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
                upgraded.writer.close()


@asynccontextmanager
async def kubelet(machine: OutsideMachine, folder: Path) -> AsyncGenerator[int]:
    """Serve as the kubelet of a machine on loopback, and return the port."""
    context = await machine.serving(folder, machine.address)
    assert context is not None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nthrough")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
