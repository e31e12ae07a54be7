"""Services without a selector of a control plane, on a real cluster: they lead to its own pods only."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.model import Resource
from tenantry.mirror.endpoints import SERVICE_NAME, SLICES
from tenantry.mirror.kinds import services
from testkit.api import EVENTS, PODS, SECONDS, Api, until
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
FOREIGN = "203.0.113.7"


async def made_pod(inside: Api, name: str) -> str:
    """Create a pod inside, and return its address."""
    containers = [{"name": "c", "image": "busybox"}]
    await inside.create(PODS, {"metadata": {"name": name}, "spec": {"containers": containers}}, "default")

    async def address() -> str:
        return (await inside.get(PODS, name, "default")).get("status", {}).get("podIP", "")

    return await until(address, f"pod {name} has an address", seconds=2 * SECONDS)


@pytest.mark.long
async def test_a_service_without_a_selector_leads_to_own_pods_only(planes: Planes, name: str) -> None:
    """OUT-2: no address of users reaches the host; the pod that has it gets a label, until it ends."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        own, other = await made_pod(inside, "own"), await made_pod(inside, "other")
        ports: Json = {"ports": [{"port": 80}]}
        for service in ("sliced", "legacy"):
            await inside.create(services.RESOURCE, {"metadata": {"name": service}, "spec": ports}, "default")
        sliced: Json = {
            "metadata": {"name": "mine", "labels": {SERVICE_NAME: "sliced"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [own]}, {"addresses": [FOREIGN]}],
            "ports": [{"name": "", "port": 8080}],
        }
        await inside.create(SLICES, sliced, "default")
        subset: Json = {"addresses": [{"ip": other}], "ports": [{"port": 9090}]}
        await inside.create(ENDPOINTS, {"metadata": {"name": "legacy"}, "subsets": [subset]}, "default")

        async def below() -> list[tuple[str, int]]:
            return sorted(
                (address, each["ports"][0]["port"])
                for each in await host.list(SLICES, name)
                for end in each["endpoints"] or ()
                for address in end["addresses"]
            )

        async def led() -> bool:
            return await below() == sorted([(own, 8080), (other, 9090)])

        await until(led, "both Services lead to their pods", seconds=2 * SECONDS, seen=below)

        async def told() -> str:
            events = await inside.list(EVENTS, "default")
            found = [each for each in events if each["regarding"].get("name") == "sliced"]
            return next((each["note"] for each in found if each["reason"] == reasons.HOST_REFUSED), "")

        assert FOREIGN in await until(told, "the foreign address is refused")
        await inside.delete(PODS, "own", "default")
        await inside.delete(SLICES, "mine", "default")
        await inside.delete(ENDPOINTS, "legacy", "default")

        async def nowhere() -> bool:
            return not await below()

        await until(nowhere, "no endpoints are left", seconds=2 * SECONDS, seen=below)
