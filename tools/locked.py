"""Which wheels pip takes for locked requirements and a Python that may be another one than this."""

from __future__ import annotations

import platform
from pathlib import Path

_GLIBC_MINORS = (36, 34, 31, 28, 27, 26, 24, 17)


def options(requirements: Path, python: str) -> tuple[str, ...]:
    """Return the options of `pip install` and `pip download`.

    Args:
        requirements: A file with exact versions and hashes.
        python: The minor version of CPython on Linux, as in 3.11. Its C library is that of Debian 12 or newer.
    """
    machine = platform.machine()
    tags = (*(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS), f"manylinux2014_{machine}")
    return (
        *("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--requirement", str(requirements), "--implementation", "cp", "--python-version", python),
        *(word for tag in tags for word in ("--platform", tag)),
    )
