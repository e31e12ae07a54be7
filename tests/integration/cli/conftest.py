"""A local cluster with an operator, as `tenantry up` makes it, and the command as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster

NAME = "cli"
SECONDS = 120.0


class Cli:
    """The command, on one local cluster.

    Args:
        home: TENANTRY_HOME.
        folder: For the kubeconfigs of people.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.admin_kubeconfig = LocalCluster(NAME, root=home).kubeconfig_path

    def run(
        self, *arguments: str, code: int = 0, stdin: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own and return what it said; another exit code fails the test."""
        inherited = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "NO_COLOR"}}
        variables = {**inherited, "TENANTRY_HOME": str(self.home), "TENANTRY_NAME": NAME, **(environment or {})}
        done = subprocess.run(
            [sys.executable, "-m", "tenantry", *arguments],
            input=stdin,
            env=variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON is anything
        """Run the command and return the JSON that it printed."""
        return msgspec.json.decode(self.run(*arguments, code=code).stdout)

    def kubectl(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the cluster's own kubectl, as an administrator or as whoever a kubeconfig names."""
        who = ("--kubeconfig", str(kubeconfig)) if kubeconfig else ()
        return subprocess.run(
            [sys.executable, "-m", "tenantry", "kubectl", "--name", NAME, "--", *who, *arguments],
            env={**os.environ, "TENANTRY_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture(scope="session")
def cli(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command, with a cluster that runs."""
    command = Cli(tenantry_home, tmp_path_factory.mktemp("kubeconfigs"))
    no_name = {"TENANTRY_NAME": ""}
    command.run("up", "--name", NAME, "--throwaway", environment=no_name)
    yield command
    command.run("down", "--name", NAME, "--purge", "--yes", environment=no_name)


@pytest_asyncio.fixture(scope="session")
async def cli_admin(cli: Cli) -> AsyncIterator[Client]:
    """A client of that cluster with all rights."""
    async with Client(kubeconfig.load([cli.admin_kubeconfig])) as client:
        yield client
