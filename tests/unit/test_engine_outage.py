"""An outage of an API server: it begins with the first broken watch, and ends with the first list that is granted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenantry.api.errors import ApiError, Forbidden, Interrupted, NotFound, Unreachable
from tenantry.engine.outage import FORBIDDEN_SECONDS, SETTLING_SECONDS, Outage
from tenantry.engine.tasks import in_background
from testkit.clock import ManualClock

BROKEN = Interrupted("the connection broke")
REFUSED = Forbidden('User "o" cannot list resource', status=403)


class _Server:
    """Answers probes by a script.

    Args:
        clock: Advanced by each probe.
        answers: The errors of the probes; the probe after the last one is granted.
        seconds: By which each probe advances the clock.
    """

    def __init__(self, clock: ManualClock, *answers: ApiError, seconds: float = 0.1) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.seconds = seconds

    async def probe(self) -> None:
        self.clock.advance(self.seconds)
        if self.answers:
            raise self.answers.pop(0)


async def test_work_waits_until_the_api_server_knows_its_rights(caplog: pytest.LogCaptureFixture) -> None:
    clock, seen = ManualClock(), list[tuple[bool, bool]]()
    outage = Outage("home", clock)
    outage.listen(lambda: seen.append((outage.is_over, outage.is_away)))
    server = _Server(clock, Unreachable("nothing listens"), REFUSED)
    with caplog.at_level(logging.INFO):
        async with asyncio.timeout(10), in_background(outage.run(server.probe)):
            outage.begin(BROKEN)
            assert (outage.is_over, outage.explains(BROKEN), outage.explains(REFUSED)) == (False, True, True)
            assert not outage.explains(NotFound("gone", status=404))
            assert await outage.wait(), "its data may be other data now"
    # The second failed probe is no news.
    assert (server.answers, seen) == ([], [(False, True), (True, False)])
    told = [each.message for each in caplog.records]
    assert told == ["waiting for the API server", "the API server answers again"]


async def test_a_refusal_without_an_outage_is_reported_and_a_little_while_after_one_it_is_not() -> None:
    clock, seen = ManualClock(), list[tuple[bool, bool]]()
    outage = Outage("home", clock)
    outage.listen(lambda: seen.append((outage.is_over, outage.is_away)))
    outage.begin(REFUSED)
    assert (outage.is_over, outage.explains(REFUSED)) == (True, False)
    async with asyncio.timeout(10), in_background(outage.run(_Server(clock).probe)):
        outage.begin(BROKEN)
        assert not await outage.wait(), "only one connection was broken"
        assert seen == [(True, False)], "the API server was not away"
    assert outage.explains(REFUSED)
    clock.advance(SETTLING_SECONDS)
    assert not outage.explains(REFUSED)


async def test_an_operator_without_rights_does_not_wait_for_ever() -> None:
    clock = ManualClock()
    outage = Outage("home", clock)
    server = _Server(clock, *[REFUSED] * 9, seconds=FORBIDDEN_SECONDS)
    async with asyncio.timeout(10), in_background(outage.run(server.probe)):
        outage.begin(BROKEN)
        await outage.wait()
    assert len(server.answers) == 6


async def test_an_outage_ends_with_its_probes() -> None:
    """A cluster that leaves the runtime is not away for those that listen."""
    clock, seen, is_away = ManualClock(), list[tuple[bool, bool]](), asyncio.Event()
    outage = Outage("home", clock)
    outage.listen(lambda: seen.append((outage.is_over, outage.is_away)))
    outage.listen(is_away.set)
    async with asyncio.timeout(10), in_background(outage.run(_Server(clock, *[BROKEN] * 99).probe)):
        outage.begin(BROKEN)
        await is_away.wait()
    assert seen == [(False, True), (True, False)]
