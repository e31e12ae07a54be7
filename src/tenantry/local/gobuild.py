"""Runs `go build` and says how far it is."""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tenantry.api.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenantry.local.progress import Progress
    from tenantry.local.toolchain import GoToolchain

_LIMIT_SECONDS = 3600.0
# What `go list` prints for each package; thousands of them would bury an error in the log.
_COUNTED = b"package"


@dataclass(frozen=True)
class Compilation:
    """One program to build.

    Args:
        go: The toolchain.
        folder: Of the module.
        package: The package, seen from there.
        arguments: More arguments of `go build`.
        output: The file to write.
        cgo: Whether its parts in C are compiled, too.
    """

    go: GoToolchain
    folder: Path
    package: str
    arguments: tuple[str, ...]
    output: Path
    cgo: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the toolchain, with C or without."""
        return self.go.environment | {"CGO_ENABLED": "1" if self.cgo else "0"}


def run(compilation: Compilation, name: str, log: BinaryIO, progress: Progress) -> bool:
    """Build it; whether that worked is returned, and everything that Go printed is in the log.

    Args:
        compilation: What to build.
        name: What to call it.
        log: Where Go's output goes.
        progress: Told about modules fetched and packages compiled.
    """
    go = compilation.go
    fetched = 0

    def on_list(line: str) -> None:
        nonlocal fetched
        if line.startswith("# get ") and line.rstrip().endswith((".zip", "(200 OK)")) and ".zip" in line:
            fetched += 1
        progress.update(f"{name}: fetching modules, {fetched // 2} so far")

    # Listing fetches exactly the modules that the build needs, and tells how many packages there are.
    arguments = [arg for arg in compilation.arguments if arg != "-trimpath"]
    listing = [str(go.binary), "list", "-x", "-deps", *_tags(arguments), "-f", _COUNTED.decode(), compilation.package]
    packages = _stream(listing, compilation, log, on_list)
    if packages is None:
        return False
    total = packages.count(_COUNTED.decode())
    compiled = 0

    def on_build(line: str) -> None:
        nonlocal compiled
        compiled += bool(line) and " " not in line
        # Packages that Go's own cache has are not printed, so the count may end early.
        what = f"{compiled} of at most {total} packages" if compiled < total else "linking"
        progress.update(f"{name}: compiling, {what}")

    building = [str(go.binary), "build", "-v", "-o", str(compilation.output), *compilation.arguments]
    return _stream([*building, compilation.package], compilation, log, on_build) is not None


def _tags(arguments: list[str]) -> list[str]:
    return ["-tags", arguments[arguments.index("-tags") + 1]] if "-tags" in arguments else []


def _stream(
    command: list[str], compilation: Compilation, log: BinaryIO, on_line: Callable[[str], None]
) -> list[str] | None:
    """Run a command; its lines are returned, None where it failed. `on_line` is also called with "" now and then."""
    lines: list[str] = []
    rest = b""
    deadline = time.monotonic() + _LIMIT_SECONDS
    with subprocess.Popen(
        command,
        cwd=compilation.folder,
        env=compilation.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        if process.stdout is None:
            raise LocalError("go was started without a pipe")
        descriptor = process.stdout.fileno()
        try:
            while time.monotonic() < deadline:
                if not select.select([descriptor], [], [], 0.5)[0]:
                    on_line("")
                    continue
                data = os.read(descriptor, 65536)
                if not data:
                    break
                *complete, rest = (rest + data).split(b"\n")
                for raw in complete:
                    if raw != _COUNTED:
                        log.write(raw + b"\n")
                    line = raw.decode(errors="replace")
                    lines.append(line)
                    on_line(line)
                log.flush()
            else:
                process.kill()
        except BaseException:
            # Ctrl-C: the compilers that go started end with it.
            process.terminate()
            raise
        return lines if process.wait() == 0 else None
