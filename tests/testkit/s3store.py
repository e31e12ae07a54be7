"""An S3-compatible store for tests: versitygw, a real server whose buckets are folders, with TLS.

Its addresses and certificates are its own, so that a test verifies them as in production.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.hosting.s3.bucket import BucketClient
from tenantry.hosting.s3.signature import AccessKey
from tenantry.hosting.snapshotplaces import S3Bucket
from tenantry.local import build, pki
from tenantry.local.progress import SilentProgress
from testkit import ports

KEY = AccessKey(identifier="AKIATENANTRYTEST0000", secret="of/the+store-1234567890abcdefghijklmnopq")
BUCKET = "snapshots"
_START_SECONDS = 60.0


def utc() -> dt.datetime:
    """Return the time."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class S3Store:
    """A store that runs.

    Args:
        bucket: A bucket of it, with all rights.
        folder: The folder of this bucket.
    """

    bucket: S3Bucket
    folder: Path

    def client(self, *, now: Callable[[], dt.datetime] = utc, **changes: object) -> BucketClient:
        """Return a client, of another bucket if some fields differ."""
        return BucketClient(replace(self.bucket, **changes), "offsite", now)

    def files(self) -> list[str]:
        """Return the keys of all objects."""
        return sorted(str(each.relative_to(self.folder)) for each in self.folder.rglob("*") if each.is_file())


@asynccontextmanager
async def s3_store(folder: Path, *flags: str) -> AsyncGenerator[S3Store]:
    """Run a store with one bucket.

    Args:
        folder: A new folder for it.
        flags: Further ones of go/s3gateway.
    """
    binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.S3_GATEWAY)
    buckets, attributes, keys = (folder / each for each in ("buckets", "attributes", "pki"))
    for each in (buckets / BUCKET, attributes, keys):
        each.mkdir(parents=True)
    leaf = LeafCertificate(ca="store-ca", user="s3", use=CertificateUse.SERVER, names=("127.0.0.1", "localhost"))
    await asyncio.to_thread(pki.ensure, keys, {"server": leaf}, utc())
    address = f"127.0.0.1:{ports.free(1)[0]}"
    process = await asyncio.create_subprocess_exec(
        *(str(binaries.s3_gateway), *flags, address, str(buckets), str(attributes)),
        *(str(keys / "server.crt"), str(keys / "server.key")),
        env={**os.environ, "ROOT_ACCESS_KEY_ID": KEY.identifier, "ROOT_SECRET_ACCESS_KEY": KEY.secret},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            # Its library prints lines before.
            await process.stdout.readuntil(b"serving\n")
        bucket = S3Bucket(
            endpoint=f"https://{address}",
            bucket=BUCKET,
            prefix="",
            region="us-east-1",
            key=KEY,
            ca=(keys / "store-ca.crt").read_text(),
        )
        yield S3Store(bucket, buckets / BUCKET)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
