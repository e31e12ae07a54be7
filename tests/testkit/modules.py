"""The sources of Go modules that tests take files from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tenantry.local import sources, toolchain
from tenantry.local.progress import SilentProgress


def folder(program: str, module: str) -> Path:
    """Return the folder of a module, in the version that a program of `go/` has.

    Args:
        program: The folder of the program.
        module: The path of the module.
    """
    go = toolchain.find(SilentProgress())
    done = subprocess.run(
        [str(go.binary), "list", "-m", "-f", "{{.Dir}}", module],
        cwd=sources.root() / "go" / program,
        env=go.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
