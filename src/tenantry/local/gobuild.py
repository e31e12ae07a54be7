"""Runs `go build` and reports its progress."""

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
# The output of `go list` for each package; thousands of these lines would bury an error in the log.
_COUNTED = b"package"


@dataclass(frozen=True)
class Compilation:
    """One program to build.

    Args:
        go: The toolchain.
        folder: The folder of the module.
        package: The package, relative to that folder.
        arguments: More arguments of `go build`.
        output: The file to write.
        cgo: Whether to compile its parts in C.
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
    """Build a program and log Go's output; return whether the build succeeded.

    Args:
        compilation: What to build.
        name: Its name in messages.
        log: The file for Go's output.
        progress: Shows the numbers of modules fetched and packages compiled.
    """
    go = compilation.go
    fetched = 0

    def on_list(line: str) -> None:
        nonlocal fetched
        if line.startswith("# get ") and line.rstrip().endswith((".zip", "(200 OK)")) and ".zip" in line:
            # Go prints two lines for each archive of a module: the request, and the response.
            fetched += 1
        progress.update(f"{name}: fetching modules, {fetched // 2} so far")

    # Listing fetches exactly the modules that the build needs, and counts the packages.
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
        # Go does not print packages that its cache has, so the count may end early.
        what = f"{compiled} of at most {total} packages" if compiled < total else "linking"
        progress.update(f"{name}: compiling, {what}")

    building = [str(go.binary), "build", "-v", "-o", str(compilation.output), *compilation.arguments]
    return _stream([*building, compilation.package], compilation, log, on_build) is not None


def _tags(arguments: list[str]) -> list[str]:
    tags = ["-tags", arguments[arguments.index("-tags") + 1]] if "-tags" in arguments else []
    return [*tags, *(each for each in arguments if each.startswith("-modfile="))]


def _stream(
    command: list[str], compilation: Compilation, log: BinaryIO, on_line: Callable[[str], None]
) -> list[str] | None:
    """Run a command; return its lines, None if it failed. `on_line` is also called with "" twice a second."""
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
            # Ctrl-C: compilers started by go end with it.
            process.terminate()
            raise
        return lines if process.wait() == 0 else None
