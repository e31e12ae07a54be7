"""One real control plane for all integration tests, started once; see tests/conftest.py for its home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import versions
from testkit.api import SECONDS


@pytest_asyncio.fixture(scope="session")
async def cluster(tenantry_home: Path) -> AsyncIterator[LocalCluster]:
    """A running throwaway cluster: no nodes, no operator, nothing of Tenantry in it."""
    local = LocalCluster("shared", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, kubernetes=versions.chosen(), timeout_seconds=2 * SECONDS))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="session")
async def admin(cluster: LocalCluster) -> AsyncIterator[Client]:
    """A client of the shared cluster with all rights."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield client
