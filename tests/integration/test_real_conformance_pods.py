"""Kubernetes' conformance tests that need running pods, in a virtual control plane on real nodes.

`TENANTRY_TEST_PODS=1` runs them, for about an hour: docs/virtual-control-planes.md has the command. Their results are
compared with the list of those that are known to fail, and their causes: a test that fails newly, or passes newly, is
reported. The rules of the tenant are as wide as they can be, so that what fails is due to the control plane.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from testkit import conformance, e2eimages
from testkit.api import Api
from testkit.installation import install
from testkit.planes import Planes
from testkit.realpods import START_SECONDS, RealPods, missing

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

_SKIPPED = "" if os.environ.get("TENANTRY_TEST_PODS") == "1" else "TENANTRY_TEST_PODS=1 runs them, for about an hour"
pytestmark = [
    pytest.mark.skipif(bool(_SKIPPED or missing()), reason=_SKIPPED or missing()),
    pytest.mark.timeout(7200),
]

NODES = 2
AT_ONCE = 4
RUN_SECONDS = 5400.0
TENANT = "conformance"
PLANE = "web"
QUOTA: Json = {
    "pods": 500,
    "count/services": 1000,
    "count/secrets": 2000,
    "count/configmaps": 1000,
    "count/networkpolicies.networking.k8s.io": 500,
}
"""Beyond the standard numbers: all namespaces inside are one namespace on the host, and a test makes 200 Services."""
RULES: Json = {
    "podSecurity": {
        "level": "Privileged",
        "sysctls": ["kernel.shm_rmid_forced"],
    },
    "images": {"cached": "Allow"},
    "priorityClasses": {"system": "Allow"},
    "scheduling": {"nodeName": "Allow", "otherTenants": "Allow", "controlPlaneTolerations": "Allow"},
    "services": {
        "types": ["ClusterIP", "NodePort", "LoadBalancer"],
        "externalName": "Allow",
        "externalIPs": "Allow",
        "endpoints": "Allow",
    },
    "storageClasses": {"existingVolumes": "Allow"},
    "tokens": {"secrets": "Allow"},
}
AREAS = (
    *("sig-api-machinery", "sig-apps", "sig-auth", "sig-cli", "sig-network", "sig-node", "sig-scheduling"),
    "sig-storage",
)


@pytest.fixture(scope="module")
def program() -> build.Binaries:
    """The program of the tests."""
    return build.ensure(SilentProgress(), build.CONFORMANCE)


class Ground:
    """Where the tests run.

    Args:
        user: The kubeconfig of the control plane.
        registries: The file that maps registries of images.
    """

    def __init__(self, user: Path, registries: Path) -> None:
        self.user = user
        self.registries = registries


@pytest_asyncio.fixture(scope="module")
async def ground(
    tenantry_home: Path, program: build.Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    """A control plane on two real nodes, both of which it sees."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    cluster = LocalCluster("podconformance", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=NODES, install=install, operator=True, timeout_seconds=180.0))
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield await prepare(cluster, client, program, tmp_path_factory.mktemp("ground"))
    await cluster.down(purge=True)


async def prepare(cluster: LocalCluster, client: Client, program: build.Binaries, folder: Path) -> Ground:
    """Load the images of the tests, and create the tenant with its control plane.

    Args:
        cluster: The host, with the operator.
        client: An administrator of the host.
        program: The program of the tests.
        folder: For files that the tests need.
    """
    pods = RealPods(cluster, Api(client))
    registries = e2eimages.write_registries(folder)
    references = await e2eimages.load(pods, program, registries, folder)
    planes = Planes(pods.api, folder)
    isolation = {"runtime": "Shared", "network": "Open"}
    await pods.api.make_tenant(TENANT, quota={"hard": QUOTA}, rules=RULES, isolation=isolation)
    await planes.create(TENANT, PLANE)
    (pause,) = (each for each in references if "/pause:" in each)
    async with planes.entered(TENANT, PLANE) as inside:
        await conformance.bring_nodes(inside, {"name": "pause", "image": pause}, NODES, START_SECONDS)
    return Ground(planes.kubeconfig(TENANT, PLANE), registries)


@pytest.mark.parametrize("area", AREAS)
async def test_conformance_tests_with_pods(ground: Ground, program: build.Binaries, tmp_path: Path, area: str) -> None:
    """H01: those of an area that may run beside each other."""
    wanted = [each for each in conformance.names(conformance.WITH_PODS) if each.startswith(f"[{area}]")]
    parallel = [each for each in wanted if conformance.SERIAL not in each]
    await _check(ground, program, tmp_path, [tuple(parallel[number::AT_ONCE]) for number in range(AT_ONCE)])


async def test_serial_conformance_tests_with_pods(ground: Ground, program: build.Binaries, tmp_path: Path) -> None:
    """H01: those that must run alone."""
    wanted = tuple(each for each in conformance.names(conformance.WITH_PODS) if conformance.SERIAL in each)
    await _check(ground, program, tmp_path, [wanted])


async def _check(ground: Ground, program: build.Binaries, folder: Path, groups: list[tuple[str, ...]]) -> None:
    environment = {e2eimages.VARIABLE: str(ground.registries)}
    found = await conformance.run_groups(program, ground.user, groups, folder / "run", RUN_SECONDS, **environment)
    wanted = {each for group in groups for each in group}
    failing = {test for cause in conformance.failing() for test in cause.tests} & wanted
    print(f"{len(found.passed)} of {len(wanted)} conformance tests passed; {len(failing)} are known to fail")
    assert {name: told for name, told in found.others.items() if name not in failing} == {}
    assert sorted(failing & found.passed) == []
