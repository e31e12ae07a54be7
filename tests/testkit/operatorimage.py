"""An image of the operator without a container engine: this interpreter, its libraries, and the packages that it needs.

tools/images.py makes the image that users get, from packages of Debian. This one needs no network, and is only for
nodes on this machine, which has the same libc.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import tenantry
from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe

REFERENCE = "tenantry.local/operator:1"
_ROOT = Path(__file__).resolve().parents[2]
_UNUSED = {"site-packages", "test", "tests", "__pycache__", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}


def write(target: Path) -> None:
    """Write the image."""
    program = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    packages = stdlib / "site-packages"
    files = {str(stdlib / name): path for name, path in _below(stdlib)}
    files |= {str(packages / name): path for name, path in _needed()}
    own = Path(tenantry.__file__).parent
    files |= {str(packages / "tenantry" / name): path for name, path in _below(own)}
    libraries = [program, *(path for path in files.values() if ".so" in path.suffixes or path.suffix == ".so")]
    files |= {str(path): path for path in _libraries(libraries)}
    files[str(program)] = program
    recipe = ImageRecipe(reference=REFERENCE, files=files, entrypoint=(str(program), "-m", "tenantry"), user="65532")
    images.write(recipe, target)


def _below(folder: Path) -> Iterator[tuple[Path, Path]]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and not _UNUSED & set(name.parts) and path.suffix != ".a":
            yield name, path


def _needed() -> Iterator[tuple[Path, Path]]:
    """Yield the files of the packages in requirements/operator.txt, by their places."""
    for line in (_ROOT / "requirements/operator.txt").read_text().splitlines():
        found = re.match(r"([a-z0-9-]+)==", line)
        try:
            listed = importlib.metadata.distribution(found[1]).files if found else ()
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        for each in listed or ():
            path = Path(str(each.locate()))
            if ".." not in each.parts and "__pycache__" not in each.parts and path.is_file():
                yield Path(each), path


def _libraries(programs: Iterable[Path]) -> set[Path]:
    command = ("/usr/bin/env", "ldd", *map(str, programs))
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {Path(each) for each in re.findall(r"(?:=> |^\s)(/\S+) \(0x", listed, re.MULTILINE)}
