"""A local cluster with an operator, as `tenantry up` makes it, and the command on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from cli_command import NAME, SECONDS, Cli

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client


@pytest.fixture(scope="session")
def cli(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command, with a cluster that runs until the last file of this folder ends; see testkit.sharing."""
    command = Cli(tenantry_home, tmp_path_factory.mktemp("kubeconfigs"))
    no_name = {"TENANTRY_NAME": ""}
    # A busy machine needs more than the default.
    command.run("up", "--cluster", NAME, "--throwaway", f"--timeout={2 * SECONDS:.0f}s", environment=no_name)
    yield command
    command.run("down", "--cluster", NAME, "--purge", "--yes", environment=no_name)


@pytest_asyncio.fixture(scope="session")
async def cli_admin(cli: Cli) -> AsyncIterator[Client]:
    """A client of that cluster with all rights."""
    async with Client(kubeconfig.load([cli.admin_kubeconfig])) as client:
        yield client
