"""Which replica leads: elections in a world without I/O."""

from __future__ import annotations

import asyncio
from typing import Any

from tenantry.api.kubernetes import Namespace
from tenantry.engine.lease import DURATION_SECONDS, NAME, PREFERRED_HOLDER, Election, Lease
from testkit.clock import ManualClock
from testkit.model import Json, World
from testkit.worldclient import WorldClient

PLACE = "system"


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": PLACE}})
    return world


def _election(world: World, identity: str, clock: ManualClock | None = None) -> Election:
    client = WorldClient(world, lambda: "none")
    return Election(client, clock or ManualClock(), namespace=PLACE, identity=identity)


def _lease(world: World) -> Json:
    return world.get(Lease.resource, f"{PLACE}/{NAME}")


async def _is_taken_at_once(election: Election) -> bool:
    """Return whether a replica gets the lease in its first try: a second one would wait."""
    task = asyncio.create_task(election.acquire())
    for _ in range(50):
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
    return True


async def test_the_first_replica_leads_and_another_one_stands_by_until_it_is_released() -> None:
    world = _world()
    first, second = _election(world, "one"), _election(world, "two")
    assert await _is_taken_at_once(first)
    assert not await _is_taken_at_once(second)
    assert second.holder == "one"
    await first.release()
    assert await _is_taken_at_once(second)
    spec = _lease(world)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)


async def test_a_holder_that_is_gone_loses_the_lease_by_the_clock_of_the_others() -> None:
    world, clock = _world(), ManualClock()
    await _is_taken_at_once(_election(world, "one"))
    second = _election(world, "two", clock)
    assert not await _is_taken_at_once(second)
    clock.advance(DURATION_SECONDS)
    assert not await _is_taken_at_once(second)
    clock.advance(1)
    assert await _is_taken_at_once(second)


async def test_a_replica_that_starts_again_keeps_its_lease() -> None:
    world = _world()
    await _is_taken_at_once(_election(world, "one"))
    before = _lease(world)["spec"]
    assert await _is_taken_at_once(_election(world, "one"))
    after = _lease(world)["spec"]
    assert (after["leaseTransitions"], after["acquireTime"]) == (0, before["acquireTime"])


async def test_a_preferred_holder_gets_the_lease_and_the_preference_ends() -> None:
    """`tenantry bench` holds the operator still in this way."""
    world = _world()
    operator, bench = _election(world, "operator"), _election(world, "bench")
    await _is_taken_at_once(operator)
    await bench.request()
    assert not await _is_taken_at_once(bench), "the holder finishes its work first"
    assert not await _is_taken_at_once(operator), "it lets go"
    assert await _is_taken_at_once(bench)
    assert PREFERRED_HOLDER not in _lease(world)["metadata"].get("annotations", {})


async def test_a_lease_of_another_replica_is_not_released() -> None:
    world = _world()
    await _is_taken_at_once(_election(world, "one"))
    await _election(world, "two").release()
    assert _lease(world)["spec"]["holderIdentity"] == "one"


async def test_a_holder_renews_by_one_write_and_reads_only_after_another_writer() -> None:
    """X12: an idle operator costs the API server little."""
    world, asked = _world(), list[str]()

    class Counting(WorldClient):
        async def request(self, method: str, path: str, **more: Any) -> bytes:  # noqa: ANN401 - as Client has them
            asked.append(method)
            return await super().request(method, path, **more)

    holder = Election(Counting(world, lambda: "none"), ManualClock(), namespace=PLACE, identity="one")
    for _ in range(2):
        await _is_taken_at_once(holder)
    before = _lease(world)["metadata"]["resourceVersion"]
    asked.clear()
    assert await _is_taken_at_once(holder)
    assert asked == ["PATCH"]
    assert _lease(world)["metadata"]["resourceVersion"] != before
    await _election(world, "two").request()
    asked.clear()
    assert not await _is_taken_at_once(holder)
    assert asked == ["PATCH", "GET", "GET", "PATCH"], "a conflict, what it is about, and the release"
