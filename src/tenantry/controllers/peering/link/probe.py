"""Whether a peer answers and serves this cluster, and for how long it has been silent.

    last answer ─ 5 s ─► asked again ─ 5 s ─► no answer: silent for 10 s, Reachable=Unknown
        └─────────────────────── 40 s ─────────────────────► Node not ready

Watches do not report that an account is gone, and a connection that is half open reports nothing at all. So the peer is
asked, and silence counts from its last answer, not from when it is noticed. A refusal is an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tenantry.api.errors import ServerError, TenantryError, TerminalError, TooManyRequests, Unreachable
from tenantry.controllers.peering.link.peerfacts import PeerFacts
from tenantry.controllers.peering.status import SILENT_SECONDS, UNKNOWN_SECONDS
from tenantry.engine.clock import Clock
from tenantry.engine.outage import Outage

PROBE_SECONDS = 5.0
"""How long after an answer the peer is asked again."""

ANSWER_SECONDS = 5.0
"""How long an answer may take, all requests together. Both sum up to the time after which a peer is unknown."""

PAUSE_SECONDS = 1.0
"""The least time between two questions."""

_SILENT = (Unreachable, ServerError, TooManyRequests)
"""No answer, or one that a load balancer may give for an API server that does not run."""

Read = Callable[[], Awaitable[PeerFacts]]
"""Asks the peer about itself."""


class PeerProbe:
    """What is known of whether a peer answers.

    Args:
        clock: The clock.
        changed: Called when the peer becomes silent, is back, or reports something else about itself; and when it has
            been silent for so long that its status or its Node changes.
    """

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._outage: Outage | None = None
        self._answers = False
        # It answers, and does not serve this cluster: that is no silence.
        self._refused = False
        self._is_silent = False
        # The last answer, of the monotonic clock; None for none.
        self._heard: float | None = None
        self._due = asyncio.Event()
        self.facts = PeerFacts()

    @property
    def answers(self) -> bool:
        """Return whether the peer's API server answers, and serves this cluster."""
        return self._answers and not (self._outage is not None and self._outage.is_away)

    @property
    def silence(self) -> float:
        """Return for how many seconds the peer has been silent; 0 if it answers, or never did."""
        return self._clock.monotonic() - self._heard if self._is_silent and self._heard is not None else 0.0

    def follow(self, outage: Outage) -> None:
        """Take in outages that requests of others notice, from now on."""
        self._outage = outage
        outage.listen(self._outage_changed)

    async def ask(self, read: Read, seconds: float | None = None) -> None:
        """Ask the peer whether it serves this cluster.

        Args:
            read: Asks the peer about itself.
            seconds: The deadline; None for that of each request.

        Raises:
            TenantryError: It does not, or does not answer.
        """
        try:
            async with asyncio.timeout(seconds):
                facts = await read()
        except TimeoutError as error:
            self._take(self.facts, answers=False)
            raise Unreachable(f"the API server of the peer does not answer within {seconds} s") from error
        except TenantryError as error:
            self._take(self.facts, answers=False, refused=not isinstance(error, _SILENT))
            raise
        self._take(facts, answers=True)

    async def keep_asking(self, read: Read, report: Callable[[TenantryError | None], None]) -> None:
        """Ask until cancelled.

        Args:
            read: Asks the peer about itself.
            report: Called with why the peer cannot be used; None if it can.

        Raises:
            TerminalError: It is another cluster now, or too old: nothing more may be sent there.
        """
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS - PAUSE_SECONDS):
                    await self._due.wait()
            self._due.clear()
            try:
                await self.ask(read, ANSWER_SECONDS)
                report(None)
            except TerminalError:
                raise
            except TenantryError as error:
                report(error)
                if isinstance(error, Unreachable) and self._outage is not None:
                    # All others wait until the peer answers again.
                    self._outage.begin(error)

    def _take(self, facts: PeerFacts, *, answers: bool, refused: bool = False) -> None:
        before = self.answers, self.facts
        self.facts, self._answers, self._refused = facts, answers, refused
        self._look()
        if before != (self.answers, self.facts):
            self._changed()

    def _outage_changed(self) -> None:
        if self._outage is not None and self._outage.is_over and not self._answers:
            self._due.set()
        self._look()
        self._changed()

    def _look(self) -> None:
        """Take in whether the peer is silent now."""
        if self.answers or self._refused:
            self._heard, self._is_silent = self._clock.monotonic(), False
        elif not self._is_silent and self._heard is not None:
            self._is_silent = True
            for seconds in (UNKNOWN_SECONDS, SILENT_SECONDS):
                self._clock.call_at(self._heard + seconds, self._changed)
