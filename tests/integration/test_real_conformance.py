"""Kubernetes' conformance tests that need no running pod, in a virtual control plane with default settings.

`make test-release` runs them; `make test` skips them (TENANTRY_TEST_REAL=0): they take ten minutes. The host's nodes
are simulated. Two pods bring two nodes to the control plane, and take the whole quota of pods: no pod of a test runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.bench.planes.processes import process_cost
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.process import kill_if_same
from tenantry.local.progress import SilentProgress
from tenantry.local.state import ComponentState, read_state
from testkit import conformance
from testkit.api import PODS, SECONDS, Api, until
from testkit.installation import install
from testkit.planes import Planes, vcp

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

_IS_RELEASE = os.environ.get("TENANTRY_TEST_REAL") == "1"
_SKIPPED = os.environ.get("TENANTRY_TEST_REAL") == "0" or not (_IS_RELEASE or build.built(build.CONFORMANCE))
pytestmark = [
    pytest.mark.skipif(_SKIPPED, reason="`make test-release` runs Kubernetes' conformance tests"),
    # The program of the tests may have to be built first.
    pytest.mark.timeout(3600),
]

COLLECTOR = ("TENANTRY_GOGC", "GOMEMLIMIT")
RUN_SECONDS = 900.0
REST_SECONDS = 60.0
"""How long after the tests the memory is measured again."""

TENANT = "conformance"
PLANE = "web"
NODES = 2
RULES: Json = {
    "services": {
        "types": ["ClusterIP", "NodePort", "LoadBalancer"],
        "externalName": "Allow",
        "externalIPs": "Allow",
    }
}
"""What the host allows this tenant: conformance tests make Services of all types; the standard has only ClusterIP."""

SUBSET = ("Watchers", "Discovery", "CustomResourceDefinition resources", "ServiceAccounts", "Namespaces", "Services")
"""The tests that are run again after a kill: those with one of these words."""


@pytest.fixture(scope="module")
def program() -> build.Binaries:
    """The program of the tests."""
    return build.ensure(SilentProgress(), build.CONFORMANCE)


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path) -> AsyncIterator[LocalCluster]:
    """A host with the operator and simulated nodes."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("conformance", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="blue"), NodeGroup(name="green")))
    options = UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0)
    with pytest.MonkeyPatch.context() as environment:
        # The process has the collector of the product, not that of other tests: its memory is reported.
        for name in COLLECTOR:
            environment.delenv(name, raising=False)
        await local.up(options)
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def user(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The kubeconfig of a control plane with default settings, and with two nodes."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        planes = Planes(Api(client), tmp_path_factory.mktemp("planes"))
        await planes.host.make_tenant(TENANT, quota={"hard": {"pods": NODES}}, rules=RULES)
        await planes.create(TENANT, PLANE)
        async with planes.entered(TENANT, PLANE) as inside:
            await conformance.bring_nodes(inside, _CONTAINER, NODES, 2 * SECONDS)
            yield planes.kubeconfig(TENANT, PLANE)


_CONTAINER: Json = {"name": "pause", "image": "registry.example.com/pause:1"}


def _process(cluster: LocalCluster) -> ComponentState:
    state = read_state(cluster.paths)
    found = state.component(f"hosted@{TENANT}.{PLANE}") if state is not None else None
    assert found is not None
    return found


async def _killed(cluster: LocalCluster) -> None:
    """End the process; the supervisor starts it again."""
    before = _process(cluster)
    assert kill_if_same(before.pid, before.start_ticks, signal.SIGKILL)

    async def is_another() -> bool:
        return _process(cluster).pid not in (0, before.pid)

    await until(is_another, "the supervisor has started the process again", seconds=2 * SECONDS)


async def _slept(cluster: LocalCluster) -> None:
    """End the process as after a time without requests; the next request starts it again."""
    code, _, output = await vcp(cluster, "sleep", PLANE, "-n", TENANT)
    assert code == 0, output


INTERRUPTIONS: dict[str, tuple[Callable[[LocalCluster], Awaitable[None]], tuple[str, ...]]] = {
    "killed": (_killed, SUBSET),
    "slept": (_slept, ("",)),
}
"""What ends the process, and the words of which a test that runs afterwards has one."""


async def test_the_lists_divide_the_conformance_tests_of_the_release(program: build.Binaries) -> None:
    """A new release adds tests, and renames some: each must be in one of both lists."""
    without, with_pods = (conformance.names(each) for each in (conformance.PODLESS, conformance.WITH_PODS))
    known = await conformance.known(program)
    assert sorted((*without, *with_pods)) == sorted(known)


async def test_all_conformance_tests_without_pods_pass(
    cluster: LocalCluster, program: build.Binaries, user: Path, tmp_path: Path
) -> None:
    """H01: a control plane with default settings; a skip is a failure."""
    wanted = conformance.names(conformance.PODLESS)
    before = process_cost(_process(cluster).pid)
    found = await conformance.run(program, user, wanted, tmp_path / "run", RUN_SECONDS)
    after = process_cost(_process(cluster).pid)
    await asyncio.sleep(REST_SECONDS)
    rested = process_cost(_process(cluster).pid)
    seen = " MB, then ".join(f"{each.private_megabytes:.0f}" for each in (before, after, rested))
    memory = f"private memory {seen} MB after {REST_SECONDS:.0f} s without them"
    seconds = after.cpu_seconds - before.cpu_seconds
    print(f"{len(found.passed)} of {len(wanted)} conformance tests passed; {memory}; {seconds:.0f} s of CPU")
    assert not found.others
    assert found.passed == frozenset(wanted)


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_conformance_tests_pass_after_an_interruption(
    cluster: LocalCluster, program: build.Binaries, user: Path, tmp_path: Path, interruption: str
) -> None:
    """H02: some of them, or all, after the process has ended and has begun again with the objects that it had."""
    end, words = INTERRUPTIONS[interruption]
    wanted = tuple(
        each for each in conformance.names(conformance.PODLESS) if any(f"] {word}" in each for word in words)
    )
    assert wanted
    await end(cluster)
    async with Client(kubeconfig.load([user])) as client:
        await until(lambda: _answers(Api(client)), "the API server is back", seconds=3 * SECONDS)
    found = await conformance.run(program, user, wanted, tmp_path / "run", RUN_SECONDS)
    print(f"{interruption}: {len(found.passed)} of {len(wanted)} conformance tests passed")
    assert not found.others


async def _answers(inside: Api) -> bool:
    try:
        await inside.list(PODS, "default")
    except Exception:  # noqa: BLE001 - it is away for a moment
        return False
    return True
