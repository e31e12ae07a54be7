"""Leases on a real API server, with an engine in this process whose clock the tests turn."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine.clock import rfc3339
from testkit.api import EVENTS, Api, until
from testkit.clock import ManualClock
from testkit.operators import Operator
from testkit.trees import WORKSPACE, Trees

pytest_plugins = ["testkit.fixtures"]

HOUR = 3600.0
DAY = 24 * HOUR
TICK_SECONDS = 0.05


@pytest_asyncio.fixture
async def clock(clock: ManualClock) -> AsyncGenerator[ManualClock]:
    """The engine's clock, which besides goes on by itself: by it the engine tries again and sees what has settled."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            clock.advance(TICK_SECONDS)

    going = asyncio.create_task(go_on())
    yield clock
    going.cancel()


def _in(clock: ManualClock, seconds: float) -> str:
    return rfc3339(clock.now() + dt.timedelta(seconds=seconds))


async def _warnings(api: Api, namespace: str, about: str) -> list[str]:
    found = await api.list(EVENTS, namespace)
    return [each["note"] for each in found if each["regarding"]["name"] == about and each["reason"] == "ExpiresSoon"]


async def test_a_subnamespace_is_warned_of_twice_and_then_deleted(
    api: Api, trees: Trees, clock: ManualClock, name: str
) -> None:
    """X05: a condition and an event a day and an hour ahead, then the end."""
    await api.make_tenant(name)
    namespace = await trees.make(name, "lent", {**WORKSPACE, "expiresAt": _in(clock, 3 * DAY)})
    assert not await trees.message(name, "lent", reasons.EXPIRING)
    for seconds, words in ((2 * DAY, "within a day"), (23 * HOUR, "within an hour")):
        clock.advance(seconds + 1)

        async def warned(words: str = words) -> bool:
            told = await _warnings(api, name, "lent")
            return words in await trees.message(name, "lent", reasons.EXPIRING) and any(words in each for each in told)

        await until(warned, f"it is warned: {words}")
    clock.advance(HOUR)
    await api.gone(Subnamespace.resource, "lent", name)
    assert await api.find(Namespace.resource, namespace) is None


async def test_a_renewal_takes_the_warning_back(api: Api, trees: Trees, clock: ManualClock, name: str) -> None:
    """X05: a later time keeps it."""
    await api.make_tenant(name)
    await trees.make(name, "lent", {**WORKSPACE, "expiresAt": _in(clock, 2 * HOUR)})
    await trees.condition(name, "lent", reasons.EXPIRING, holds=True, reason=reasons.EXPIRES_SOON)
    await api.patch(Subnamespace.resource, "lent", {"spec": {"expiresAt": _in(clock, 9 * DAY)}}, name)
    await trees.condition(name, "lent", reasons.EXPIRING, holds=False)
    clock.advance(3 * HOUR)
    await trees.ready(name, "lent")


@pytest.mark.long
async def test_a_lease_does_not_end_what_has_children_that_may_not_go(
    api: Api, trees: Trees, clock: ManualClock, name: str
) -> None:
    """X05: the end of a lease is no way round allowCascadingDeletion; it goes when its children have gone."""
    await api.make_tenant(name)
    top = await trees.make(name, "top", {**WORKSPACE, "expiresAt": _in(clock, 2 * HOUR)})
    await trees.make(top, "low")
    clock.advance(3 * HOUR)
    await trees.condition(name, "top", reasons.EXPIRING, holds=True, reason=reasons.EXPIRED)
    await api.delete(Subnamespace.resource, "low", top)
    await api.gone(Subnamespace.resource, "top", name)


async def test_a_tenant_is_suspended_at_the_end_of_its_lease_and_opened_by_a_renewal(
    api: Api, trees: Trees, clock: ManualClock, name: str
) -> None:
    """X05, E02: nothing is lost."""
    await api.make_tenant(name, expiresAt=_in(clock, 2 * HOUR))
    namespace = await trees.make(name, "team")
    clock.advance(3 * HOUR)
    await api.condition(name, reasons.SUSPENDED, holds=True, reason=reasons.EXPIRED)
    await api.condition(name, reasons.READY, holds=False, reason=reasons.EXPIRED)
    assert not (await api.get(RoleBinding.resource, "tenantry-owner", namespace)).get("subjects")
    await api.patch(Tenant.resource, name, {"spec": {"expiresAt": _in(clock, 9 * DAY)}})
    await api.condition(name, reasons.SUSPENDED, holds=False)
    await api.condition(name, reasons.READY, holds=True)

    async def back() -> bool:
        return bool((await api.get(RoleBinding.resource, "tenantry-owner", namespace)).get("subjects"))

    await until(back, "the people are back")


async def test_an_end_in_the_past_is_refused(api: Api, trees: Trees, operator: Operator, name: str) -> None:
    """X05: at admission, when it is made and when it is changed."""
    del operator
    await api.make_tenant(name)
    with pytest.raises(Forbidden, match="must be in the future"):
        await trees.ask(name, "late", {**WORKSPACE, "expiresAt": "2020-01-01T00:00:00Z"})
    await trees.ask(name, "fine", {**WORKSPACE, "expiresAt": "2036-01-01T00:00:00Z"})
    with pytest.raises(Forbidden, match="must be in the future"):
        await api.patch(Subnamespace.resource, "fine", {"spec": {"expiresAt": "2020-01-01T00:00:00Z"}}, name)
