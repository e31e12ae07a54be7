"""Parts of a real node: its kubelet runs what fits and keeps the parts; see test_real_nodes.py for where this runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.slice import SliceClaim
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images, loading
from tenantry.local.real.images import ImageRecipe
from testkit.api import PODS, Api, until
from testkit.installation import install
from testkit.nodeauditor import NODES
from testkit.parts import parts_of
from testkit.pool import state
from testkit.realpods import AGNHOST, CAREFUL, START_SECONDS, missing

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
NODE = "real-1"

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalCluster]:
    """A cluster with one real node, which has an image, and the operator."""
    local = LocalCluster("parts", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=install, operator=True, real_nodes=1, timeout_seconds=240.0))
    try:
        binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.AGNHOST)
        file = tmp_path_factory.mktemp("images") / "agnhost.tar"
        recipe = ImageRecipe(
            reference=AGNHOST, files={"/agnhost": binaries.folder / "agnhost"}, entrypoint=("/agnhost",)
        )
        await asyncio.to_thread(images.write, recipe, file)
        await loading.load(local.paths, local.real().binaries, [NODE], file, AGNHOST)
        yield local
    finally:
        await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def api(cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of it."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield Api(client)


def pod(called: str, cpu: str) -> Json:
    """Return a pod that does nothing, and may use so much."""
    limits = {"limits": {"cpu": cpu, "memory": "64Mi"}}
    container = {"name": "c", "image": AGNHOST, "args": ["pause"], "securityContext": CAREFUL, "resources": limits}
    spec = {"containers": [container | {"imagePullPolicy": "Never"}], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": called}, "spec": spec}


async def test_a_kubelet_runs_what_fits_into_a_part_and_keeps_it(api: Api, cluster: LocalCluster, name: str) -> None:
    """E20: within its limits on real containers, no more than the part holds, and the end leaves nothing."""
    await api.patch(NODES, NODE, {"metadata": {"labels": {marks.PARTS: "true"}}})
    await api.make_tenant(name, isolation={"runtime": "Shared"})
    size = {"cpu": "300m", "memory": "256Mi"}
    spec = {"sharing": "Part", "perNode": size, "users": "Everybody", "gracePeriodSeconds": 5}
    await api.create(SliceClaim.resource, {"metadata": {"name": "web"}, "spec": spec}, name)
    slice_ = (await state(api, name, "web", "Bound"))["status"]["slice"]
    resource = f"{slice_}.parts.tenantry.dev/cpu-milli"

    async def is_bound() -> bool:
        made = await api.create(PODS, pod("fits", "200m"), name)
        if made["spec"].get("nodeSelector") == {f"{slice_}.parts.tenantry.dev/open": "true"}:
            return True
        await api.client.delete(PODS, name, "fits")
        await api.gone(PODS, "fits", name)
        return False

    await until(is_bound, "pods are bound to the part")

    async def runs() -> Json | None:
        status = (await api.get(PODS, "fits", name))["status"]
        return status if status.get("phase") == "Running" else None

    status = await until(runs, "the pod runs", seconds=START_SECONDS)
    # What the kubelet has set in the container's cgroup, not what was asked for.
    assert status["containerStatuses"][0]["resources"]["limits"]["cpu"] == "200m"
    await api.create(PODS, pod("too-much", "200m"), name)

    async def is_refused() -> bool:
        found = (await api.get(PODS, "too-much", name)).get("status", {}).get("conditions", [])
        return any(f"Insufficient {resource}" in each.get("message", "") for each in found)

    await until(is_refused, "the part has no room for more")
    await cluster.restart_node(NODE, START_SECONDS)

    async def is_kept() -> bool:
        return (await api.get(NODES, NODE))["status"]["allocatable"].get(resource) == "300"

    await until(is_kept, "the node, begun anew, keeps the part")
    await api.delete(SliceClaim.resource, "web", name)

    async def is_free() -> bool:
        node = await api.get(NODES, NODE)
        return not parts_of(node) and resource not in node["status"]["allocatable"]

    await until(is_free, "no claim has a part", seconds=START_SECONDS)
    assert await api.find(PODS, "fits", name) is None
