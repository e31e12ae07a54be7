"""Connections to an API server that ends them: on asyncio's loop, and on the operator's."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tenantry.kube import streams
from tenantry.local import pki
from tenantry.local.pki import CertificateUse, LeafCertificate

BYTES = 2**20
LIMIT = 64 * 1024


@pytest.fixture(name="certificates", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Issue the certificate of a server."""
    folder = tmp_path_factory.mktemp("pki")
    leaf = LeafCertificate(ca="ca", user="server", use=CertificateUse.SERVER, names=("127.0.0.1",))
    pki.ensure(folder, {"server": leaf}, dt.datetime.now(dt.UTC))
    return folder


@pytest.fixture(name="port")
def make_server(certificates: Path) -> Iterator[int]:
    """Send some bytes on one connection and end it, with a server that does not belong to a loop."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")

    def serve(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        # A client that does not trust the certificate leaves.
        with suppress(OSError), context.wrap_socket(accepted, server_side=True) as inside:
            inside.sendall(bytes(BYTES))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_slow_reader_gets_all_bytes_before_the_end(
    certificates: Path, port: int, run: Callable[[Coroutine[Any, Any, int]], int]
) -> None:
    """L06, H01: output of exec and files of cp are not cut; uvloop's own TLS drops the last 256 KiB."""
    context = ssl.create_default_context(cafile=certificates / "ca.crt")

    async def read() -> int:
        reader, writer = await streams.connect("127.0.0.1", port, context, name="127.0.0.1", limit=LIMIT)
        count = 0
        while chunk := await reader.read(LIMIT):
            count += len(chunk)
            for _ in range(50):  # the server is ahead, and has ended the connection before the last bytes are read
                await asyncio.sleep(0)
        writer.transport.abort()
        return count

    assert run(read()) == BYTES


async def test_a_server_of_another_name_is_refused(certificates: Path, port: int) -> None:
    context = ssl.create_default_context(cafile=certificates / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        await streams.connect("127.0.0.1", port, context, name="example.com", limit=LIMIT)
