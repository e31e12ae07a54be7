"""Make a release: `.venv/bin/python tools/release.py 0.2.0 [--dry-run] [--out dist]`.

    clean checkout of main ─► copy: version ─► changelog from fragments, fixture of stored objects
                                            ─► wheels, plugin of kubectl, images, manifests, chart, SBOMs ─► SHA256SUMS
                           ─► the same version, changelog and fixture, commit and tag, which a person pushes

The files are made from a copy of the checkout, which stays as it is until they are complete, so that a release that
failed can be repeated. With --dry-run, nothing is committed. The images need Debian 12; --without-images leaves them
out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import krew
import sbom

from tenantry.api.versionorder import is_later, order
from tenantry.local import build
from tenantry.local.progress import StreamProgress

ROOT = Path(__file__).resolve().parent.parent


class ReleaseError(Exception):
    """What is wrong, and what to do."""


def require_later(version: str, current: str) -> None:
    """Check that a version comes after the current one.

    Raises:
        ReleaseError: It does not, or is no version.
    """
    if order(version) is None:
        raise ReleaseError(f"version {version!r} must be MAJOR.MINOR.PATCH, as in 0.2.0 or 0.2.0rc1 (PEP 440)")
    if not is_later(version, current):
        raise ReleaseError(f"version {version} must be later than the current one, {current}")


def run(*command: str, folder: Path) -> str:
    """Run a command, and return its output.

    Raises:
        ReleaseError: It fails; the message has its errors.
    """
    # The package of that checkout, and not the one that is installed here.
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def require_clean(folder: Path) -> None:
    """Check that the checkout is main, without changes.

    Raises:
        ReleaseError: It is not.
    """
    branch = run("git", "rev-parse", "--abbrev-ref", "HEAD", folder=folder)
    if branch != "main":
        raise ReleaseError(f"releases are made from main, and this is {branch}: `git switch main`")
    if run("git", "status", "--porcelain", folder=folder):
        raise ReleaseError("the checkout has changes: commit or stash them")


def require_empty(out: Path) -> None:
    """Check that the folder for the files of a release has none.

    Raises:
        ReleaseError: It has.
    """
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"{str(out)!r} has files, of which some may be of another version: empty it, or give --out")


def write_version(folder: Path, version: str) -> None:
    """Write the version into the package and its extra, and the changelog from its fragments."""
    file = folder / "src/tenantry/__init__.py"
    file.write_text(re.sub(r'__version__ = "[^"]+"', f'__version__ = "{version}"', file.read_text()))
    file = folder / "pyproject.toml"
    file.write_text(re.sub(r'"(tenantry-[a-z]+)==[^"]+"', rf'"\1=={version}"', file.read_text()))
    run(sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, folder=folder)


def artefacts(folder: Path, version: str, out: Path, *, has_images: bool = True) -> list[Path]:
    """Make the files of a release from a checkout, and return them; the last one has the checksums of the others.

    Args:
        folder: The checkout.
        version: Of the release.
        out: A new folder.
        has_images: Also make the images.

    Raises:
        ReleaseError: A tool fails.
    """
    out.mkdir()
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(out), folder=folder)
    run(sys.executable, str(folder / "tools/wheels.py"), "--out", str(out), folder=folder)
    run(sys.executable, str(folder / "tools/krew.py"), "--out", str(out), folder=folder)
    if has_images:
        run(sys.executable, str(folder / "tools/images.py"), "--out", str(out), folder=folder)
    manifests = out / f"tenantry-{version}-install.yaml"
    shutil.copy(folder / "deploy/install.yaml", manifests)
    others = out / f"tenantry-{version}-deploy.tar.gz"
    others.write_bytes(krew.packed({name: (0o644, (folder / name).read_bytes()) for name in applied(folder)}))
    _package(folder, out)
    bill = out / f"tenantry-{version}.cdx.json"
    bill.write_text(json.dumps(sbom.document(version), indent=2) + "\n")
    made = sorted(out.iterdir())
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in made))
    return [*made, sums]


def applied(folder: Path) -> list[str]:
    """Return the paths below deploy/ that the documentation names for a person to apply or import.

    Other files of a release have the rest: the chart, the kinds, the plugin and the wheels.
    """
    parts = ("cluster-inventory.yaml", "netpol-agent.yaml", "gitops/*", "observability/*")
    return sorted(str(file.relative_to(folder)) for part in parts for file in (folder / "deploy").glob(part))


def _package(folder: Path, out: Path) -> None:
    """Write the chart as an archive, which Helm checks before.

    Raises:
        ReleaseError: Helm finds a fault.
    """
    with StreamProgress() as progress:
        helm = str(build.ensure(progress, build.HELM).helm)
    run(helm, "lint", "--strict", "--quiet", "deploy/chart", folder=folder)
    run(helm, "package", "deploy/chart", "--destination", str(out), folder=folder)


def release(version: str, out: Path, *, is_dry: bool, has_images: bool = True, root: Path = ROOT) -> list[Path]:
    """Make a release of a checkout, and return its files.

    Raises:
        ReleaseError: Something is wrong; the checkout has not changed, unless it could not be committed at the end.
    """
    require_later(version, sbom.current_version())
    require_empty(out)
    if not is_dry:
        require_clean(root)
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "tenantry"
        run("git", "clone", "--quiet", "--shared", str(root), str(copy), folder=root)
        _write(copy, version)
        # Here, so that the files of a release that fails halfway are not in the way of the next attempt.
        files = artefacts(copy, version, Path(temporary) / "files", has_images=has_images)
        out.mkdir(parents=True, exist_ok=True)
        made = [Path(shutil.move(each, out / each.name)) for each in files]
    if is_dry:
        return made
    _write(root, version)
    run("git", "add", "--all", folder=root)
    run("git", "commit", "--quiet", "--message", f"Release {version}", folder=root)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"Tenantry {version}", folder=root)
    return made


def _write(folder: Path, version: str) -> None:
    """Write everything into a checkout that a release commits."""
    write_version(folder, version)
    # The manifests name the image of the version.
    run(sys.executable, str(folder / "tools/generate.py"), folder=folder)
    # Later versions test their upgrade from what this one stores.
    run(sys.executable, str(folder / "tools/releasefixtures.py"), folder=folder)


def main() -> int:
    """Make a release; return 1 if it cannot be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="commit nothing, and leave this checkout as it is")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--without-images", action="store_true", help="make no images, as where this is not Debian 12")
    given = parser.parse_args()
    try:
        made = release(given.version, given.out.resolve(), is_dry=given.dry_run, has_images=not given.without_images)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for each in made:
        print(each)
    if not given.dry_run:
        print(f"release: committed and tagged; push them by `git push origin main v{given.version}`", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
