"""A client of the keeper of snapshots in a Pod (go/hosted-sidecar/keeper.go), over TLS with the keys of this Pod alone.

operator ─► GET, PUT, DELETE /files/NAME   the files of one control plane
         ─► POST /files/NAME/take, …       commands of `hosted` in the Pod
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import aiohttp
import msgspec

from tenantry.api.errors import InputError, StoreError
from tenantry.hosting import sidecar, snapshots
from tenantry.hosting.snapshotfiles import PIECE_BYTES, measured, received
from tenantry.hosting.snapshots import KeptSnapshot, SnapshotHeader

CHECKSUM = "X-Sha256"
_CONNECT_SECONDS, _TAKE_SECONDS, _RESTORE_SECONDS, _BYTES_SECONDS = 10.0, 300.0, 600.0, 900.0
_MOST_ANSWER = 2**20
_FIRST_REFUSAL = 300
_NOT_FOUND = 404


class _File(msgspec.Struct, frozen=True):
    name: str
    size: int


class SnapshotKeeper:
    """Reads and writes the snapshots of one control plane in one volume.

    Args:
        address: The IP address of the Pod.
        context: Its authority, and the certificate of this end.
        told: What messages call the volume.
        port: The port of the keeper.
    """

    def __init__(self, address: str, context: ssl.SSLContext, told: str, port: int = sidecar.KEEPER_PORT) -> None:
        self._url = f"https://{f'[{address}]' if ':' in address else address}:{port}/files"
        self._context = context
        self._told = told
        self.used = asyncio.get_running_loop().time()
        """When the last request ended, by the clock of the event loop."""

    async def kept(self) -> tuple[KeptSnapshot, ...]:
        """Return the snapshots that there are, the oldest first.

        Raises:
            StoreError: The keeper does not answer.
        """
        body = await self._short("GET", "", _CONNECT_SECONDS)
        try:
            files = msgspec.json.decode(body, type=list[_File])
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._told}: its list of snapshots cannot be read") from error
        return snapshots.listed((each.name, each.size) for each in files)

    async def take(self, name: str) -> SnapshotHeader:
        """Take a snapshot into a file.

        Raises:
            StoreError: Why there is none.
        """
        return await self._command(name, "take", _TAKE_SECONDS)

    async def verify(self, name: str) -> SnapshotHeader:
        """Check a snapshot.

        Raises:
            InputError: There is none of this name.
            StoreError: It cannot be used, and why.
        """
        return await self._command(name, "verify", _TAKE_SECONDS)

    async def restore(self, name: str, *, foreign: bool) -> None:
        """Replace all objects of the control plane, which does not run, by those of a snapshot.

        Args:
            name: The name of the snapshot.
            foreign: It may be of another control plane.

        Raises:
            InputError: There is none of this name.
            StoreError: It cannot be restored, and why.
        """
        await self._command(name, "replace" if foreign else "restore", _RESTORE_SECONDS)

    async def rename(self, name: str, to: str) -> None:
        """Give a file another name.

        Raises:
            StoreError: It cannot.
        """
        await self._short("POST", f"/{name}/name/{to}", _CONNECT_SECONDS)

    async def discard(self, name: str) -> None:
        """Delete a file; one that is gone needs nothing.

        Raises:
            StoreError: It cannot.
        """
        await self._short("DELETE", f"/{name}", _CONNECT_SECONDS)

    async def send(self, file: Path, name: str) -> None:
        """Store a file of this machine.

        Raises:
            StoreError: The volume has no part of it.
        """
        size, digest = await asyncio.to_thread(measured, file)
        headers = {CHECKSUM: digest, "Content-Length": str(size)}
        # aiohttp closes it.
        body = await asyncio.to_thread(file.open, "rb")
        async with self._exchange("PUT", f"/{name}", _BYTES_SECONDS, headers, body):
            pass

    async def receive(self, name: str, file: Path) -> None:
        """Write a snapshot to a new file of this machine.

        Raises:
            InputError: There is none of this name.
            StoreError: The file is not to be used.
        """
        async with self._exchange("GET", f"/{name}", _BYTES_SECONDS) as response:
            pieces = response.content.iter_chunked(PIECE_BYTES)
            digest = await received(pieces, file, lambda: StoreError(f"{self._told}: the snapshot has more than 5 GiB"))
            if digest != response.headers.get(CHECKSUM):
                raise StoreError(f"{self._told}: the snapshot was changed on its way: its checksum differs")

    async def _command(self, name: str, verb: str, seconds: float) -> SnapshotHeader:
        body = await self._short("POST", f"/{name}/{verb}", seconds)
        try:
            return msgspec.json.decode(body, type=SnapshotHeader)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._told}: what the control plane reports of a snapshot cannot be read") from error

    async def _short(self, method: str, path: str, seconds: float) -> bytes:
        async with self._exchange(method, path, seconds) as response:
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_chunked(2**16):
            body += piece
            if len(body) > _MOST_ANSWER:
                raise StoreError(f"{self._told}: its answer is too long")
        return bytes(body)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        body: IO[bytes] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send one request, and give the answer, which is a success."""
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
        try:
            async with (
                # For each request: they are hours apart.
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(
                    method,
                    f"{self._url}{path}",
                    headers=headers,
                    data=body,
                    ssl=self._context,
                    server_hostname=sidecar.SERVER,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status == _NOT_FOUND:
                    raise InputError("there is no snapshot of this name: `tenantry vcp describe` lists them")
                if response.status >= _FIRST_REFUSAL:
                    raise StoreError(f"{self._told}: {_line(await self._read(response))}")
                yield response
                self.used = asyncio.get_running_loop().time()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StoreError(
                f"{self._told}: its Pod does not answer ({type(error).__name__}): try again", is_passing=True
            ) from error


def _line(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    return "".join(each if each.isprintable() else " " for each in text)
