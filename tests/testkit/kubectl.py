"""kubectl as the user of a control plane."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.local import build
from tenantry.local.progress import SilentProgress


class Kubectl:
    """kubectl as the user of a control plane.

    Args:
        path: The kubeconfig.
        variables: More environment variables.
    """

    def __init__(self, path: Path, variables: Mapping[str, str] | None = None) -> None:
        self.environment = {**os.environ, **(variables or {})}
        self._command = (str(build.ensure(SilentProgress()).kubectl), f"--kubeconfig={path}")

    def command(self, *arguments: str) -> list[str]:
        """Return a command."""
        return [*self._command, *arguments]

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                self.command(*arguments),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        return await asyncio.to_thread(call)

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
        """Run a command with pipes while the context is open."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments), env=self.environment, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def out(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = await self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
