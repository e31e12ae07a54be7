"""Install Tenantry from a folder of wheels as on a new machine, start a cluster, and measure until a tenant is Ready.

    make wheels && .venv/bin/python benchmarks/install.py --wheels dist

The home folder is empty and no Go is on PATH. `pipx` installs `tenantry[local]` if it is on PATH, otherwise `python -m
venv` and pip, as pipx does. All wheels come from one folder: first, those of requirements/run.txt are downloaded there.
Prints JSON: bytes that an installation downloads, and seconds of `install`, `up` and `tenant create --wait`. Fails if a
step does, or if the programs are built instead of unpacked. Everything is deleted again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).resolve().parent.parent
WANTED = "tenantry[local]"
STEP_SECONDS = 600


class Machine:
    """An empty home folder, and a PATH without Go.

    Args:
        folder: Where it is.
        pipx: The program, or None for pip.
    """

    def __init__(self, folder: Path, pipx: Path | None) -> None:
        self.home = folder / "home"
        self.wheels = folder / "wheels"
        self.pipx = pipx
        self._programs = folder / "bin"
        for each in (self.home, self.wheels, self._programs):
            each.mkdir()

    def run(self, *command: str | Path) -> str:
        """Run a command in that home, and return its output.

        Raises:
            SystemExit: It fails.
        """
        kept = {name: value for name, value in os.environ.items() if name.startswith(("LANG", "SSL_", "PIP_CERT"))}
        environment = kept | {
            "HOME": str(self.home),
            "PATH": f"{self._programs}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "PIPX_HOME": str(self.home / "pipx"),
            "PIPX_BIN_DIR": str(self._programs),
            "PIPX_DEFAULT_PYTHON": sys.executable,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        if shutil.which("go", path=environment["PATH"]):
            raise SystemExit("install: there is a Go in /usr/bin or /bin, which must not be used")
        done = subprocess.run(
            [str(each) for each in command],
            env=environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        text = done.stdout + done.stderr
        if done.returncode:
            raise SystemExit(f"install: `{' '.join(map(str, command))}` ended with {done.returncode}:\n{text}")
        if "building " in done.stderr:
            raise SystemExit(f"install: `{' '.join(map(str, command))}` built programs:\n{text}")
        return done.stdout

    def install(self) -> None:
        """Install Tenantry with its local clusters, from the wheels only."""
        source = ("--no-index", "--find-links", str(self.wheels))
        if self.pipx is not None:
            self.run(self.pipx, "install", WANTED, "--pip-args", " ".join(source))
            return
        environment = self.home / "venv"
        self.run(sys.executable, "-m", "venv", environment)
        self.run(environment / "bin" / "pip", "install", *source, WANTED)
        (self._programs / "tenantry").symlink_to(environment / "bin" / "tenantry")

    def tenantry(self, *arguments: str) -> str:
        """Run the installed command; as for `run`."""
        return self.run(self._programs / "tenantry", *arguments)


def downloaded(machine: Machine) -> dict[str, int]:
    """Return the wheels that an installation takes, with their bytes."""
    pip = (sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--ignore-installed", "--quiet")
    report = machine.run(*pip, "--no-index", "--find-links", machine.wheels, "--report", "-", WANTED)
    urls: list[str] = [each["download_info"]["url"] for each in json.loads(report)["install"]]
    files = [Path(unquote(urlparse(url).path)) for url in urls]
    return {file.name: file.stat().st_size for file in sorted(files)}


def main(wheels: Path, pipx: Path | None) -> None:
    """Install, start and measure."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tenantry-install-") as temporary:
        machine = Machine(Path(temporary), pipx)
        locked = ("--require-hashes", "--only-binary", ":all:", "-r", ROOT / "requirements" / "run.txt")
        # pipx brings pip up to date first, from the same folder.
        for wanted in (locked, *([("pip",)] if pipx else [])):
            fetch = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", machine.wheels, *wanted)
            subprocess.run([str(each) for each in fetch], check=True, timeout=STEP_SECONDS)
        for each in wheels.glob("tenantry*.whl"):
            shutil.copy(each, machine.wheels)
        sizes = downloaded(machine)
        began = time.monotonic()

        def done(step: str) -> None:
            seconds[step] = round(time.monotonic() - began - sum(seconds.values()), 1)

        machine.install()
        done("install")
        machine.tenantry("up", "--nodes", "3")
        try:
            done("up")
            machine.tenantry("tenant", "create", "acme", "--owner", "ada", "--wait")
            done("tenant")
            found = json.loads(machine.tenantry("get", "tenant", "acme", "-o", "json"))
        finally:
            machine.tenantry("down", "--purge", "--yes")
    ready = [each["status"] for each in found["status"]["conditions"] if each["type"] == "Ready"]
    if ready != ["True"]:
        raise SystemExit(f"install: the tenant is not Ready: {found['status']}")
    result = {
        "installer": "pipx" if pipx else "pip",
        "downloaded_bytes": sum(sizes.values()),
        "wheels": len(sizes),
        "seconds": seconds,
        "total_seconds": round(sum(seconds.values()), 1),
        "load": round(os.getloadavg()[0], 1),
    }
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="Folder of the wheels (default: dist).")
    parser.add_argument("--pipx", type=Path, help="The program pipx (default: the one on PATH, if there is one).")
    given = parser.parse_args()
    on_path = shutil.which("pipx")
    main(given.wheels.resolve(), given.pipx or (Path(on_path) if on_path else None))
