"""Programs that an installed package has, compressed, so that local clusters start without a build.

    tenantry_controlplane/programs.json        the fingerprint of their sources, and the digest of each file
    tenantry_controlplane/controlplane.gz      a file, compressed

tools/wheels.py writes the package. `build.ensure` calls `unpack` instead of a build: both fill the same folder of the
cache, which the fingerprint names. The digests detect damage; pip has checked who published the package.

gzip: of what the standard library has, it unpacks fastest. xz would save 14 MB of 58, and unpacks three times slower.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec

from tenantry import __version__
from tenantry.api.errors import LocalError
from tenantry.local.files import explain
from tenantry.local.progress import Progress

LISTING = "programs.json"
SUFFIX = ".gz"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_LIMIT_BYTES = 2**30
_CHUNK_BYTES = 2**20
# zlib's `wbits` for the header and the checksum of gzip, and the largest window.
_GZIP = 31


class PackagedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a package.

    Args:
        name: Its name in the folder of the cache; the package has it with the suffix ".gz".
        bytes: Its size, unpacked.
        sha256: The digest of the unpacked file, as hexadecimal digits.
        executable: Whether it is a program.
    """

    name: str
    bytes: int
    sha256: str
    executable: bool


class PackagedPrograms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a package.

    Args:
        version: The version of Tenantry that it was made for.
        fingerprint: The name of the folder of the cache (`build.fingerprint`).
        go: The version of the toolchain that built the programs.
        files: The files.
        links: Symbolic links between them, from the name to the target.
    """

    version: str
    fingerprint: str
    go: str
    files: tuple[PackagedFile, ...]
    links: dict[str, str]


def unpack(package: str, fingerprint: str, target: Path, progress: Progress) -> bool:
    """Unpack the programs of an installed package; return whether there is a package with these programs.

    Args:
        package: The name of the distribution, as in "tenantry-controlplane".
        fingerprint: What the programs must be built from.
        target: An empty folder.
        progress: Shows what is done, and why an installed package is of no use.

    Raises:
        LocalError: The package is damaged, or the files cannot be written.
    """
    source = _folder(package)
    if source is None:
        return False
    contents = read(source, package)
    if contents.fingerprint != fingerprint:
        progress.say(
            f'the package "{package}" has programs for Tenantry {contents.version} or for another machine, and this is '
            f'Tenantry {__version__}: they are built instead; `pip install "{package}=={__version__}"` saves the build'
        )
        return False
    progress.update(f"unpacking {package}")
    with ThreadPoolExecutor() as threads:
        jobs = [threads.submit(_unpack_file, source, package, each, target) for each in contents.files]
    for job in jobs:
        job.result()
    try:
        for name, existing in contents.links.items():
            (target / name).symlink_to(existing)
        about = {"go": contents.go, "package": f"{package} {contents.version}", "fingerprint": fingerprint}
        (target / "build.json").write_text(json.dumps(about, indent=2) + "\n")
    except OSError as error:
        raise explain(error, target) from error
    return True


def _folder(package: str) -> Path | None:
    found = importlib.util.find_spec(package.replace("-", "_"))
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0])


def read(source: Path, package: str) -> PackagedPrograms:
    """Return the contents of a package.

    Raises:
        LocalError: The package does not list them, or in a way that could write outside of a folder.
    """
    try:
        contents = msgspec.json.decode((source / LISTING).read_bytes(), type=PackagedPrograms)
    except (OSError, msgspec.MsgspecError) as error:
        raise _damaged(package, LISTING, str(error)) from error
    names = [each.name for each in contents.files]
    for name in (*names, *contents.links):
        if not _NAME.fullmatch(name):
            raise _damaged(package, LISTING, f'"{name}" must be a plain file name')
    if len({*names, *contents.links}) != len(names) + len(contents.links):
        raise _damaged(package, LISTING, "a name is listed twice")
    for name, existing in contents.links.items():
        if existing not in names:
            raise _damaged(package, LISTING, f'the link "{name}" leads to no file of the package')
    if sum(each.bytes for each in contents.files) > _LIMIT_BYTES or any(each.bytes < 0 for each in contents.files):
        raise _damaged(package, LISTING, f"its files may not have more than {_LIMIT_BYTES} bytes")
    return contents


def _unpack_file(source: Path, package: str, file: PackagedFile, target: Path) -> None:
    packed = source / f"{file.name}{SUFFIX}"
    path = target / file.name
    try:
        with packed.open("rb") as compressed, path.open("xb") as plain:
            digest, size = _copy(compressed, plain, file.bytes)
        path.chmod(0o755 if file.executable else 0o644)
    except FileNotFoundError as error:
        raise _damaged(package, packed.name, "it is missing") from error
    except (zlib.error, EOFError) as error:
        raise _damaged(package, packed.name, str(error)) from error
    except OSError as error:
        raise explain(error, path) from error
    if size != file.bytes or digest != file.sha256:
        raise _damaged(package, packed.name, f"its digest is not the listed one, sha256:{file.sha256}")


def _copy(compressed: BinaryIO, plain: BinaryIO, limit_bytes: int) -> tuple[str, int]:
    """Decompress a stream up to one byte more than a limit; return the digest and the size."""
    decompressor = zlib.decompressobj(_GZIP)
    digest, size = hashlib.sha256(), 0
    while not decompressor.eof and size <= limit_bytes:
        chunk = decompressor.unconsumed_tail or compressed.read(_CHUNK_BYTES)
        if not chunk:
            raise EOFError("it ends too early")
        data = decompressor.decompress(chunk, min(_CHUNK_BYTES, limit_bytes + 1 - size))
        digest.update(data)
        plain.write(data)
        size += len(data)
    return digest.hexdigest(), size


def _damaged(package: str, file: str, why: str) -> LocalError:
    return LocalError(
        f'the package "{package}" is damaged: "{file}": {why}; install it again with '
        f'`pip install --force-reinstall --no-deps "{package}=={__version__}"`'
    )
