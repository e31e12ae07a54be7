"""Whether a peer answers, and for how long it has been silent, by a clock that the tests turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tenantry.api.errors import Forbidden, ServerError, TenantryError, Unreachable
from tenantry.controllers.peering.link.peerfacts import PeerFacts
from tenantry.controllers.peering.link.probe import ANSWER_SECONDS, PROBE_SECONDS, PeerProbe
from tenantry.controllers.peering.status import SILENT_SECONDS, UNKNOWN_SECONDS
from tenantry.engine.outage import Outage
from testkit.clock import ManualClock

FACTS = PeerFacts(cluster_id="there", version="v1.36.0")


class Peer:
    """A peer that answers, refuses, or is silent; and what is known of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.changes = 0
        self.error: TenantryError | None = None
        self.probe = PeerProbe(self.clock, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def read(self) -> PeerFacts:
        """Answer a question."""
        if self.error is not None:
            raise self.error
        return FACTS

    async def ask(self) -> None:
        """Ask the peer; it may fail."""
        with suppress(TenantryError):
            await self.probe.ask(self.read)

    def known(self) -> tuple[bool, float]:
        """Return whether the peer answers, and its silence."""
        return self.probe.answers, self.probe.silence


async def test_silence_counts_from_the_last_answer_and_not_from_when_it_is_noticed() -> None:
    peer = Peer()
    await peer.ask()
    assert (peer.known(), peer.probe.facts) == ((True, 0.0), FACTS)
    peer.clock.advance(PROBE_SECONDS)
    await peer.ask()
    peer.error = Unreachable("no answer in time")
    peer.clock.advance(PROBE_SECONDS + ANSWER_SECONDS)
    await peer.ask()
    assert peer.known() == (False, PROBE_SECONDS + ANSWER_SECONDS)
    peer.error = None
    await peer.ask()
    assert peer.known() == (True, 0.0)


def test_a_connection_that_is_half_open_is_noticed_when_the_peer_becomes_unknown() -> None:
    assert PROBE_SECONDS + ANSWER_SECONDS <= UNKNOWN_SECONDS


async def test_a_peer_that_does_not_answer_in_time_is_silent() -> None:
    peer = Peer()
    await peer.ask()
    never = asyncio.Event()

    async def read() -> PeerFacts:
        await never.wait()
        return FACTS

    peer.clock.advance(1)
    with pytest.raises(Unreachable, match="within"):
        await peer.probe.ask(read, seconds=0.01)
    assert peer.known() == (False, 1.0)


@pytest.mark.parametrize(("error", "silence"), [(Forbidden("no"), 0.0), (ServerError("no server", status=503), 7.0)])
async def test_a_refusal_is_an_answer_and_a_failure_of_a_load_balancer_is_none(
    error: TenantryError, silence: float
) -> None:
    peer = Peer()
    await peer.ask()
    peer.clock.advance(7)
    peer.error = error
    await peer.ask()
    assert peer.known() == (False, silence)


async def test_a_peer_that_never_answered_is_not_silent() -> None:
    peer = Peer()
    peer.error = Unreachable("nothing listens")
    await peer.ask()
    peer.clock.advance(100)
    assert peer.known() == (False, 0.0)


async def test_a_change_is_reported_when_the_status_and_the_node_of_a_silent_peer_change() -> None:
    peer = Peer()
    await peer.ask()
    peer.error = Unreachable("no answer in time")
    peer.clock.advance(1)
    await peer.ask()
    seen = peer.changes
    peer.clock.advance(UNKNOWN_SECONDS - 1.5)
    assert peer.changes == seen
    peer.clock.advance(0.5)
    assert (peer.changes, peer.known()) == (seen + 1, (False, UNKNOWN_SECONDS))
    peer.clock.advance(SILENT_SECONDS - UNKNOWN_SECONDS - 1)
    assert peer.changes == seen + 1
    peer.clock.advance(1)
    assert (peer.changes, peer.known()) == (seen + 2, (False, SILENT_SECONDS))


async def test_an_outage_that_others_notice_is_silence_from_the_last_answer_until_its_end() -> None:
    peer = Peer()
    outage = Outage("peer/there", peer.clock)
    peer.probe.follow(outage)
    await peer.ask()
    peer.clock.advance(3)
    failing, answers = asyncio.Event(), asyncio.Event()

    async def granted() -> None:
        if not answers.is_set():
            failing.set()
            raise Unreachable("nothing listens")

    running = asyncio.create_task(outage.run(granted))
    outage.begin(Unreachable("nothing listens"))
    await failing.wait()
    assert peer.known() == (False, 3.0)
    answers.set()
    await outage.wait()
    assert peer.known() == (True, 0.0)
    running.cancel()
    await asyncio.wait({running})
