"""Virtual control planes and their tenant's quota on a real cluster: owners create them, the tree of shares pays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PROCESS_FINALIZER, VirtualControlPlane
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.hosted import PREFIX
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from tenantry.local.state import read_state
from testkit.api import SECONDS, Api, until
from testkit.installation import install
from testkit.ledger import Ledger
from testkit.planes import Planes, ready
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster of its own with the operator and a simulated node."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("charged", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="blue"),))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def planes(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Planes]:
    """Virtual control planes of the cluster."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield Planes(Api(client), tmp_path_factory.mktemp("planes"))


@asynccontextmanager
async def alice(planes: Planes) -> AsyncGenerator[Api]:
    """The owner of every tenant."""
    async with Client(replace(planes.host.client.connection, impersonate="alice")) as client:
        yield Api(client)


def plane(name: str, limit: str = "256Mi", **requests: str) -> Json:
    """Return a control plane."""
    return {
        "metadata": {"name": name},
        "spec": {"resources": {"requests": requests, "limits": {"memory": limit}}},
    }


async def share(planes: Planes, namespace: str, **wanted: str) -> None:
    """Wait until the ResourceQuota of a namespace says so, by key with _ for a dot."""
    seen: Json = {}

    async def so() -> bool:
        seen.update((await planes.host.get(ResourceQuota.resource, QUOTA, namespace))["spec"]["hard"])
        return all(seen[key.replace("_", ".")] == amount for key, amount in wanted.items())

    await until(so, f"the share is {wanted}", seconds=2 * SECONDS, seen=lambda: seen)


async def waits(planes: Planes, namespace: str, name: str) -> Json:
    """Wait until a control plane has no room, and return its condition Ready."""
    seen: Json = {}

    async def so() -> Json | None:
        seen.update(ready(await planes.host.get(PLANES, name, namespace)))
        return seen if seen.get("reason") == reasons.QUOTA_INSUFFICIENT else None

    return await until(so, f"{name} waits for room", seen=lambda: seen)


def has_process(cluster: LocalCluster, found: Json) -> bool:
    """Return whether the machine has anything of a control plane."""
    return (cluster.paths.folder / "hosted" / found["metadata"]["uid"]).exists()


async def test_owners_create_control_planes_within_their_quota(
    cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01, X03: charged before the process exists and until it is gone, at every resourceVersion; then others start."""
    hard = {"cpu": "1", "memory": "1Gi", "limits.memory": "600Mi", "pods": "5"}
    await planes.host.make_tenant(name, quota={"hard": hard})
    async with (
        alice(planes) as owner,
        Client(kubeconfig.load([cluster.kubeconfig_path])) as auditor,
        Ledger(auditor, planes_of=name).watching() as ledger,
    ):
        await owner.create(PLANES, plane("web"), name)
        made = await planes.ready(name, "web")
        assert made["status"]["charged"] == {
            "limits.memory": "256Mi",
            "requests.cpu": "50m",
            "requests.memory": "96Mi",
        }
        await share(planes, name, requests_cpu="950m", requests_memory="928Mi", limits_memory="344Mi", pods="5")
        more = await owner.create(PLANES, plane("more", "400Mi", memory="100Mi"), name)
        told = await waits(planes, name, "more")
        assert told["status"] == "False"
        assert "limits.memory: 400Mi requested, 344Mi available" in told["message"]
        assert "'control plane web' has 256Mi" in told["message"]
        assert "lower spec.resources" in told["message"]
        assert not has_process(cluster, more)
        # The first one grows as far as there is room, and runs on with what it has when there is none.
        await owner.patch(PLANES, "web", plane("web", "2Gi", memory="512Mi"), name)

        async def stalled() -> bool:
            conditions = (await planes.host.get(PLANES, "web", name))["status"]["conditions"]
            return any(each["type"] == "Stalled" and "limits.memory: 2Gi" in each["message"] for each in conditions)

        await until(stalled, "the condition says what it lacks")
        found = await planes.host.get(PLANES, "web", name)
        assert (ready(found)["status"], found["status"]["charged"]["limits.memory"]) == ("True", "256Mi")
        await owner.patch(PLANES, "web", plane("web", "192Mi", memory="96Mi"), name)
        await planes.ready(name, "more")
        await share(planes, name, limits_memory="8Mi")
        for each in ("web", "more"):
            await owner.delete(PLANES, each, name)
        await share(planes, name, requests_cpu="1", requests_memory="1Gi", limits_memory="600Mi")
        assert not has_process(cluster, made)
        assert not has_process(cluster, more)
        await ledger.catch_up(planes.host)
    assert ledger.breaches() == []
    assert ledger.checked > 5


async def test_an_owner_cannot_get_a_process_that_is_not_charged(planes: Planes, name: str) -> None:
    """H01: neither by amounts of nothing, by the status, by the finalizer, nor by their number."""
    await planes.host.make_tenant(name, quota={"hard": {"limits.memory": "300Mi"}})
    async with alice(planes) as owner:
        cases = {
            "spec.resources.requests.cpu": plane("web", cpu="0"),
            "spec.resources.requests.memory": plane("web", memory="1"),
            "spec.resources.limits.memory": plane("web", "0"),
            "must not be more than limits.memory": plane("web", "200Mi", memory="300Mi"),
            "must be at most 64Gi": plane("web", "1000000Ti"),
            "must be at most four times requests.memory": plane("web", "385Mi"),
            "must be at most 64": plane("web", cpu="1e9"),
            "must be a quantity that is not negative": plane("web", "-1Gi"),
        }
        for words, wanted in cases.items():
            assert words in await refusal(owner, PLANES, wanted, name)
        for finalizer in (PROCESS_FINALIZER, "example.com/kept"):
            forged = {"metadata": {"name": "web", "finalizers": [finalizer]}, "spec": {}}
            assert "metadata.finalizers of a VirtualControlPlane" in await refusal(owner, PLANES, forged, name)
        # The status in a creation is dropped, and later it needs a right that owners lack.
        status = {"status": {"charged": {"limits.memory": "2Gi"}}}
        await owner.create(PLANES, {**plane("large", "2Gi", memory="2Gi"), **status}, name)
        await waits(planes, name, "large")
        with pytest.raises(Forbidden, match="virtualcontrolplanes/status"):
            await owner.client.merge_patch(PLANES, name, "large", status, subresource="status")
        await owner.patch(PLANES, "large", status, name)
        assert "charged" not in (await planes.host.get(PLANES, "large", name))["status"]
        with pytest.raises(Forbidden, match=PROCESS_FINALIZER):
            await owner.patch(PLANES, "large", {"metadata": {"finalizers": []}}, name)
        more = {"metadata": {"finalizers": [PROCESS_FINALIZER, "example.com/kept"]}}
        with pytest.raises(Forbidden, match="its process would outlast its deletion"):
            await owner.patch(PLANES, "large", more, name)
        # A control plane that waits takes no room from others, and its number is counted.
        for number in range(4):
            await owner.create(PLANES, plane(f"more-{number}", "2Gi", memory="2Gi"), name)
        with pytest.raises(ApiError, match="exceeded quota: tenantry-counts"):
            await owner.create(PLANES, plane("one-too-many"), name)
        await share(planes, name, limits_memory="300Mi")
        # The tenant goes with all of them, those without a process included.
        await planes.host.delete(Tenant.resource, name)

        async def gone() -> bool:
            return not await planes.exists(name)

        await until(gone, "nothing is left", seconds=3 * SECONDS)


async def test_an_owner_cannot_leave_the_objects_of_a_control_plane_behind(planes: Planes, name: str) -> None:
    """Pods that outlast it would belong to no control plane; no form of the request leaves them."""
    await planes.host.make_tenant(name, quota={"hard": {"limits.memory": "8Mi"}})
    path = f"/apis/{PLANES.group}/{PLANES.version}/namespaces/{name}/{PLANES.plural}"
    async with alice(planes) as owner:
        await owner.create(PLANES, plane("web"), name)
        for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
            # A request for all of a namespace needs a right that owners lack.
            for client, each in ((owner.client, f"{path}/web"), (planes.host.client, path)):
                with pytest.raises(Forbidden, match="must not be deleted with propagationPolicy Orphan"):
                    await client.request("DELETE", each, body=msgspec.json.encode(options))
            with pytest.raises(Forbidden, match="must not be deleted with propagationPolicy Orphan"):
                await owner.client.request("DELETE", f"{path}/web", query=asked(options))
        with pytest.raises(Forbidden, match="its process would outlast its deletion"):
            await owner.patch(PLANES, "web", {"metadata": {"finalizers": [PROCESS_FINALIZER, "orphan"]}}, name)
        assert "deletionTimestamp" not in (await planes.host.get(PLANES, "web", name))["metadata"]
        await owner.delete(PLANES, "web", name, propagation="Foreground")
        await owner.gone(PLANES, "web", name)


def asked(options: Json) -> dict[str, str]:
    """Return options as the query of a request."""
    return {key: str(value).replace("True", "true") for key, value in options.items()}


async def test_the_kernel_keeps_a_process_within_its_limits(cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: also after a change, which restarts it; deleted, it leaves no cgroup."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    for limit in (256, 320):
        await planes.host.patch(PLANES, "web", {"spec": {"resources": {"limits": {"memory": f"{limit}Mi"}}}}, name)

        async def is_limited(wanted: int = limit * 2**20) -> bool:
            state = read_state(cluster.paths)
            found = state.component(f"{PREFIX}{name}.web") if state is not None else None
            return found is not None and found.pid > 0 and _memory_limit(found.pid) == wanted

        await until(is_limited, f"the kernel allows {limit} MiB", seconds=2 * SECONDS)
        await planes.ready(name, "web")
    conditions = (await planes.host.get(PLANES, "web", name))["status"]["conditions"]
    assert reasons.UNLIMITED not in {each["type"] for each in conditions}
    await planes.delete(name, "web")
    assert not _cgroups(f"{name}.web")


def _cgroups(ending: str) -> list[str]:
    # Unlike Path.rglob, it passes over cgroups that other tests remove meanwhile.
    return [each for _, names, _ in os.walk("/sys/fs/cgroup") for each in names if each.endswith(ending)]


def _memory_limit(pid: int) -> int:
    """Return the limit of the cgroup that a process is in; 0 if it has none, or has ended (cgroups(7))."""
    try:
        return _limit_in(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        # The files of a process and of a cgroup that are gone: ENOENT, ESRCH or ENODEV.
        return 0


def _limit_in(groups: str) -> int:
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
        found = Path(f"/sys/fs/cgroup{path}/memory.max")
        if not controllers and found.exists() and found.read_text().strip() != "max":
            return int(found.read_text())
    return 0
