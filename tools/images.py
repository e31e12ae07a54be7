"""Build the images without a container engine: `.venv/bin/python tools/images.py [NAME ...] [--out dist]`.

    operator   Python of Debian, the wheels of requirements/operator.txt, and Tenantry: no shell, no package manager
    netpol     the same with nft: the agent that enforces NetworkPolicies on a node
    hosted     VirtualControlPlanes in Pods: static programs
    coredns    CoreDNS with the plugin of Tenantry: a static program
    probe      what `tenantry audit --probe` runs in pods: a static program

Each becomes an OCI archive and a bill of materials (CycloneDX). The same packages, wheels and programs give the same
bytes. `tenantry.local.real.images` writes the archives, as it does for the nodes of local clusters.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import debian
import locked
import sbom
import wheels

from tenantry import __version__
from tenantry.api.errors import TenantryError
from tenantry.hostedpods import image as hostedimage
from tenantry.local.progress import Progress, StreamProgress
from tenantry.local.real import images, recipes
from tenantry.local.real.images import ImageRecipe

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "tenantry.local"
LIMIT_BYTES = 120_000_000
USER = "65532:65532"
"""The number that the Deployment's securityContext names."""
_LEVEL = 6
_APP = "app"
_SECONDS = 900


class ImageError(Exception):
    """What is wrong, and what to do."""


@dataclass(frozen=True)
class Made:
    """What an image is made of.

    Args:
        recipe: Its contents.
        components: Of its bill of materials.
    """

    recipe: ImageRecipe
    components: list[dict[str, Any]]


@dataclass(frozen=True)
class Workplace:
    """Where an image is made.

    Args:
        folder: An empty folder for its files.
        packages: A folder of packages of Debian; None to download the current ones.
        progress: Shows what is done.
    """

    folder: Path
    packages: Path | None
    progress: Progress


def _python(reference: str, at: Workplace, *, command: str, more: Sequence[str] = (), user: str = USER) -> Made:
    """Return an image that runs a command of Tenantry.

    Args:
        reference: The name of the image.
        at: Where it is made.
        command: The command; a container may run another one.
        more: Packages of Debian beside those of every image.
        user: The user and the group, as numbers.

    Raises:
        DebianError: The packages of Debian cannot be had.
        ImageError: The wheels cannot be had, or its Python cannot run here.
        WheelError: The wheel of Tenantry cannot be built.
    """
    root, fetched = at.folder / "root", at.packages or at.folder / "packages"
    for each in (root, fetched):
        each.mkdir(exist_ok=True)
    at.progress.update(f"{command}: packages of Debian")
    packages = debian.fetch(fetched, (*debian.PACKAGES, *more))
    debian.unpack(packages, root)
    at.progress.update(f"{command}: wheels")
    requirements = ROOT / "requirements" / "operator.txt"
    app = root / _APP
    _install(requirements, app)
    with zipfile.ZipFile(wheels.pure(at.folder)) as wheel:
        # The Go sources are of no use there.
        wheel.extractall(app, [each for each in wheel.namelist() if not each.startswith("tenantry/_sources/")])
    at.progress.update(f"{command}: compiling")
    _compile(root)
    recipe = ImageRecipe(
        reference=reference,
        files={"/": root},
        entrypoint=(f"/usr/bin/{debian.PYTHON}", "-m", "tenantry"),
        command=(command,),
        user=user,
        environment={
            "PYTHONPATH": f"/{_APP}",
            # The file system is read-only.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "SSL_CERT_FILE": f"/{debian.CERTIFICATES}",
        },
    )
    here = {each.name.rsplit("-", 1)[0].split("-")[0].lower() for each in app.glob("*.dist-info")}
    python = [
        each for each in sbom.python_components(requirements.read_text()) if each["name"].replace("-", "_") in here
    ]
    return Made(recipe, [*(each.component() for each in packages), *python])


def _install(requirements: Path, target: Path) -> None:
    """Install the locked wheels for the Python of the image, which may be another one than this."""
    python = debian.PYTHON.removeprefix("python")
    chosen = locked.options(requirements, python)
    command = (sys.executable, "-m", "pip", "install", "--no-compile", *chosen, "--target", str(target))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise ImageError(f"pip cannot install {requirements.name}: {done.stderr.strip()}")
    for each in (target / "bin").glob("*"):
        each.unlink()


def _compile(root: Path) -> None:
    """Compile all modules with the Python of the image: where it runs, its file system is read-only."""
    (loader,) = (root / "lib64").glob("ld-linux-*.so.*") if (root / "lib64").is_dir() else (root / "lib").glob("ld-*")
    libraries = [str(each) for folder in ("lib", "usr/lib") for each in (root / folder).glob("*-linux-gnu")]
    command = (
        *(str(loader), "--library-path", ":".join(libraries), str(root / "usr/bin" / debian.PYTHON)),
        *("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(root), "-p", "/", str(root / "usr/lib" / debian.PYTHON), str(root / _APP)),
    )
    # Without chance in the order of sets, the same sources give the same bytes.
    environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise ImageError(f"the Python of the image does not run here: {(done.stderr or done.stdout).strip()}")


def _static(make: Callable[[Progress, str], ImageRecipe], *programs: str) -> Callable[[str, Workplace], Made]:
    """Return what makes an image of static programs, which are built from folders below go/."""

    def made(reference: str, at: Workplace) -> Made:
        return Made(make(at.progress, reference), list(sbom.go_components(ROOT / "go", programs)))

    return made


IMAGES: dict[str, Callable[[str, Workplace], Made]] = {
    "operator": partial(_python, command="operator"),
    "netpol": partial(_python, command="netpol-agent", more=debian.NFTABLES, user="0:0"),
    "hosted": _static(hostedimage.recipe, "hosted", "hosted-sidecar", "endpoint-proxy", "hosted-etcd"),
    "coredns": _static(recipes.coredns, "coredns"),
    "probe": _static(recipes.probe, "probe"),
}


def write(name: str, out: Path, *, repository: str = REPOSITORY, packages: Path | None = None) -> list[Path]:
    """Make an image and its bill of materials, and return both files.

    Args:
        name: One of `IMAGES`.
        out: The folder of the files.
        repository: What its reference begins with, such as "registry.example/tenantry".
        packages: As for `Workplace`.

    Raises:
        DebianError, ImageError, WheelError, TenantryError: It cannot be made; the message has the reason.
    """
    reference = images.check_reference(f"{repository}/{name}:{__version__}")
    target = out / f"tenantry-{name}-{__version__}-{images.architecture()}.oci.tar"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, StreamProgress() as progress:
        made = IMAGES[name](reference, Workplace(Path(temporary), packages, progress))
        labels = {
            "org.opencontainers.image.title": f"tenantry-{name}",
            "org.opencontainers.image.version": __version__,
            "org.opencontainers.image.licenses": "Apache-2.0",
        }
        images.write(replace(made.recipe, labels=labels, compression=_LEVEL), target)
    if target.stat().st_size > LIMIT_BYTES:
        raise ImageError(f"{target} has {target.stat().st_size} bytes, and may have {LIMIT_BYTES}")
    purl = f"pkg:oci/{name}@{__version__}?repository_url={repository}/{name}"
    bill = target.with_name(f"{target.name.removesuffix('.oci.tar')}.cdx.json")
    content = sbom.bill(f"tenantry-{name}", __version__, purl, made.components)
    bill.write_text(json.dumps(content, indent=2) + "\n")
    return [target, bill]


def main() -> int:
    """Make images; return 1 if one cannot be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(IMAGES)} (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the archives (default: dist)")
    parser.add_argument("--repository", default=REPOSITORY, help="what the names in the archives begin with")
    parser.add_argument("--packages", type=Path, help="folder of packages of Debian (default: the current ones)")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(IMAGES))
    if unknown:
        parser.error(f"there is no image {', '.join(unknown)}; there are {', '.join(IMAGES)}")
    try:
        for name in given.names or IMAGES:
            for each in write(name, given.out.resolve(), repository=given.repository, packages=given.packages):
                print(each)
    except (debian.DebianError, ImageError, wheels.WheelError, TenantryError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
