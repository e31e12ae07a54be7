"""Build the wheels: `.venv/bin/python tools/wheels.py [--out dist]`.

    tenantry                 Python and the Go sources, for any machine
    tenantry-controlplane    the programs of local clusters, compressed, for machines like this one

The same sources give the same wheel of `tenantry`; the same programs give the same wheel of `tenantry-controlplane`.
Times inside are SOURCE_DATE_EPOCH, or a constant. The programs are built first unless the cache has them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import sbom

from tenantry import __version__
from tenantry.api.errors import LocalError
from tenantry.local import build, packaged
from tenantry.local.build import Binaries
from tenantry.local.packaged import PackagedFile, PackagedPrograms
from tenantry.local.progress import StreamProgress

ROOT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 100_000_000
"""The largest file that the package index accepts without asking. Source: the index's help, "file size limit"."""
LEVEL = 6
_FILES = ("controlplane", "kwok", "kwok-stages.yaml")
_LINKS = {"kubectl": "controlplane"}
# The folders below go/ that they are built from.
_PROGRAMS = ("controlplane", "kwok")


class WheelError(Exception):
    """What is wrong, and what to do."""


def pack(binaries: Binaries, files: Sequence[str], links: dict[str, str], target: Path, level: int = LEVEL) -> None:
    """Write the files of a package from a folder of the cache.

    Args:
        binaries: The folder.
        files: Names of files in it.
        links: Symbolic links between them, from the name to the target.
        target: The folder of the package.
        level: Of gzip: 1 is fast, 9 is small.
    """
    about = json.loads((binaries.folder / "build.json").read_text())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        jobs = [threads.submit(_pack_file, binaries.folder / name, target, level) for name in files]
    contents = PackagedPrograms(
        version=__version__,
        fingerprint=binaries.folder.name,
        go=about["go"],
        files=tuple(job.result() for job in jobs),
        links=links,
    )
    (target / packaged.LISTING).write_bytes(msgspec.json.format(msgspec.json.encode(contents)) + b"\n")


def _pack_file(file: Path, target: Path, level: int) -> PackagedFile:
    data = file.read_bytes()
    (target / f"{file.name}{packaged.SUFFIX}").write_bytes(gzip.compress(data, level, mtime=0))
    is_program = bool(file.stat().st_mode & 0o100)
    digest = hashlib.sha256(data).hexdigest()
    return PackagedFile(name=file.name, bytes=len(data), sha256=digest, executable=is_program)


def pure(out: Path) -> Path:
    """Build the wheel of `tenantry` and return it.

    Raises:
        WheelError: hatchling fails.
    """
    return _build(ROOT, out)


def controlplane(out: Path, level: int = LEVEL) -> Path:
    """Build the wheel of `tenantry-controlplane` and return it; arguments as for `pack`.

    Raises:
        LocalError: The programs cannot be built.
        WheelError: hatchling fails, or the wheel is too large for the package index.
    """
    with StreamProgress() as progress:
        binaries = build.ensure(progress)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "controlplane"
        source = ROOT / "deploy" / "wheels" / "controlplane"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "LICENSE", folder)
        name = build.CONTROL_PLANE.package
        bill = sbom.bill(
            name, __version__, f"pkg:pypi/{name}@{__version__}", list(sbom.go_components(ROOT / "go", _PROGRAMS))
        )
        (folder / f"{name}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")
        pack(binaries, _FILES, _LINKS, folder / name.replace("-", "_"), level)
        wheel = _build(folder, out)
    if wheel.stat().st_size > LIMIT_BYTES:
        raise WheelError(
            f"{wheel} has {wheel.stat().st_size} bytes, and the package index accepts {LIMIT_BYTES}: divide its "
            "programs between two distributions"
        )
    return wheel


def _build(folder: Path, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".wheel-") as temporary:
        command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", temporary)
        environment = {**os.environ, "TENANTRY_VERSION": __version__}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WheelError(f"hatchling cannot build {folder.name}: {(done.stderr or done.stdout).strip()}")
        (made,) = Path(temporary).glob("*.whl")
        return made.replace(out / made.name)


def main() -> int:
    """Build both wheels and print their names; return 1 if that is not possible."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out.resolve()
    try:
        for wheel in (pure(out), controlplane(out)):
            print(wheel)
    except (WheelError, LocalError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
