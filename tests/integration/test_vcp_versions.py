"""Versions of virtual control planes on a real cluster: admission and messages; see also test_real_upgrade.py."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.errors import Invalid
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.local import hostedversions
from testkit.api import SECONDS, until
from testkit.planes import Planes, ready

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
KIND = VirtualControlPlane.resource
LATEST = hostedversions.known()[-1]


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
