"""Makes everything that Tenantry needs from a checkout, with nothing but Python: `python3 tools/setup.py demo|dev`.

.venv with hash-locked dependencies, Tenantry itself (editable), and the binaries of the local control plane. What was
done is stamped with the hash of what it was done from, so that a second run does nothing.
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
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
# A set-up for development serves the demo as well, so it is looked at first.
REQUIREMENTS = {"dev": "dev.txt", "demo": "run.txt"}
_HEARTBEAT_SECONDS = 10.0
_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|Max retries exceeded|ConnectTimeout|ReadTimeout"
    r"|Connection refused|Could not find a version|Network is unreachable|ProxyError|SSLError"
)


class SetupError(Exception):
    """What went wrong and what to do about it."""


def say(text: str) -> None:
    """Print what is being done, to stderr."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def stamp(kind: str) -> str:
    """Return the digest of everything that the virtual environment is made from."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {kind}".encode())
    for file in (f"requirements/{REQUIREMENTS[kind]}", "pyproject.toml", "tools/setup.py", "src/tenantry/__init__.py"):
        digest.update(b"\0" + (ROOT / file).read_bytes())
    return digest.hexdigest()


def is_current(kind: str) -> bool:
    """Tell whether the virtual environment is what it would be made to be."""
    return any(
        (VENV / f".stamp-{each}").exists() and (VENV / f".stamp-{each}").read_text() == stamp(each)
        for each in (("dev",) if kind == "dev" else ("dev", "demo"))
    )


def run(what: str, command: list[str | Path], advice: str) -> None:
    """Run a command whose output goes to a log; its end is shown when it fails.

    Raises:
        SetupError: It failed: the advice, and the end of the log.
    """
    started = time.monotonic()
    say(what)
    # Two `with`: Python 3.8 could not even parse one in parentheses, and has to be told that it is too old.
    with LOG.open("ab") as log:  # noqa: SIM117
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT) as process:
            while process.returncode is None:
                try:
                    process.wait(timeout=_HEARTBEAT_SECONDS)
                except subprocess.TimeoutExpired:
                    say(f"{what} ({time.monotonic() - started:.0f} s)")
    if process.returncode:
        text = LOG.read_text(errors="replace")
        if _NETWORK.search(text[-20000:]):
            advice = "the package registry does not answer: check the network (pip's settings: `pip config list`)"
        elif "No space left" in text[-20000:]:
            advice = "the disk is full: about 1 GiB is needed for .venv"
        last = "\n".join(f"    {line}" for line in text.strip().splitlines()[-10:])
        raise SetupError(f"{what} failed: {advice}. The end of {LOG}:\n{last}")


def make_environment(kind: str) -> None:
    """Make .venv, or bring it up to date.

    Raises:
        SetupError: Python lacks a part, the network is down, or the disk is full.
    """
    if not works():
        if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
            raise SetupError(
                f"{sys.executable} cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
            )
        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir()
        base = getattr(sys, "_base_executable", sys.executable)
        advice = "see above; on Debian and Ubuntu it may need: apt install python3-venv"
        run("making .venv", [base, "-m", "venv", VENV], advice)
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    requirements = ROOT / "requirements" / REQUIREMENTS[kind]
    run(f"installing {requirements.relative_to(ROOT)}", [*pip, "--require-hashes", "-r", requirements], "see below")
    run("installing Tenantry", [*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT], "see below")
    for old in VENV.glob(".stamp-*"):
        old.unlink()
    (VENV / f".stamp-{kind}").write_text(stamp(kind))


def works() -> bool:
    """Tell whether .venv has a Python of this version; one copied or whose base was removed has none."""
    try:
        said = subprocess.run(
            [PYTHON, "-c", "import sys, pip; print(sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except OSError:
        return False
    return said.stdout.strip() == str(sys.version_info[:2])


@contextlib.contextmanager
def alone() -> Generator[None]:
    """Wait for another set-up of this checkout."""
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
    """Set up for the kind that the first argument names; the exit code is returned."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "demo"
    if kind not in REQUIREMENTS:
        print(f"usage: python3 tools/setup.py {'|'.join(REQUIREMENTS)}", file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever has an older one should be told, not shown a traceback
        print(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    try:
        with alone():
            if not is_current(kind):
                make_environment(kind)
        # It says itself what it does; nothing and 0.1 s where the cache has the binaries.
        build = [VENV / "bin" / "tenantry", "local", "build"]
        return subprocess.run(build, stdout=subprocess.DEVNULL, check=False).returncode
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
