"""Files of Debian's packages, unpacked into the cache: an installation would start services on this machine."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tenantry.local import paths
from tenantry.local.locks import holding

_FETCH_SECONDS = 300
# apt would leave out what this machine has already.
_NOTHING_INSTALLED = ("-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1")


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which is filled once.

    Args:
        name: The name of the folder.
        fill: Called with an empty folder, in which it makes the folder `unpacked`.

    Raises:
        RuntimeError: The folder cannot be filled.
    """
    folder = paths.cache() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    unpacked = folder / name
    with holding(folder / "lock"):
        if not unpacked.is_dir():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as temporary:
                fill(Path(temporary))
                (Path(temporary) / "unpacked").rename(unpacked)
    return unpacked


def fetch(*packages: str, folder: Path, with_dependencies: bool = False) -> None:
    """Unpack packages, in the version of this machine's distribution.

    Args:
        packages: Their names.
        folder: An empty folder; its folder `unpacked` gets the files.
        with_dependencies: Whether to unpack the packages that they need, too.

    Raises:
        RuntimeError: They cannot be fetched, with apt's message.
    """
    download = ("apt-get", "download", *packages)
    if with_dependencies:
        options = (*_NOTHING_INSTALLED, "-o", f"Dir::Cache::archives={folder}", "--no-install-recommends")
        download = ("apt-get", *options, "--download-only", "--yes", "install", *packages)
    try:
        run(*download, folder=folder)
    except RuntimeError:
        # A bare machine has no lists of packages yet.
        run("apt-get", "update", folder=folder)
        run(*download, folder=folder)
    for package in sorted(folder.glob("*.deb")):
        run("dpkg-deb", "--extract", str(package), "unpacked", folder=folder)


def run(*command: str, folder: Path) -> str:
    """Run a program in a folder, and return its output.

    Raises:
        RuntimeError: It is missing, or fails.
    """
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
    except FileNotFoundError as error:
        raise RuntimeError(f"there is no {command[0]} here, which unpacks Debian's packages") from error
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
