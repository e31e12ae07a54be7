"""Upgrades of virtual control planes between two versions of Kubernetes, and the way back.

`make test-release` runs them; `make test` skips them (TENANTRY_TEST_REAL=0): the program of the earlier version has to
be built for them. The host's nodes are simulated.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from tenantry.api.errors import Invalid
from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
from tenantry.local import build, hostedversions
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from testkit.api import CONFIG_MAPS, PODS, SECONDS, Api, until
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
EARLIER, LATER = hostedversions.known()[-2:]
_IS_RELEASE = os.environ.get("TENANTRY_TEST_REAL") == "1"
_IS_BUILT = build.built(hostedversions.product(EARLIER.name)) is not None
_SKIPPED = os.environ.get("TENANTRY_TEST_REAL") == "0" or not (_IS_RELEASE or _IS_BUILT)
pytestmark = [
    pytest.mark.skipif(_SKIPPED, reason="`make test-release` upgrades control planes"),
    # The program of the earlier version may have to be built first.
    pytest.mark.timeout(3600),
]


async def done(cluster: LocalCluster, *arguments: str) -> str:
    """Run `tenantry vcp`, which must succeed, and return what it printed."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "vcp", *arguments, "--cluster=planes"),
        env={**os.environ, "TENANTRY_HOME": str(cluster.paths.folder.parent.parent)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode() + err.decode()


async def runs(inside: Api, name: str) -> None:
    """Create a pod, and wait until it runs."""
    await inside.create(
        PODS, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}, "default"
    )

    async def so() -> bool:
        return (await inside.get(PODS, name, "default"))["status"].get("phase") == "Running"

    await until(so, f"pod {name} runs", seconds=2 * SECONDS)


async def answered(inside: Api) -> str:
    """Return the version that an API server reports."""
    return json.loads(await inside.client.request("GET", "/version"))["gitVersion"].removeprefix("v")


async def on_host(planes: Planes, namespace: str) -> dict[str, str]:
    """Return the uids of the host's pods by the names inside."""
    found = await planes.host.list(PODS, namespace)
    return {each["metadata"]["annotations"][f"{PREFIX}/name"]: each["metadata"]["uid"] for each in found}


async def test_an_upgrade_keeps_objects_and_pods_and_a_restore_leads_back(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """X11: objects, pods and clients stay; the API server refuses the way back without a restore, and a skip."""
    await asyncio.to_thread(build.ensure, SilentProgress(), hostedversions.product(EARLIER.name))
    kind, host = VirtualControlPlane.resource, planes.host
    await host.make_tenant(name)
    await host.create(kind, {"metadata": {"name": "web"}, "spec": {"version": EARLIER.name}}, name)
    assert (await planes.ready(name, "web"))["status"]["version"] == EARLIER.kubernetes

    async def spec(version: str) -> None:
        await host.patch(kind, "web", {"spec": {"version": version}}, name)

    async with planes.entered(name, "web") as inside:
        assert await answered(inside) == EARLIER.kubernetes
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "1"}}, "default")
        await runs(inside, "stays")
        before = await on_host(planes, name)
        skipped = f"1.{int(LATER.name.split('.')[1]) + 1}"
        with pytest.raises(Invalid, match="does not skip minor versions"):
            await spec(skipped)

        told = await done(plane_cluster, "upgrade", "web", "-n", name, "--yes")
        found = (await host.get(kind, "web", name))["status"]
        last = found["lastUpgrade"]
        assert (found["version"], found["phase"], bool(last["completed"])) == (LATER.kubernetes, "Awake", True)
        assert "Upgrading" not in {each["type"] for each in found["conditions"]}, "it has ended"
        assert last["snapshot"] in told
        assert await answered(inside) == LATER.kubernetes
        assert (await inside.get(CONFIG_MAPS, "kept", "default"))["data"] == {"a": "1"}
        await runs(inside, "later")
        assert (await on_host(planes, name))["stays"] == before["stays"]
        assert "already" in await done(plane_cluster, "upgrade", "web", "-n", name, "--yes")
        with pytest.raises(Invalid, match="must not be before status"):
            await spec(EARLIER.name)

        # The way back loses what was written since; the snapshot stays.
        await done(
            plane_cluster,
            *("restore", "web", "-n", name, "--from", last["snapshot"], "--version", EARLIER.name, "--yes"),
        )
        found = (await host.get(kind, "web", name))["status"]
        assert (found["version"], found["lastRestore"]["snapshot"]) == (EARLIER.kubernetes, last["snapshot"])
        assert await answered(inside) == EARLIER.kubernetes
        assert (await inside.get(CONFIG_MAPS, "kept", "default"))["data"] == {"a": "1"}
        assert await inside.find(PODS, "later", "default") is None

        # One that sleeps takes the snapshot asleep, and has the new version when it wakes.
        await done(plane_cluster, "sleep", "web", "-n", name)
        told = await done(plane_cluster, "upgrade", "web", "-n", name, "--yes")
        assert "sleeps, and has" in told
        found = (await host.get(kind, "web", name))["status"]
        assert (found["version"], found["phase"]) == (EARLIER.kubernetes, "Asleep")
        await done(plane_cluster, "wake", "web", "-n", name)
        assert await answered(inside) == LATER.kubernetes
        assert (await host.get(kind, "web", name))["status"]["version"] == LATER.kubernetes
        await runs(inside, "new")
        assert (await on_host(planes, name))["stays"] == before["stays"]
