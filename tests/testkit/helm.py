"""The client of Helm as a user runs it, with a home of its own."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from tenantry.local import build
from tenantry.local.progress import SilentProgress
from testkit.tools import ROOT

CHART = ROOT / "deploy" / "chart"
"""The chart of Tenantry."""


class Helm:
    """The program, on the PATH of no user.

    Args:
        home: A folder for its caches and settings.
        kubeconfig: Credentials; None for commands that need no cluster.
    """

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._home = home
        self._flags = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))

    async def __call__(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = await self._run(arguments)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    async def refuses(self, *arguments: str) -> str:
        """Run a command that must fail, and return what it says."""
        done = await self._run(arguments)
        assert done.returncode != 0, f"helm {' '.join(arguments)} succeeds: {done.stdout}"
        return done.stdout + done.stderr

    async def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        program = await asyncio.to_thread(build.ensure, SilentProgress(), build.HELM)
        names = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME")
        environment = {**dict.fromkeys(names, str(self._home)), "PATH": "/usr/bin:/bin"}

        def call() -> subprocess.CompletedProcess[str]:
            command = (str(program.helm), *arguments, *self._flags)
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)

        return await asyncio.to_thread(call)
