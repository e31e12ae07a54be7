"""What the certificate of a control plane opens in an etcd that it shares with others."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from pathlib import Path

from tenantry.hosting import stores
from testkit.api import SECONDS


async def administer(program: Path, access: Path, *arguments: str) -> tuple[str, str]:
    """Administer an etcd; return the output and the error, "" for success.

    Args:
        program: The program of hosted control planes.
        access: The file with the way to the etcd, and with the certificate.
        arguments: What to do, see go/hosted/internal/etcd.
    """
    process = await asyncio.create_subprocess_exec(
        *(program, "etcd", access, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, told = await process.communicate()
    return out.decode().strip(), told.decode() if process.returncode else ""


async def opens_only_its_prefix(program: Path, access: Path, uid: str) -> None:
    """Try what a process could do whose certificate and key are known: it reads its own keys, and nothing else.

    Args:
        program: See `administer`.
        access: See `administer`; the certificate is that of the control plane.
        uid: Of the control plane.
    """
    count, told = await administer(program, access, "count", stores.prefix(uid))
    assert (told, int(count or 0) > 0) == ("", True)
    acts = (
        ("count", stores.prefix(str(uuid.uuid4()))),
        ("count", "/planes"),
        ("admit", stores.user(uid), "/planes"),
        ("remove", "plane-other", "/planes/other"),
        ("save", "stolen.db"),
        ("defragment",),
        ("relieve",),
    )
    for act in acts:
        assert "permission denied" in (await administer(program, access, *act))[1], act
