"""Throwaway control planes on this machine, beside the cluster that is measured."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenantry.bench.footprint import FootprintCluster
    from tenantry.bench.planes.processes import StockServer
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.state import ClusterState

START_SECONDS = 300.0
"""A busy machine may start a control plane slowly."""


async def started(stack: AsyncExitStack, root: Path, name: str, *, tenantry: bool) -> FootprintCluster:
    """Start a control plane that ends with the stack.

    Args:
        stack: Ends it.
        root: The folder of its data.
        name: Its name.
        tenantry: Whether Tenantry is installed in it.

    Raises:
        LocalError: It cannot be started.
    """
    from tenantry.local.cluster import LocalCluster

    cluster = LocalCluster(name, root=root)
    stack.push_async_callback(cluster.down, purge=True)
    return await _up(cluster, tenantry=tenantry)


@contextmanager
def stock_server() -> Generator[StockServer]:
    """Run a stock API server while the context is open.

    Raises:
        LocalError: It cannot be started.
    """
    from tenantry.bench.planes.processes import StockServer
    from tenantry.local.cluster import LocalCluster

    with tempfile.TemporaryDirectory(prefix="tenantry-stock-") as folder:
        cluster = LocalCluster("stock", root=Path(folder))
        try:
            # Not in uvloop, in which benchmarks run: see `footprint`.
            plain = asyncio.run(_up(cluster, tenantry=False))
            yield StockServer(plain.restart)
        finally:
            asyncio.run(cluster.down(purge=True))


async def _up(cluster: LocalCluster, *, tenantry: bool) -> FootprintCluster:
    from tenantry.bench.footprint import FootprintCluster
    from tenantry.cli.local.up import guard, install
    from tenantry.kube import kubeconfig
    from tenantry.local.cluster import UpOptions
    from tenantry.local.components import APISERVER
    from tenantry.local.progress import StreamProgress

    options = (
        UpOptions(throwaway=True, operator=True, install=install, guard=guard, timeout_seconds=START_SECONDS)
        if tenantry
        else UpOptions(throwaway=True, timeout_seconds=START_SECONDS)
    )
    with StreamProgress() as progress:
        up = await cluster.up(options, progress)

    def pid(state: ClusterState) -> int:
        return next(each.pid for each in state.components if each.name == APISERVER)

    async def restart() -> int:
        await cluster.restart_component(APISERVER, START_SECONDS)
        return pid(cluster.status())

    connection = kubeconfig.load([cluster.kubeconfig_path])
    return FootprintCluster(connection=connection, pid=pid(up.state), restart=restart, tenantry=tenantry)
