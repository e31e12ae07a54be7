"""A client of one bucket of an S3-compatible store.

    file ─► hash ─► PUT, signed with it ─► the store checks it
    GET ─► file, hash ─► compared with x-amz-meta-sha256, which was signed when it was sent

Files are sent and received in pieces: a snapshot is never in memory. Redirects are not followed, because they could
lead anywhere. Requests name the bucket in the path, which every compatible store understands.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from tenantry.api.errors import StoreError
from tenantry.hosting.s3 import answers, signature
from tenantry.hosting.s3.answers import MOST_BYTES, ObjectPage, StoredObject
from tenantry.hosting.s3.signature import EMPTY, SigningScope
from tenantry.hosting.snapshotfiles import MOST_BYTES as MOST_OBJECT_BYTES
from tenantry.hosting.snapshotfiles import PIECE_BYTES, measured, received
from tenantry.hosting.snapshotplaces import S3Bucket

CHECKSUM = "x-amz-meta-sha256"
_CONNECT_SECONDS, _IDLE_SECONDS, _TOTAL_SECONDS = 10.0, 60.0, 900.0
_PAUSES = (0.5, 2.0)
"""Before the second and the third try of a request that may succeed in a moment."""

_MOST_PAGES = 10
_FIRST_REFUSAL = 300

T = TypeVar("T")


class BucketClient:
    """Lists, sends, receives and deletes objects of one bucket.

    Args:
        bucket: The bucket.
        name: The name of the destination, for messages.
        now: Returns the time, in UTC, of which signatures are.
    """

    def __init__(
        self, bucket: S3Bucket, name: str, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        self._bucket = bucket
        self._name = name
        self._now = now
        self._scope = SigningScope(region=bucket.region)
        self._host = urlsplit(bucket.endpoint).netloc.removesuffix(":443")

    async def check(self, prefix: str) -> None:
        """Check that the store answers, and knows the bucket and the credentials.

        Args:
            prefix: Of keys that are listed.

        Raises:
            StoreError: It refuses, or does not answer.
        """
        await self._page(prefix, "", 1)

    async def listed(self, prefix: str, page: int = 1000) -> list[StoredObject]:
        """Return the objects whose keys begin with a prefix, by key; those of ten pages at most.

        Args:
            prefix: The prefix.
            page: How many a page has.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        found: list[StoredObject] = []
        following = ""
        for _ in range(_MOST_PAGES):
            got = await self._page(prefix, following, page)
            found += got.objects
            following = got.following
            if not following:
                break
        return found

    async def _page(self, prefix: str, following: str, count: int) -> ObjectPage:
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(count)}
        if following:
            query["continuation-token"] = following
        body = await self._again(lambda: self._short("GET", "", query, "list objects"))
        return answers.page(body, self._name)

    async def send(self, file: Path, key: str) -> None:
        """Make an object of a file.

        Args:
            file: The file, of at most 5 GiB.
            key: The key of the object; one that exists is replaced.

        Raises:
            StoreError: The store refuses, or does not answer; then, it has no part of the object.
        """
        size, digest = await asyncio.to_thread(measured, file)
        if size > MOST_OBJECT_BYTES:
            raise answers.damaged(self._name, "the snapshot has more than 5 GiB, which an object must not have")
        headers = {CHECKSUM: digest, "content-length": str(size)}

        async def attempt() -> None:
            # Opened for each attempt: aiohttp closes it.
            body = await asyncio.to_thread(file.open, "rb")
            async with self._exchange("PUT", key, {}, "store objects", headers, digest, body):
                pass

        await self._again(attempt)

    async def receive(self, key: str, file: Path) -> None:
        """Write an object to a new file, which is not to be used if this fails.

        Args:
            key: The key of the object.
            file: The file.

        Raises:
            StoreError: The store refuses, does not answer, or has something else than was sent to it.
            OSError: The file cannot be written.
        """

        async def attempt() -> None:
            async with self._exchange("GET", key, {}, "read objects") as response:
                wanted = response.headers.get(CHECKSUM, "")
                if not wanted:
                    why = "the object has no checksum, so that Tenantry has not written it: restore it from a file"
                    raise answers.damaged(self._name, why)
                pieces = response.content.iter_chunked(PIECE_BYTES)
                too_large = partial(answers.damaged, self._name, "the object has more than 5 GiB")
                if await received(pieces, file, too_large) != wanted:
                    raise answers.damaged(
                        self._name, "the snapshot is not the one that was stored: its checksum differs"
                    )

        await self._again(attempt)

    async def delete(self, key: str) -> None:
        """Delete an object; one that is gone needs nothing.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        await self._again(lambda: self._short("DELETE", key, {}, "delete objects"))

    async def _again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what an attempt does, after up to two more if the store could not answer; all have one deadline."""
        try:
            async with asyncio.timeout(_TOTAL_SECONDS):
                for pause in _PAUSES:
                    try:
                        return await attempt()
                    except StoreError as error:
                        if not error.is_passing:
                            raise
                    await asyncio.sleep(pause)
                return await attempt()
        except TimeoutError as error:
            raise _unreached(error, self._name) from error

    async def _short(self, method: str, key: str, query: Mapping[str, str], doing: str) -> bytes:
        """Return the whole answer to a request, which is short."""
        async with self._exchange(method, key, query, doing) as response:
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_chunked(2**16):
            body += piece
            if len(body) > MOST_BYTES:
                raise answers.damaged(self._name, "the answer of the store is too long: check endpoint")
        return bytes(body)

    @asynccontextmanager
    async def _exchange(  # noqa: PLR0917 - the parts of a request
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        doing: str,
        headers: Mapping[str, str] | None = None,
        content: str = EMPTY,
        body: IO[bytes] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send one request, and give the answer, which is a success."""
        path = f"/{signature.escaped(self._bucket.bucket)}"
        path += f"/{signature.escaped(key, safe='/')}" if key else ""
        text = signature.query_text(query)
        signed = {
            **(headers or {}),
            "host": self._host,
            signature.DATE: signature.stamp(self._now()),
            signature.CONTENT_HASH: content,
        }
        told = signature.authorization(
            method, path, text, signed, key=self._bucket.key, scope=self._scope, content=content
        )
        sent = {**signed, "authorization": told, "accept-encoding": "identity"}
        url = f"{self._bucket.endpoint}{path}{f'?{text}' if text else ''}"
        try:
            async with (
                self._session() as session,
                session.request(
                    method, URL(url, encoded=True), headers=sent, data=body, allow_redirects=False
                ) as response,
            ):
                if response.status >= _FIRST_REFUSAL:
                    raise answers.refusal(response.status, await self._read(response), doing, self._name)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreached(error, self._name) from error

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[aiohttp.ClientSession]:
        # For each request: they are hours apart.
        try:
            context = await asyncio.to_thread(ssl.create_default_context, cadata=self._bucket.ca or None)
        except (ssl.SSLError, ValueError) as error:
            raise answers.damaged(self._name, "the key ca of the Secret has no certificate in PEM") from error
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_read=_IDLE_SECONDS)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:
            yield session


def _unreached(error: Exception, name: str) -> StoreError:
    """Return what a connection that failed means."""
    found: object = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        found = error.os_error
    passing = False
    match found:
        case ssl.SSLCertVerificationError():
            why = f"the certificate of the store does not verify ({found.verify_message}): put its authority under the"
            why += " key ca of the Secret, or correct endpoint"
        case ssl.SSLError():
            why = "TLS fails: check that endpoint is the address of a store with https"
        case socket.gaierror():
            why = "the host name in endpoint does not resolve: correct it, or the DNS of the operator's machine"
        case TimeoutError():
            why, passing = "the store does not answer in time: check endpoint, and firewalls in between", True
        case ConnectionRefusedError():
            why, passing = "the store refuses connections: check that it runs, and endpoint", True
        case _:
            why, passing = f"the connection to the store broke off ({type(found).__name__}): try again", True
    return StoreError(f"{answers.told(name)}: {why}", is_passing=passing)
