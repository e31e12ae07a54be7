"""Slices on a real control plane with simulated nodes: claimed, emptied, bound, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.slice import Slice, SliceClaim
from tenantry.controllers.nodes.controller import Node
from tenantry.testing.api import Api, until

pytest_plugins = ["tenantry.testing.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


class Pool:
    """Nodes that no other test has, told from others by a label.

    Args:
        api: An administrator.
        name: Of the pool.
    """

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.name = name
        self.nodes: list[str] = []

    @property
    def selector(self) -> Json:
        """Return what selects them."""
        return {"matchLabels": {"pool": self.name}}

    async def add(self, count: int, *, cpu: str = "8", **labels: str) -> list[str]:
        """Make more nodes, which are ready: nothing here tells otherwise."""
        first = len(self.nodes)
        made = [f"{self.name}-{number}" for number in range(first, first + count)]
        capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": None}
        for each in made:
            status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
            meta = {"name": each, "labels": {"pool": self.name, "kubernetes.io/hostname": each, **labels}}
            await self._api.create(Node.resource, {"metadata": meta, "status": status})
            self.nodes.append(each)

        async def untainted() -> bool:
            # Kubernetes taints each node that is made, until it has seen that it is ready.
            return not any([(await self.node(each))["spec"].get("taints") for each in made])

        await until(untainted, f"{made} can be used")
        return made

    async def node(self, name: str) -> Json:
        """Return a node."""
        return await self._api.get(Node.resource, name)

    async def end(self) -> None:
        """Delete them."""
        await asyncio.gather(*(self._api.delete(Node.resource, each) for each in self.nodes))


@pytest_asyncio.fixture
async def pool(api: Api, name: str) -> AsyncGenerator[Pool]:
    """Nodes of the test's own."""
    made = Pool(api, name)
    yield made
    await made.end()


async def claim(api: Api, namespace: str, name: str, **spec: object) -> None:
    """Make a claim."""
    await api.create(SliceClaim.resource, {"metadata": {"name": name}, "spec": spec}, namespace)


async def state(api: Api, namespace: str, name: str, wanted: str, reason: str = "") -> Json:
    """Wait until a claim is in a state, and return it."""

    async def so() -> Json | None:
        found = await api.get(SliceClaim.resource, name, namespace)
        status = found.get("status", {})
        told = [each["reason"] for each in status.get("conditions", []) if each["type"] == reasons.READY]
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        right = status.get("state") == wanted and (not reason or reason in told)
        return found if current and right else None

    return await until(so, f"claim {namespace}/{name} is {wanted} {reason}")


def message(found: Json) -> str:
    """Return what a claim says."""
    told: list[str] = [each["message"] for each in found["status"]["conditions"] if each["type"] == reasons.READY]
    return told[0]


def slice_marks(node: Json) -> tuple[str, str, set[str]]:
    """Return the slice that a node is set aside for, the one that it is bound to, and the effects of its taint."""
    labels = node["metadata"].get("labels", {})
    taints = {each["effect"] for each in node["spec"].get("taints", []) if each["key"] == marks.SLICE}
    return labels.get(marks.SLICE_RESERVED, ""), labels.get(marks.SLICE, ""), taints


async def free(pool: Pool, names: list[str]) -> None:
    """Wait until nodes are everybody's."""

    async def so() -> bool:
        return all([slice_marks(await pool.node(each)) == ("", "", set()) for each in names])

    await until(so, f"{names} are everybody's")


async def test_a_claim_is_bound_and_given_back(api: Api, pool: Pool, name: str) -> None:
    """E12, E13: nodes are marked and tainted, the namespace's pods bound to them, and all of it ends with the claim."""
    await pool.add(3)
    await api.make_tenant(name)
    await claim(api, name, "web", count=2, selector=pool.selector, users="Everybody")
    bound = await state(api, name, "web", "Bound", reasons.NODES_BOUND)
    slice_, nodes = bound["status"]["slice"], bound["status"]["nodes"]
    assert nodes == pool.nodes[:2]
    assert bound["status"]["namespaces"] == [name]
    for each in nodes:
        assert slice_marks(await pool.node(each)) == (slice_, slice_, {"NoSchedule", "NoExecute"})
    assert slice_marks(await pool.node(pool.nodes[2])) == ("", "", set())
    made = await api.get(Slice.resource, slice_)
    assert (made["status"]["state"], made["spec"]["tenant"]) == ("Bound", name)

    async def is_labelled() -> bool:
        return (await api.get(Namespace.resource, name))["metadata"]["labels"].get(marks.SLICE) == slice_

    await until(is_labelled, "the namespace has its slice")
    await api.delete(SliceClaim.resource, "web", name)
    await free(pool, nodes)
    await api.gone(Slice.resource, slice_)
    assert not await is_labelled()
