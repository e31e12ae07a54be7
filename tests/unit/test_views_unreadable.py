"""What views report if a list may not be read, and if the API server does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tenantry.api.errors import Forbidden, Unreachable
from tenantry.api.kubernetes import LimitRange
from tenantry.api.tenancyrules import NAME, TenancyRules
from tenantry.engine.reader import ObjectReader
from tenantry.views import description
from tenantry.views.acting import ActingUser
from tenantry.views.explain import context
from tenantry.views.explain.context import NamespaceContext
from testkit.model import World
from testkit.treeworld import world_of
from testkit.worldclient import WorldClient

BEFORE_THE_LISTS = 2
"""The namespace and its rules are read before the StorageClasses and LimitRanges."""


@pytest.fixture(scope="module")
def world() -> World:
    """A world with one tenant, whose namespace has rules of its own."""
    found = world_of()
    found.put_in(TenancyRules.resource, {"metadata": {"name": NAME, "namespace": "acme"}, "spec": {}})
    return found


def _answers(*faults: str) -> Callable[[], str]:
    left = list(faults)

    def fault() -> str:
        found = left.pop(0) if left else "none"
        if found == "forbidden":
            raise Forbidden("not allowed", status=403)
        return found

    return fault


def _around(world: World, *faults: str) -> NamespaceContext:
    client = WorldClient(world, _answers(*["none"] * BEFORE_THE_LISTS, *faults))
    return asyncio.run(context.gather(ActingUser(client, client, "alice", ()), "acme"))


def test_classes_and_limits_are_known_if_they_may_be_read(world: World) -> None:
    found = _around(world)
    assert [each["metadata"]["name"] for each in found.limit_ranges or ()] == [
        each["metadata"]["name"] for each in world.list(LimitRange.resource)
    ]
    assert found.reclaim_policies == {}


def test_classes_and_limits_that_may_not_be_read_are_unknown(world: World) -> None:
    found = _around(world, "forbidden", "forbidden")
    assert (found.reclaim_policies, found.limit_ranges) == (None, None)


@pytest.mark.parametrize("faults", [["lost"], ["none", "lost"]], ids=["classes", "limits"])
def test_a_server_that_does_not_answer_is_no_missing_limit(world: World, faults: Sequence[str]) -> None:
    with pytest.raises(Unreachable):
        _around(world, *faults)


@pytest.mark.parametrize("read", [description.count_pods, description.subnamespace_names])
def test_contents_that_may_not_be_read_are_unknown_and_an_unreachable_server_is_an_error(
    world: World, read: Callable[[ObjectReader, str], Coroutine[Any, Any, object]]
) -> None:
    def answer(fault: str) -> object:
        return asyncio.run(read(WorldClient(world, _answers(fault)), "acme"))

    assert answer("none") in (0, [])
    assert answer("forbidden") is None
    with pytest.raises(Unreachable):
        answer("lost")
