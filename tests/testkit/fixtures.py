"""Fixtures of the integration tests of tenants: a cluster of their own with Tenantry in it, and one operator.

A test module asks for them by `pytest_plugins = ["testkit.fixtures"]`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.controllers.operator import controllers
from tenantry.engine.cluster import HOME, Cluster
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.engine.tasks import in_background
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import versions
from testkit.api import SECONDS, Api
from testkit.clock import ManualClock
from testkit.installation import install
from testkit.operators import Operator
from testkit.pool import Pool
from testkit.requests import People
from testkit.trees import Trees


@pytest_asyncio.fixture(scope="session")
async def tenancy(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A throwaway cluster with Tenantry in it, and no operator."""
    local = LocalCluster("tenancy", root=tenantry_home)
    # The installation counts as one step, which takes 40 s if fifteen processes share each processor [measured].
    options = UpOptions(throwaway=True, install=install, kubernetes=versions.chosen(), timeout_seconds=3 * SECONDS)
    await local.up(options)
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="session")
async def api(tenancy: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of the cluster."""
    async with Client(kubeconfig.load([tenancy.kubeconfig_path])) as client:
        yield Api(client)


@pytest_asyncio.fixture(scope="session")
async def the_operator(tenancy: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Operator]:
    """The replica that all tests share; see `operator`."""
    log = tmp_path_factory.mktemp("operator") / "log"
    # Tests leave more tenants than have series of their own by default, those without a quota before all others.
    flags = ("--metrics-tenants=10000", *versions.webhook_flags(tenancy))
    shared = Operator(tenancy.paths.kubeconfig("operator"), log, *flags)
    yield shared
    await shared.stop()


@pytest_asyncio.fixture
async def operator(the_operator: Operator) -> Operator:
    """The one operator of the cluster: it runs and leads, whatever the test before did to it."""
    if not the_operator.is_running:
        await the_operator.start()
    await the_operator.leads()
    return the_operator


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def trees(api: Api) -> Trees:
    """Trees, as an administrator sees them."""
    return Trees(api)


@pytest_asyncio.fixture
async def pool(api: Api, name: str) -> AsyncGenerator[Pool]:
    """Nodes of this test only, of 8 CPUs and 32 GiB each."""
    made = Pool(api, name)
    yield made
    await made.end()


@pytest_asyncio.fixture
async def people(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[People]:
    """Users with client certificates."""
    async with AsyncExitStack() as stack:
        yield People(tenancy, tmp_path, stack)


@pytest_asyncio.fixture
async def clock(tenancy: LocalCluster, the_operator: Operator) -> AsyncGenerator[ManualClock]:
    """The clock of the only engine that runs, in this process and instead of the shared operator."""
    await the_operator.stop()
    turned = ManualClock(dt.datetime.now(dt.UTC).replace(microsecond=0))
    connection = kubeconfig.load([tenancy.paths.kubeconfig("operator")])
    async with Client(connection, field_manager=marks.FIELD_MANAGER) as client:
        uid = (await client.get(Namespace, "kube-system")).metadata.uid
        runtime = Runtime(clock=turned, metrics=Metrics())
        runtime.add(Cluster(HOME, client, clock=turned, instance="test"), controllers(uid))
        running = asyncio.create_task(runtime.run())
        async with in_background(_pass_slowly(turned)):
            yield turned
        runtime.stop()
        await running


async def _pass_slowly(clock: ManualClock) -> None:
    """Let a second of the clock pass in fifty: a request that the busy API server fails once is tried again."""
    while True:
        await asyncio.sleep(1.0)
        clock.advance(0.02)
