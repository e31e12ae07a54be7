"""Fixtures of the tests of virtual control planes: a cluster with the operator and simulated nodes, for all of them.

A test module asks for them by `pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import Api
from testkit.installation import install
from testkit.planes import Planes


@pytest_asyncio.fixture(scope="session")
async def plane_cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster of its own with the operator and simulated nodes."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("planes", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="blue"), NodeGroup(name="green")))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="session")
async def planes(plane_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Planes]:
    """Virtual control planes of the cluster."""
    async with Client(kubeconfig.load([plane_cluster.kubeconfig_path])) as client:
        yield Planes(Api(client), tmp_path_factory.mktemp("planes"))
