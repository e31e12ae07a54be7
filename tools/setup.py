"""Set up a checkout with nothing but Python: `python3 tools/setup.py demo|dev|docs`.

`demo` and `dev` make .venv with hash-locked dependencies, install Tenantry there (editable), and build the binaries of
the local control plane. `docs` makes .venv-docs with the tools of the documentation site, and nothing else. A stamp in
each environment holds the hash of its inputs, so that a second run does nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = {"dev": "dev.txt", "demo": "run.txt", "docs": "docs.txt"}
_HEARTBEAT_SECONDS = 10.0
_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|Max retries exceeded|ConnectTimeout|ReadTimeout"
    r"|Connection refused|Could not find a version|Network is unreachable|ProxyError|SSLError"
)


class SetupError(Exception):
    """What went wrong and what to do about it."""


def folder(kind: str) -> Path:
    """Return the virtual environment of a kind: `make demo` must not wait for the tools of the site."""
    return ROOT / (".venv-docs" if kind == "docs" else ".venv")


def say(text: str) -> None:
    """Print the current step to stderr."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def stamp(kind: str) -> str:
    """Return the digest of the inputs of the virtual environment."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {kind}".encode())
    # __init__.py has the version, which the metadata of the editable installation repeats.
    for file in (f"requirements/{REQUIREMENTS[kind]}", "pyproject.toml", "tools/setup.py", "src/tenantry/__init__.py"):
        digest.update(b"\0" + (ROOT / file).read_bytes())
    return digest.hexdigest()


def is_current(kind: str) -> bool:
    """Return whether the virtual environment matches its inputs."""
    # An environment for development has all that the demo needs.
    stamps = {each: folder(kind) / f".stamp-{each}" for each in (("dev", "demo") if kind == "demo" else (kind,))}
    return any(file.exists() and file.read_text() == stamp(each) for each, file in stamps.items())


def run(what: str, command: list[str | Path], advice: str, venv: Path) -> None:
    """Run a command and write its output to the log of the environment.

    Raises:
        SetupError: The command failed. The message has the advice and the end of the log.
    """
    journal = venv / "setup.log"
    started = time.monotonic()
    say(what)
    # Python 3.8 cannot parse one `with` in parentheses, and must reach the message that it is too old.
    with journal.open("ab") as log:  # noqa: SIM117
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT) as process:
            while process.returncode is None:
                try:
                    process.wait(timeout=_HEARTBEAT_SECONDS)
                except subprocess.TimeoutExpired:
                    say(f"{what} ({time.monotonic() - started:.0f} s)")
    # pip reports a missing network as if the package did not exist: the log decides which advice is given.
    if process.returncode:
        text = journal.read_text(errors="replace")
        if _NETWORK.search(text[-20000:]):
            advice = "the package registry does not answer: check the network (pip's settings: `pip config list`)"
        elif "No space left" in text[-20000:]:
            advice = f"the disk is full: about 1 GiB is needed for {venv.name}"
        last = "\n".join(f"    {line}" for line in text.strip().splitlines()[-10:])
        raise SetupError(f"{what} failed: {advice}. The end of {journal}:\n{last}")


def make_environment(kind: str) -> None:
    """Create or update the virtual environment.

    Raises:
        SetupError: Python lacks a module, the network is down, or the disk is full.
    """
    venv = folder(kind)
    if not works(venv):
        if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
            raise SetupError(
                f"{sys.executable} cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
            )
        shutil.rmtree(venv, ignore_errors=True)
        venv.mkdir()
        # Without this, an environment made from within another one would need that other one.
        base = getattr(sys, "_base_executable", sys.executable)
        advice = "see above; on Debian and Ubuntu it may need: apt install python3-venv"
        run(f"making {venv.name}", [base, "-m", "venv", venv], advice, venv)
    pip: list[str | Path] = [
        venv / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
    ]
    requirements = ROOT / "requirements" / REQUIREMENTS[kind]
    locked = [*pip, "--require-hashes", "-r", requirements]
    run(f"installing {requirements.relative_to(ROOT)}", locked, "see below", venv)
    if kind != "docs":
        editable = [*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT]
        run("installing Tenantry", editable, "see below", venv)
    # The requirements of another kind may have replaced packages, so its stamp does not hold any more.
    for old in venv.glob(".stamp-*"):
        old.unlink()
    (venv / f".stamp-{kind}").write_text(stamp(kind))


def works(venv: Path) -> bool:
    """Return whether the environment has a Python of this version; a copied environment, for example, has none."""
    try:
        done = subprocess.run(
            [venv / "bin" / "python", "-c", "import sys, pip; print(sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except OSError:
        return False
    return done.stdout.strip() == str(sys.version_info[:2])


@contextlib.contextmanager
def alone() -> Generator[None]:
    """Wait until no other set-up of this checkout runs."""
    # A lock on the folder leaves no file behind, and the kernel releases it with the process.
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this checkout")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Set up the kind that the first argument names, and return the exit code."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "demo"
    if kind not in REQUIREMENTS:
        print(f"usage: python3 tools/setup.py {'|'.join(REQUIREMENTS)}", file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets a message instead of a traceback
        print(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    try:
        with alone():
            if not is_current(kind):
                make_environment(kind)
        # The command reports its own progress. It takes 0.1 s if the cache has the binaries.
        build = [folder(kind) / "bin" / "tenantry", "local", "build"]
        return 0 if kind == "docs" else subprocess.run(build, stdout=subprocess.DEVNULL, check=False).returncode
    except SetupError as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"{error}; the checkout must be writable and its disk must have room")
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
