"""Versions of virtual control planes on a real cluster: admission and messages; see also test_real_upgrade.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from tenantry.api.errors import Invalid
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli.vcp import vcp
from tenantry.local import hostedversions
from tenantry.local.cluster import LocalCluster
from testkit.api import SECONDS, until
from testkit.planes import Planes, ready

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
KIND = VirtualControlPlane.resource
EARLIER, LATEST = hostedversions.known()[-2:]
ABSENT = "20260101T000000Z-1.snapshot"


async def test_only_the_next_version_is_admitted_and_an_unknown_one_is_reported(planes: Planes, name: str) -> None:
    """VCP-38, X11: the process runs on with the version that it has."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    minor = int(LATEST.name.split(".")[1])
    refused = {
        f"1.{minor + 2}": "does not skip minor versions",
        f"1.{minor - 1}": "must not be before status.version",
        "1.36.3": "should match",
        "latest": "should match",
    }
    for version, words in refused.items():
        with pytest.raises(Invalid, match=words):
            await host.patch(KIND, "web", {"spec": {"version": version}}, name)
    seen: Json = {}

    async def told() -> bool:
        seen.update((await host.get(KIND, "web", name)).get("status", {}))
        return any(each["type"] == "Stalled" and "is not a version" in each["message"] for each in seen["conditions"])

    await host.patch(KIND, "web", {"spec": {"version": f"1.{minor + 1}"}}, name)
    await until(told, "the version is reported", seconds=2 * SECONDS, seen=lambda: seen)
    (message,) = [each["message"] for each in seen["conditions"] if each["type"] == "Stalled"]
    assert message.endswith(LATEST.name)
    assert ready({"status": seen})["status"] == "True"
    # The one that it has, by its name.
    await host.patch(KIND, "web", {"spec": {"version": LATEST.name}}, name)
    found = await planes.ready(name, "web")
    assert (found["status"]["version"], found["status"].get("lastUpgrade", {}).get("after", "")) == (
        LATEST.kubernetes,
        "",
    )


async def test_a_restore_to_an_earlier_version_that_is_refused_leaves_the_version(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H02: the API server admits the earlier version for the restore, and the way back after it."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    # By the kubeconfig, so that the command builds no program of the earlier version.
    place = ("-n", name, "--kubeconfig", str(plane_cluster.paths.kubeconfig("admin")))
    words = ["restore", "web", *place, "--from", ABSENT, "--version", EARLIER.name, "--yes"]
    refused = await asyncio.to_thread(CliRunner().invoke, vcp, words)
    assert "there is no snapshot" in str(refused.exception), refused.output
    found = await planes.ready(name, "web")
    assert found["spec"].get("version", "") == ""
    assert found["status"]["lastRestore"]["requested"].startswith(ABSENT)
