"""A reader's shell: the commands of documents run in it as a person types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300


class Session:
    """A reader's shell: one folder, one home for local clusters, the command on PATH.

    Args:
        folder: The working directory; the examples of the repository are in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "examples").symlink_to(ROOT / "examples")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "TENANTRY_NAME"}},
            "TENANTRY_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
        }

    def run(self, command: str, *, is_output_alone: bool = False) -> tuple[int, str]:
        """Run one command in a shell and return its exit code and its output.

        Args:
            command: As typed.
            is_output_alone: Leave out what the command writes to stderr, unless it fails.
        """
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if is_output_alone else subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout + (done.stderr or "" if done.returncode else "")

    def down(self) -> None:
        """Stop every cluster of this shell and delete their data."""
        self.run("tenantry down --all --purge --yes")
