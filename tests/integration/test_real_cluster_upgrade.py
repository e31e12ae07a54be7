"""An upgrade of a cluster from one version of Kubernetes to the next: plan, obstacles, soak, and the way back (H04).

`make test-release` runs it; `make test` skips it (TENANTRY_TEST_REAL=0), as test_real_upgrade.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build, hostedversions
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import CONFIG_MAPS, SECONDS, Api, until
from testkit.installation import install
from testkit.load import Load
from testkit.planes import command

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
EARLIER, LATER = hostedversions.known()[-2:]
_IS_RELEASE = os.environ.get("TENANTRY_TEST_REAL") == "1"
_IS_BUILT = build.built(hostedversions.product(EARLIER.name)) is not None
_SKIPPED = os.environ.get("TENANTRY_TEST_REAL") == "0" or not (_IS_RELEASE or _IS_BUILT)
pytestmark = [
    pytest.mark.skipif(_SKIPPED, reason="`make test-release` upgrades clusters"),
    # The program of the earlier version may have to be built first.
    pytest.mark.timeout(3600),
]
CLUSTERS = DedicatedCluster.resource
HOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "", namespaced=False)
HOOK: Json = {
    "metadata": {"name": "dead"},
    "webhooks": [
        {
            "name": "dead.example.com",
            "clientConfig": {"service": {"namespace": "default", "name": "dead"}},
            "rules": [
                {"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
            ],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


@pytest_asyncio.fixture(scope="session")
async def host_cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator and two simulated nodes, of which one stays shared."""
    for each in (EARLIER, LATER):
        await asyncio.to_thread(build.ensure, SilentProgress(), hostedversions.product(each.name))
    local = LocalCluster("upgrades", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=2),))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield local
    await local.down(purge=True)


def is_complete(found: Json) -> bool:
    """Return whether a cluster has its one node, and upgrades no more."""
    status = found["status"]
    return status["readyNodes"] == "1/1" and "Upgrading" not in {each["type"] for each in status["conditions"]}


async def answered(inside: Api) -> tuple[str, str]:
    """Return the version of the program of an API server, and the minor version that it behaves as."""
    found = json.loads(await inside.client.request("GET", "/version"))
    return found["gitVersion"].removeprefix("v"), f"1.{found['emulationMinor']}"


async def test_an_upgrade_waits_for_obstacles_soaks_and_is_aborted_with_all_objects(
    host_cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H04: no request fails that the client tries once more; data is written in every phase."""
    failed: list[str] = []

    async def run(verb: str, *arguments: str, code: int = 0) -> str:
        exits, out, err = await command(host_cluster, "cluster", verb, name, *arguments)
        assert exits == code, err
        return out + err

    await run("create", "--nodes", "1", "--version", EARLIER.name, "--wait", "--timeout", "5m")
    (tmp_path / "kubeconfig").write_text(await run("kubeconfig"))
    async with (
        Client(kubeconfig.load([host_cluster.kubeconfig_path])) as admin,
        Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client,
    ):
        host, inside, load = Api(admin), Api(client), Load(client)

        async def write(which: str) -> None:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": which}}, "default")

        async def spec(**fields: object) -> None:
            await host.patch(CLUSTERS, name, {"spec": fields}, name)

        async def last() -> Json:
            return (await host.get(VirtualControlPlane.resource, name, name))["status"].get("lastUpgrade", {})

        async def kubelets() -> set[str]:
            return {each["status"]["nodeInfo"]["kubeletVersion"] for each in await inside.list(Node.resource)}

        async with load.going_on():
            assert await kubelets() == {f"v{EARLIER.kubernetes}"}
            assert await answered(inside) == (EARLIER.kubernetes, EARLIER.name)
            await write("before")
            # An obstacle holds it back, until it is ignored.
            await inside.create(HOOKS, HOOK)
            told = await run("upgrade", "--plan", code=1)
            assert "obstacle Webhooks: " in told
            assert "dead.example.com (Service default/dead has no ready endpoint)" in told
            assert "--abort" in told
            assert "waits" in await run("upgrade", "--yes", code=1)
            (told_by,) = [
                each
                for each in (await host.get(CLUSTERS, name, name))["status"]["conditions"]
                if each["type"] == "Upgrading"
            ]
            assert (told_by["status"], told_by["reason"]) == ("False", "Blocked")
            assert await answered(inside) == (EARLIER.kubernetes, EARLIER.name)

            await spec(upgrade={"soakSeconds": 3600, "ignore": ["Webhooks"]})

            async def soaks() -> bool:
                found = await last()
                return bool(found.get("soaks") and found.get("soaked"))

            await until(soaks, "the next version soaks", seconds=4 * SECONDS)
            assert await answered(inside) == (LATER.kubernetes, EARLIER.name)
            await write("soaking")
            assert "again, with all objects" in await run("upgrade", "--abort")
            assert await answered(inside) == (EARLIER.kubernetes, EARLIER.name)
            assert {"before", "soaking"} <= {
                each["metadata"]["name"] for each in await inside.list(CONFIG_MAPS, "default")
            }
            await write("aborted")

            await spec(upgrade={"soakSeconds": 2})
            told = await run("upgrade", "--yes", "--ignore", "Webhooks", "--timeout", "10m")
            assert f"has Kubernetes {LATER.kubernetes}" in told
            assert await answered(inside) == (LATER.kubernetes, LATER.name)
            assert {"before", "soaking", "aborted"} <= {
                each["metadata"]["name"] for each in await inside.list(CONFIG_MAPS, "default")
            }

            async def is_rebuilt() -> bool:
                found = await host.get(CLUSTERS, name, name)
                return is_complete(found) and await kubelets() == {f"v{LATER.kubernetes}"}

            await until(is_rebuilt, "its node has left, and joined with the next version", seconds=4 * SECONDS)
        failed += load.failed
        print(f"{load.reads} reads, {len(failed)} failed twice")
    assert failed == []
    await run("delete", "--yes", "--timeout", "3m")
