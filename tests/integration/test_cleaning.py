"""Nodes that are cleaned between tenants: asked for, answered by the node alone, and set aside until it is done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.cleaning import BY_HAND, CleaningResult
from tenantry.api.errors import Forbidden
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from tenantry.controllers.slices.cleaning import CONDITION
from testkit.api import Api, until
from testkit.pool import Pool, claim, free, node_writer, slice_marks, state
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


async def note(who: Api, node: str, **annotations: str | None) -> None:
    """Write annotations of a node."""
    named = {getattr(marks, key): value for key, value in annotations.items()}
    await who.patch(Node.resource, node, {"metadata": {"annotations": named}})


def said(node: Json, key: str) -> str:
    return str(node["metadata"].get("annotations", {}).get(key, ""))


async def asked(pool: Pool, node: str) -> str:
    """Wait until a node is asked to be cleaned, and return what it is asked."""

    async def so() -> str:
        return said(await pool.node(node), marks.CLEANING)

    return await until(so, f"{node} is asked to be cleaned")


async def answer(who: Api, node: str, request: str, *left: str, **removed: int) -> None:
    """Answer as the agent of a node does."""
    text = msgspec.json.encode(CleaningResult(request=request, removed=removed, left=left)).decode()
    await note(who, node, CLEANED=text)


async def told(pool: Pool, node: str, status: str) -> Json:
    """Wait until a node's condition has a status, and return it."""

    async def so() -> Json | None:
        found = [each for each in (await pool.node(node))["status"]["conditions"] if each["type"] == CONDITION]
        return found[0] if found and found[0]["status"] == status else None

    return await until(so, f"{node} has {CONDITION}={status}")


async def slice_says(api: Api, name: str, reason: str) -> Json:
    """Wait until a Slice is Releasing for a reason, and return its condition."""

    async def so() -> Json | None:
        found = await api.get(Slice.resource, name)
        ready = [each for each in found["status"].get("conditions", []) if each["type"] == reasons.READY]
        return ready[0] if ready and ready[0]["reason"] == reason else None

    return await until(so, f"slice {name} says {reason}")


async def bound_and_released(api: Api, pool: Pool, name: str) -> str:
    """Have a claim bound to the pool's nodes, and end it; the name of its slice is returned."""
    await api.make_tenant(name)
    await claim(api, name, "web", count=len(pool.nodes), selector=pool.selector, users="Everybody")
    found = await state(api, name, "web", "Bound")
    await api.delete(SliceClaim.resource, "web", name)
    return str(found["status"]["slice"])


async def test_a_node_goes_back_when_its_agent_says_that_it_is_clean(
    api: Api, pool: Pool, people: People, name: str
) -> None:
    """E20: a node with an agent is asked, stays set aside while something is left, and is free when nothing is."""
    node, plain = await pool.add(2)
    agent = await people.node(node)
    await note(agent, node, NODE_AGENT="1")
    slice_ = await bound_and_released(api, pool, name)
    request = await asked(pool, node)
    assert request.startswith(f"{slice_}/")
    # Where there is no agent, nothing is waited for.
    await free(pool, [plain])
    await answer(agent, node, request, "folder /var/lib/kubelet/pods/1: Device or resource busy", images=2)
    stuck = await slice_says(api, slice_, reasons.NODES_NOT_CLEAN)
    assert node in stuck["message"]
    assert "Device or resource busy" in stuck["message"]
    condition = await told(pool, node, "False")
    assert condition["reason"] == reasons.NODES_NOT_CLEAN
    assert slice_marks(await pool.node(node)) == (slice_, "", {"NoSchedule", "NoExecute"})
    # An answer to another request is none.
    await answer(agent, node, f"{slice_}/2020-01-01T00:00:00.000000Z")
    await slice_says(api, slice_, reasons.CLEANING)
    assert slice_marks(await pool.node(node))[0] == slice_
    await answer(agent, node, request, images=3, folders=1)
    await free(pool, [node])
    await api.gone(Slice.resource, slice_)
    after = await pool.node(node)
    assert (said(after, marks.CLEANING), said(after, marks.CLEANED)) == ("", "")
    assert (await told(pool, node, "True"))["message"] == "removed: 1 folders, 3 images"


async def test_a_node_cannot_answer_for_another_node(api: Api, pool: Pool, people: People, name: str) -> None:
    """E20: a node says of itself alone that it is clean, and asks itself nothing; who may write nodes does neither."""
    node, other = await pool.add(2)
    itself, neighbour = await people.node(node), await people.node(other)
    await note(itself, node, NODE_AGENT="1")
    slice_ = await bound_and_released(api, pool, name)
    request = await asked(pool, node)
    with pytest.raises(Forbidden):
        await answer(neighbour, node, request)
    with pytest.raises(Forbidden, match="must not be changed"):
        await note(itself, node, CLEANING=None)
    attempts: list[dict[str, str | None]] = [{"CLEANED": BY_HAND}, {"NODE_AGENT": None}]
    async with node_writer(api, people, f"{name}-writer", node) as writer:
        for attempt in attempts:
            with pytest.raises(Forbidden, match="by the node itself"):
                await note(writer, node, **attempt)
    assert slice_marks(await pool.node(node))[0] == slice_
    await answer(itself, node, request)
    await free(pool, [node])
