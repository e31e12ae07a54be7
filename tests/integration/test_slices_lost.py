"""Nodes of a slice that are not ready for long: given back, and others taken, where the claim allows it."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from testkit.api import Api, until
from testkit.clock import in_seconds
from testkit.pool import Pool, claim, free, slice_marks, state

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


async def fail(api: Api, node: str, *, seconds: int) -> None:
    """Have a node say that it has not been ready for so long."""
    await _say(api, node, "False", seconds=seconds)


async def _say(api: Api, node: str, is_ready: str, *, seconds: int = 0) -> None:
    since = in_seconds(-seconds)
    told = {"type": "Ready", "status": is_ready, "reason": "Test", "message": "", "lastTransitionTime": since}
    patch = {"status": {"conditions": [told]}}
    await api.client.merge_patch(Node.resource, "", node, patch, subresource="status")


async def degraded(api: Api, namespace: str, *parts: str) -> None:
    """Wait until a claim says that it is degraded, and how."""

    async def so() -> bool:
        found = await api.get(SliceClaim.resource, "fast", namespace)
        told = [each for each in found["status"]["conditions"] if each["type"] == reasons.DEGRADED]
        return bool(told) and all(part in told[0]["message"] for part in parts)

    await until(so, f"the claim is degraded: {parts}")


async def sound(api: Api, namespace: str) -> None:
    """Wait until a claim does not say that it is degraded."""

    async def so() -> bool:
        found = await api.get(SliceClaim.resource, "fast", namespace)
        return reasons.DEGRADED not in [each["type"] for each in found["status"]["conditions"]]

    await until(so, "the claim is not degraded")


async def alone(pool: Pool, node: str, slice_: str) -> None:
    """Wait until a node is a slice's alone."""

    async def so() -> bool:
        return slice_marks(await pool.node(node))[1] == slice_

    await until(so, f"{node} is bound to {slice_}")


async def test_a_node_that_is_not_ready_for_long_is_replaced(api: Api, pool: Pool, name: str) -> None:
    """E12: not before its time; then another that fits is bound, and the lost one goes back."""
    await pool.add(3)
    first, second, third = pool.nodes
    await api.make_tenant(name)
    await claim(api, name, "fast", selector=pool.selector, count=2, users="Everybody", replaceAfterSeconds=600)
    bound = await state(api, name, "fast", "Bound")
    assert bound["status"]["nodes"] == [first, second]
    await fail(api, first, seconds=60)
    await degraded(api, name, f"not ready: '{first}'")
    found = await api.get(SliceClaim.resource, "fast", name)
    assert found["status"]["nodes"] == [first, second]
    # A node that is not ready for long was ready before; its report of the change wakes no controller by itself.
    await _say(api, first, "True")
    await sound(api, name)
    await fail(api, first, seconds=900)

    async def replaced() -> bool:
        now = (await api.get(SliceClaim.resource, "fast", name))["status"]
        told = [each["type"] for each in now["conditions"]]
        return now.get("nodes") == [second, third] and now["state"] == "Bound" and reasons.DEGRADED not in told

    await until(replaced, "another node is taken")
    await free(pool, [first])
    await alone(pool, third, bound["status"]["slice"])


async def test_a_node_stays_where_no_other_fits_or_the_claim_says_never(api: Api, pool: Pool, name: str) -> None:
    """E12: a node that may come back is more than none."""
    (only,) = await pool.add(1)
    await api.make_tenant(name)
    await claim(api, name, "fast", selector=pool.selector, users="Everybody", replaceAfterSeconds=1)
    bound = await state(api, name, "fast", "Bound")
    await fail(api, only, seconds=900)
    await degraded(api, name, f"not ready: '{only}'")
    await api.patch(SliceClaim.resource, "fast", {"spec": {"replaceAfterSeconds": 0}}, name)
    (other,) = await pool.add(1)
    kept = await state(api, name, "fast", "Bound")
    assert kept["status"]["nodes"] == [only]
    assert slice_marks(await pool.node(only))[0] == bound["status"]["slice"]
    await api.patch(SliceClaim.resource, "fast", {"spec": {"replaceAfterSeconds": 1}}, name)

    async def replaced() -> bool:
        return (await api.get(SliceClaim.resource, "fast", name))["status"].get("nodes") == [other]

    await until(replaced, "the other node is taken")
    await alone(pool, other, bound["status"]["slice"])


async def test_a_slice_that_lost_a_node_for_good_says_so(api: Api, pool: Pool, name: str) -> None:
    """E12: nothing else fits, also where the claim is charged for fewer nodes now."""
    await pool.add(2)
    first, second = pool.nodes
    await api.make_tenant(name, quota={"hard": {"cpu": 20}})
    await claim(api, name, "fast", selector=pool.selector, count=2, users="Everybody")
    await state(api, name, "fast", "Bound")
    await api.delete(Node.resource, first)
    await degraded(api, name, "2 nodes are asked for, and 1 can be had")
    found = await state(api, name, "fast", "Bound")
    assert found["status"]["nodes"] == [second]
    made = await api.get(Slice.resource, found["status"]["slice"])
    assert made["spec"]["charge"]["requests.cpu"] == "8"
