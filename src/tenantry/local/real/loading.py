"""Imports images into running nodes; starting nodes import them from the cluster's folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.kube import program
from tenantry.local.files import explain
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import images
from tenantry.local.real.node import images_of, process_of
from tenantry.local.real.settings import PINNED, SOCKET

_SECONDS = 120.0


async def load(paths: ClusterPaths, binaries: str, nodes: Iterable[str], file: Path, reference: str) -> list[str]:
    """Import an image into every running node; return their names.

    Args:
        paths: The cluster's files.
        binaries: The folder of the programs of nodes.
        nodes: Their names.
        file: The image, an OCI layout in a tar file.
        reference: Its name.

    Raises:
        LocalError: A node rejects it, or is too slow.
    """
    kept = images_of(paths) / images.file_name(reference)
    unfinished = kept.with_name(f".{kept.name}")
    try:
        shutil.copyfile(file, unfinished)
        unfinished.replace(kept)
    except OSError as error:
        raise explain(error, kept) from error
    running = {name: pid for name in nodes if (pid := process_of(paths, name))}
    async with asyncio.TaskGroup() as group:
        for name, pid in running.items():
            group.create_task(_import(binaries, name, pid, kept))
    return list(running)


async def _import(binaries: str, name: str, pid: int, file: Path) -> None:
    # The node's files as this machine sees them, without entering its namespaces.
    address = f"/proc/{pid}/root{SOCKET}"
    command = (f"{binaries}/ctr", "--address", address, "--namespace", "k8s.io")
    try:
        done = await program.run((*command, "images", "import", "--local", PINNED, file), timeout_seconds=_SECONDS)
    except TimeoutError as error:
        raise LocalError(f'the node "{name}" does not import the image within {_SECONDS:.0f} s') from error
    if done.code:
        raise LocalError(f'the node "{name}" rejects the image: {done.err.decode(errors="replace").strip()}')
