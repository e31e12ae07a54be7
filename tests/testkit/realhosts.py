"""Local clusters with real nodes that can host control planes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from testkit.api import Api
from testkit.installation import install
from testkit.realpods import RealPods


async def start(local: LocalCluster, *, nodes: int) -> None:
    """Start a cluster with real nodes and the operator, or start it again."""
    await local.up(UpOptions(throwaway=True, install=install, operator=True, real_nodes=nodes, timeout_seconds=240.0))


@asynccontextmanager
async def hosting(name: str, home: Path, images: Path, *, nodes: int) -> AsyncGenerator[RealPods]:
    """Run a cluster with the operator and the image of test pods on its nodes, while the context is open.

    Args:
        name: Of the cluster.
        home: The folder of local clusters.
        images: A folder for the image.
        nodes: How many real nodes it has; one stays shared.
    """
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster(name, root=home)
    await start(local, nodes=nodes)
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        found = RealPods(local, Api(client))
        await found.load_image(images)
        yield found
    await local.down(purge=True)
