"""Detects when a component is ready: by systemd's notification protocol, and by health endpoints."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from pathlib import Path
from typing import Self

_HOST = "127.0.0.1"
_PROBE_SECONDS = 5.0
"""A component that hangs never answers; one on a busy machine may need seconds."""
_FIRST_PAUSE_SECONDS = 0.01
_LAST_PAUSE_SECONDS = 0.1


class Notification:
    """A socket to which a child writes READY=1.

    Source: sd_notify(3). The socket's name is abstract: a path could be longer than the 107 bytes that fit.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        name = f"tenantry-{os.getpid()}-{secrets.token_hex(8)}"
        self._socket.bind(f"\0{name}")
        self.environment = {"NOTIFY_SOCKET": f"@{name}"}

    def __enter__(self) -> Self:
        """Return itself: the socket is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    async def wait(self) -> None:
        """Wait until the child is ready."""
        loop = asyncio.get_running_loop()
        while b"READY=1" not in await loop.sock_recv(self._socket, 4096):
            pass


def tell_ready() -> None:
    """Report to the supervisor, which started this process, that it is ready; sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"READY=1", name.replace("@", "\0", 1))


def trust(authority: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts an authority of the components."""
    return ssl.create_default_context(cafile=authority)


async def wait_healthy(port: int, path: str, tls: ssl.SSLContext | None) -> None:
    """Wait until a component's health endpoint answers 200; the caller notices if its process ends.

    Args:
        port: The port on 127.0.0.1.
        path: The path of the endpoint.
        tls: The context to verify its certificate with; None for plain HTTP.
    """
    pause = _FIRST_PAUSE_SECONDS
    # Kubernetes' components do not announce that their start-up hooks have run: polling is the only way.
    while not await answers(port, path, tls):
        await asyncio.sleep(pause)
        pause = min(pause * 1.3, _LAST_PAUSE_SECONDS)


async def answers(port: int, path: str, tls: ssl.SSLContext | None) -> bool:
    """Return whether a component's health endpoint answers 200; see `wait_healthy` for the arguments."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(_HOST, port, ssl=tls)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {_HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, ssl.SSLError, TimeoutError):
        return False
