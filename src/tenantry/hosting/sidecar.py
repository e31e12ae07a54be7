"""Connects a hosted control plane in a Pod to the sockets that this process serves for it.

    API server ─► gate.sock ─► sidecar ══ connection that was parked ══► SidecarTunnel ─► gate.sock ─► Gate

The Pod opens no connection. This process opens some to its sidecar (go/hosted-sidecar) for each socket, and parks them.
The sidecar gives one of them to each process that connects to the socket in the Pod, and says so with one byte. Both
ends prove who they are by certificates of an authority that this Pod alone has.

    activity.ask ─► activity.sock of this process ─► SidecarTunnel ══► sidecar ─► activity.sock of the API server
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tenantry.engine.sockets import short_path
from tenantry.hosting import plane
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.hosting.listeners import listener
from tenantry.hosting.tunnel import ByteStream, abort, splice

API_PORT = 6443
"""Where clients reach the API server of a Pod."""

TUNNEL_PORT = 6445
"""Where connections are parked."""

KEEPER_PORT = 6446
"""Where snapshots are requested; see `hostedpods.keeper`."""

INTERNAL_PORT = 6444
"""The port of the API server on 127.0.0.1 in its Pod."""

AUTHORITY, SERVER, CLIENT = "sidecar-ca", "sidecar", "sidecar-client"
"""The files with the authority of a Pod's tunnel, and with the certificates of its ends."""

FILES = {"ca.crt": f"{AUTHORITY}.crt", "tls.crt": f"{SERVER}.crt", "tls.key": f"{SERVER}.key"}
"""The files that a sidecar reads, and their names in the folder of the operator."""

SOCKETS = (plane.GATE, plane.ADMISSION, plane.FORWARDED)
"""The Unix sockets of a Pod that this process serves."""

PARKED = 8
"""The number of connections that wait at each socket; each that is used is replaced at once."""

_BEGIN = b"!"
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 5.0

log = logging.getLogger(__name__)


def leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of both ends of the tunnel of one Pod."""
    return {
        SERVER: LeafCertificate(ca=AUTHORITY, user=SERVER, use=CertificateUse.SERVER, names=(SERVER,)),
        CLIENT: LeafCertificate(ca=AUTHORITY, user=CLIENT),
    }


def context(folder: Path) -> ssl.SSLContext:
    """Return the context of connections to a sidecar, or to a keeper of snapshots.

    Args:
        folder: The one with the certificates of `leaves`.
    """
    found = ssl.create_default_context(cafile=folder / f"{AUTHORITY}.crt")
    found.load_cert_chain(folder / f"{CLIENT}.crt", folder / f"{CLIENT}.key")
    return found


def socket_name(socket_file: str) -> str:
    """Return the name by which the sidecar knows a socket."""
    return socket_file.removesuffix(".sock")


class SidecarTunnel:
    """The connections to the sidecar of one Pod.

    Args:
        address: The IP address of the Pod.
        context: Its authority, and the certificate of this end.
        sockets: The Unix sockets that this process serves, by their names in the Pod.
        port: The port of the tunnel.
        reached: Unix sockets of this process that lead to those of a process in the Pod, by their names there.
    """

    def __init__(
        self,
        address: str,
        context: ssl.SSLContext,
        sockets: Mapping[str, Path],
        port: int = TUNNEL_PORT,
        *,
        reached: Mapping[str, Path] | None = None,
    ) -> None:
        self._address = address
        self._context = context
        self._sockets = sockets
        self._port = port
        self._reached = reached or {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Park connections until cancelled, and forward those that are used."""
        with ExitStack() as stack:
            bound = {name: stack.enter_context(listener(path)) for name, path in self._reached.items()}
            async with asyncio.TaskGroup() as group:
                servers = [
                    await asyncio.start_unix_server(partial(self._accept, name), sock=each)
                    for name, each in bound.items()
                ]
                self._group = group
                try:
                    for name, path in self._sockets.items():
                        for _ in range(PARKED):
                            group.create_task(self._keep(name, path, group))
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._group = None
                    for each in servers:
                        each.close()

    async def _keep(self, name: str, path: Path, group: asyncio.TaskGroup) -> None:
        """Park one connection after the other."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                stream = await self._park(name)
            except (OSError, TimeoutError, EOFError) as error:
                # The Pod starts, or has ended: it is the placement that follows it.
                if pause == _FIRST_PAUSE_SECONDS:
                    log.debug("a connection cannot be parked", extra={"socket": name, "error": str(error)})
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE_SECONDS)
                continue
            pause = _FIRST_PAUSE_SECONDS
            group.create_task(_forward(stream, path))

    def _accept(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local = ByteStream(reader, writer)
        if self._group is None:
            # The kernel has accepted it before the tunnel began, or as it ended.
            abort(local)
        else:
            self._group.create_task(self._lead(name, local))

    async def _lead(self, name: str, local: ByteStream) -> None:
        """Lead a connection to a socket of this process to one in the Pod; no error leaves this method."""
        try:
            stream = await self._park(name)
        except (OSError, TimeoutError, EOFError):
            # It is asked again.
            abort(local)
            return
        except BaseException:
            abort(local)
            raise
        with suppress(OSError, TimeoutError):
            await splice(local, stream)

    async def _park(self, name: str) -> ByteStream:
        """Return a connection that a process in the Pod uses, or that leads to its socket.

        Raises:
            OSError: There is no connection, or it broke.
            TimeoutError: The sidecar does not answer.
            EOFError: The sidecar has closed it.
        """
        async with asyncio.timeout(_CONNECT_SECONDS):
            stream = ByteStream(
                *await asyncio.open_connection(self._address, self._port, ssl=self._context, server_hostname=SERVER)
            )
        try:
            found: socket.socket | None = stream.writer.get_extra_info("socket")
            if found is not None:
                # A node that is gone sends nothing.
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.writer.write(f"{name}\n".encode())
            if await stream.reader.readexactly(1) != _BEGIN:
                raise ConnectionResetError("the sidecar speaks another protocol")  # noqa: TRY301 - one place aborts
        except BaseException:
            abort(stream)
            raise
        return stream


async def _forward(stream: ByteStream, path: Path) -> None:
    """Forward one connection to its end; no error leaves this function, because it would end all connections."""
    try:
        with short_path(path) as address:
            local = ByteStream(*await asyncio.open_unix_connection(address))
    except OSError:
        # Nothing serves the socket now.
        abort(stream)
        return
    except BaseException:
        abort(stream)
        raise
    # Streams break at any time; both ends learn of it by the end of theirs.
    with suppress(OSError, TimeoutError):
        await splice(local, stream)
