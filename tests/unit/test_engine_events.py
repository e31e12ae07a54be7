"""Events: written in the background, counted when they repeat, and dropped before they stop any work."""

from __future__ import annotations

import asyncio

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.engine import events
from tenantry.engine.events import Event, EventKind, Recorder
from tenantry.engine.tasks import in_background
from tenantry.engine.writer import Writer
from testkit.clock import ManualClock
from testkit.model import Json, World
from testkit.worldclient import WorldClient
from testkit.worlds import tenant


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    return world


class _Speaker:
    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = ManualClock()
        self.faults: list[str] = []
        client = WorldClient(world, lambda: self.faults.pop() if self.faults else "none")
        self.recorder = Recorder(Writer(client), self.clock, "replica")

    async def say(self, *notes: str) -> list[Json]:
        """Record events about a tenant, and return those that are written then."""
        async with in_background(self.recorder.run()):
            for note in notes:
                self.clock.advance(1)
                self.recorder.say(tenant("acme"), EventKind.WARNING, "Refused", note)
                for _ in range(20):
                    await asyncio.sleep(0)
        return self.world.list(Event.resource)


async def test_an_event_is_about_its_object_and_a_repeat_counts() -> None:
    speaker = _Speaker(_world())
    found = await speaker.say("no such role", "no such role", "another", "no such role")
    assert [(each["note"], each.get("series", {}).get("count", 1)) for each in found] == [
        ("no such role", 3),
        ("another", 1),
    ]
    assert found[0]["regarding"]["uid"] == "acme-uid"
    assert found[0]["metadata"]["namespace"] == "default", "that of a cluster-scoped object"
    assert found[0]["series"]["lastObservedTime"] > found[0]["eventTime"]


async def test_a_repeat_of_an_event_that_the_api_server_dropped_begins_anew() -> None:
    speaker = _Speaker(_world())
    found = await speaker.say("once")
    speaker.world.delete(Event.resource, f"default/{found[0]['metadata']['name']}")
    found = await speaker.say("once")
    assert [("series" in each) for each in found] == [False]


async def test_a_failure_loses_one_event_and_no_more() -> None:
    speaker = _Speaker(_world())
    speaker.faults = ["lost"]
    assert [each["note"] for each in await speaker.say("one", "two")] == ["two"]


async def test_a_flood_is_dropped_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WAITING", 2)
    speaker = _Speaker(_world())
    for _ in range(5):
        speaker.recorder.say(tenant("acme"), EventKind.NORMAL, "Refused", "flood")
    found = await speaker.say("late")
    assert [(each["note"], each["series"]["count"]) for each in found] == [("flood", 2)]
