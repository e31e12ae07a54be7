"""Parts of nodes on a real control plane with simulated nodes: given, kept within, and taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.slice import Slice, SliceClaim
from tenantry.testing.api import PODS, Api, until
from tenantry.testing.parts import SharedNodes

pytest_plugins = ["tenantry.testing.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


@pytest_asyncio.fixture
async def shared(api: Api, name: str) -> AsyncGenerator[SharedNodes]:
    """Nodes of the test's own that are given out in parts."""
    made = SharedNodes(api, name)
    yield made
    await made.end()


async def claim(
    api: Api, shared: SharedNodes, namespace: str, name: str, *, cpu: str, memory: str = "4Gi", **spec: object
) -> None:
    """Make a claim of parts."""
    whole = {"sharing": "Part", "selector": shared.selector, "users": "Everybody", "gracePeriodSeconds": 0}
    spec = {**whole, "perNode": {"cpu": cpu, "memory": memory}, **spec}
    await api.create(SliceClaim.resource, {"metadata": {"name": name}, "spec": spec}, namespace)


async def state(api: Api, namespace: str, name: str, wanted: str, reason: str = "") -> Json:
    """Wait until a claim is in a state, and return it."""
    told: Json = {}

    async def so() -> Json | None:
        nonlocal told
        found = await api.get(SliceClaim.resource, name, namespace)
        told = found.get("status", {})
        current = told.get("observedGeneration") == found["metadata"]["generation"]
        right = told.get("state") == wanted and (not reason or reason == ready(found)["reason"])
        return found if current and right else None

    try:
        return await until(so, f"claim {namespace}/{name} is {wanted} {reason}")
    except AssertionError as error:
        error.add_note(f"it is {told}")
        raise


def ready(claim: Json) -> Json:
    """Return the condition Ready of a claim."""
    told: list[Json] = [each for each in claim["status"].get("conditions", []) if each["type"] == reasons.READY]
    return told[0] if told else {"reason": "", "message": ""}


def pod(name: str, *cpus: str, memory: str = "256Mi", **spec: object) -> Json:
    """Return a pod with a container for each of some limits of CPU."""
    containers = [
        {"name": f"c{number}", "image": "x", "resources": {"limits": {"cpu": cpu, "memory": memory}}}
        for number, cpu in enumerate(cpus)
    ]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}}


async def lands(api: Api, namespace: str, name: str, node: str) -> None:
    """Wait until the scheduler has put a pod on a node."""

    async def so() -> bool:
        return (await api.get(PODS, name, namespace))["spec"].get("nodeName") == node

    await until(so, f"pod {namespace}/{name} is on {node}")


async def is_let_in(api: Api, namespace: str, slice_: str) -> None:
    """Wait until a namespace's pods are bound to a part: policies see its label a moment after we do."""

    async def so() -> bool:
        meta = (await api.get(Namespace.resource, namespace))["metadata"]
        made = await api.client.request(
            "POST", f"/api/v1/namespaces/{namespace}/pods", query={"dryRun": "All"}, body=_body(pod("probe", "100m"))
        )
        return meta["labels"].get(marks.PART) == slice_ and f"{slice_}.parts.tenantry.dev".encode() in made

    await until(so, f"pods of {namespace} are bound to {slice_}")


def _body(value: Json) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **value})


async def test_a_part_is_given_kept_within_and_taken_back(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: two tenants on one node each have their part, more than it the scheduler gives to none, and it ends."""
    (node,) = await shared.add(cpu="8")
    other = f"{name}-b"
    await asyncio.gather(api.make_tenant(name), api.make_tenant(other))
    for place in (name, other):
        await claim(api, shared, place, "web", cpu="3")
    bound = [await state(api, place, "web", "Bound", reasons.NODES_BOUND) for place in (name, other)]
    slices = [each["status"]["slice"] for each in bound]
    size = {"cpu-milli": 3000, "memory-mib": 4096}
    assert await shared.parts(node) == dict.fromkeys(slices, size)
    await claim(api, shared, other, "more", cpu="3", users="Subnamespaces")
    waits = await state(api, other, "more", "Pending", reasons.NODES_INSUFFICIENT)
    assert "1 has left cpu 2, memory 24Gi" in ready(waits)["message"]
    for place, slice_ in zip((name, other), slices, strict=True):
        await is_let_in(api, place, slice_)
        # Two containers, one after the other: a part holds the larger one, as the scheduler counts.
        first = {"name": "first", "image": "x", "resources": {"limits": {"cpu": "2500m", "memory": "1Gi"}}}
        await api.create(PODS, pod("fits", "1500m", "500m", initContainers=[first]), place)
        await lands(api, place, "fits", node)
        await api.create(PODS, pod("too-much", "600m"), place)

        async def is_refused(place: str = place, slice_: str = slice_) -> bool:
            found = (await api.get(PODS, "too-much", place)).get("status", {}).get("conditions", [])
            return any(f"Insufficient {slice_}.parts.tenantry.dev/cpu-milli" in each["message"] for each in found)

        await until(is_refused, "the part has no room for more")
    await api.delete(SliceClaim.resource, "web", name)
    await state(api, other, "more", "Reserved", reasons.NODES_RESERVED)
    assert slices[0] not in await shared.parts(node)
    assert await api.find(PODS, "fits", name) is None
    await api.gone(Slice.resource, slices[0])
    assert marks.PART not in (await api.get(Namespace.resource, name))["metadata"]["labels"]
    assert (await api.get(PODS, "fits", other))["spec"]["nodeName"] == node
