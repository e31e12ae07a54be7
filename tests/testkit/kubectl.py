"""kubectl as the user of a control plane."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from tenantry.local import build
from tenantry.local.progress import SilentProgress


class Kubectl:
    """kubectl as the user of a control plane.

    Args:
        path: The kubeconfig.
    """

    def __init__(self, path: Path) -> None:
        self._command = (str(build.ensure(SilentProgress()).kubectl), f"--kubeconfig={path}")

    def command(self, *arguments: str) -> list[str]:
        """Return a command."""
        return [*self._command, *arguments]

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60, check=False)

        return await asyncio.to_thread(call)

    async def out(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = await self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
