"""Make Tenantry's plugin for krew, the plugin manager of kubectl: `.venv/bin/python tools/krew.py [--out dist]`.

    wheel of tenantry, wheels of requirements/operator.txt for each Python ─► lib/any, lib/3.11, … ─► archive
                                                                            ─► tenantry.yaml, the manifest

krew unpacks an archive and runs nothing of it, so the archive has what pip would install. The same wheels give the same
archive. Source: krew's developer guide, "Writing Krew plugin manifests".
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import locked
import wheels
import yaml

from tenantry import __version__
from tenantry.local.real.images import architecture

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROGRAM = "kubectl-tenantry"
COMPLETION = "kubectl_complete-tenantry"
MANIFEST = "tenantry.yaml"
RELEASES = "https://tenantry.dev/releases"
_EPOCH = 315532800
"""1980-01-01, the oldest time that a wheel can have."""


class KrewError(Exception):
    """What is wrong, and what to do."""


def place(wheel: str, python: str) -> str:
    """Return the folder of a wheel's files: `any`, or the version of Python that they are built for.

    Args:
        wheel: Its file name.
        python: The version that it was chosen for.
    """
    *_, abi, _ = wheel.removesuffix(".whl").split("-")
    return "any" if abi in {"none", "abi3"} else python


def archive(wheel: Path, out: Path) -> Path:
    """Write the archive and return it.

    Args:
        wheel: Of Tenantry.
        out: The folder.

    Raises:
        KrewError: pip does not find the wheels.
    """
    program = (ROOT / "deploy" / "krew" / PROGRAM).read_bytes()
    files: dict[str, tuple[int, bytes]] = {
        PROGRAM: (0o755, program),
        # krew unpacks no links.
        COMPLETION: (0o755, program),
        "LICENSE": (0o644, (ROOT / "LICENSE").read_bytes()),
    }
    files |= _contents(wheel, "any")
    with tempfile.TemporaryDirectory() as temporary:
        for python in PYTHONS:
            for each in _download(python, Path(temporary) / python):
                files |= _contents(each, place(each.name, python))
    made = out / f"tenantry-{__version__}-krew-linux-{architecture()}.tar.gz"
    made.write_bytes(packed(files))
    return made


def _contents(wheel: Path, folder: str) -> dict[str, tuple[int, bytes]]:
    """Return the files of a wheel, each with its mode."""
    with zipfile.ZipFile(wheel) as source:
        return {
            f"lib/{folder}/{each.filename}": (0o644, source.read(each))
            for each in source.infolist()
            if not each.is_dir()
        }


def _download(python: str, target: Path) -> list[Path]:
    requirements = ROOT / "requirements" / "operator.txt"
    command = (sys.executable, "-m", "pip", "download", *locked.options(requirements, python), "--dest", str(target))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KrewError(f"pip has no wheels of {requirements.name} for Python {python}: {done.stderr.strip()}")
    return sorted(target.glob("*.whl"))


def packed(files: dict[str, tuple[int, bytes]]) -> bytes:
    """Return a compressed archive, always the same of the same files.

    Args:
        files: Name to mode and content.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for name, (mode, data) in sorted(files.items()):
            about = tarfile.TarInfo(name)
            about.mode, about.size, about.mtime = mode, len(data), _EPOCH
            target.addfile(about, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), 6, mtime=0)


def manifest(made: Path) -> dict[str, Any]:
    """Return the plugin manifest of an archive."""
    machine = made.name.removesuffix(".tar.gz").rsplit("-", 1)[1]
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": machine}},
            "uri": f"{RELEASES}/v{__version__}/{made.name}",
            "sha256": hashlib.sha256(made.read_bytes()).hexdigest(),
            "bin": PROGRAM,
        }
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tenantry"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": "https://tenantry.dev",
            "shortDescription": "Share clusters between tenants",
            "description": "Manages Tenantry's tenants, quotas, slices, virtual control planes, clusters and peers,\n"
            "and explains what a tenant may do and why something is refused.\n",
            "caveats": f"It needs python3 of {PYTHONS[0]} to {PYTHONS[-1]}. kubectl completes its words after\n"
            f"  ln -s ../store/tenantry/v{__version__}/{COMPLETION} ~/.krew/bin/\n",
            "platforms": platforms,
        },
    }


def plugin(wheel: Path, out: Path) -> tuple[Path, Path]:
    """Write archive and manifest, and return them; arguments and errors as for `archive`."""
    made = archive(wheel, out)
    written = out / MANIFEST
    written.write_text(yaml.safe_dump(manifest(made), sort_keys=False))
    return made, written


def main() -> int:
    """Make the plugin and print the names of its files; return 1 if that is not possible."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out: Path = parser.parse_args().out.resolve()
    try:
        for each in plugin(wheels.pure(out), out):
            print(each)
    except (KrewError, wheels.WheelError) as error:
        print(f"krew: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
