"""The work queue under any order of events: no key lost, none handed out twice at once, none starved."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenantry.engine.workqueue import (
    BUSY_BURST,
    BUSY_PER_SECOND,
    FIRST_DELAY_SECONDS,
    FRESH_PER_RETRY,
    LAST_DELAY_SECONDS,
    WorkQueue,
)
from testkit.examples import examples

KEYS = st.sampled_from(["a", "b", "c", "d"])
SOON = 1.0 / BUSY_PER_SECOND + 0.001
"""How long the busy limit may hold back a key that an event asks for."""

LONGEST_WAIT = LAST_DELAY_SECONDS + 60.0


class QueueMachine(RuleBasedStateMachine):
    """What the engine does with a queue, in any order, beside the plainest account of what must come of it.

    `asked` maps a key to the time by which it must have been handed out, if there is a worker; a key that is being
    worked on when it is asked for is due from its end on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.now = 1000.0
        self.asked: dict[str, float] = {}
        self.working: set[str] = set()
        self.again: set[str] = set()
        self.failures: dict[str, int] = {}
        self.taken: dict[str, list[float]] = {}

    def _due(self, key: str, when: float) -> None:
        self.asked[key] = min(self.asked.get(key, float("inf")), when)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        """An event asks for a key: soon, but no more often than a key may come."""
        self.queue.add(key, self.now)
        if key in self.working:
            self.again.add(key)
        else:
            self._due(key, self.now + SOON)

    @rule(key=KEYS, seconds=st.floats(0, 400))
    def add_at(self, key: str, seconds: float) -> None:
        """A controller wants to look again."""
        self.queue.add_at(key, self.now + seconds)
        self._due(key, self.now + seconds)

    @rule()
    def take(self) -> None:
        """A worker is free."""
        key = self.queue.take(self.now)
        if key is None:
            assert all(due > self.now or asked in self.working for asked, due in self.asked.items()), (
                "what is due is handed out"
            )
            return
        assert key not in self.working, "never worked on twice at once"
        assert key in self.asked, "only added keys are handed out"
        del self.asked[key]
        self.working.add(key)
        self.taken.setdefault(key, []).append(self.now)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """A worker ends well."""
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key, self.now)
        self.failures.pop(key, None)
        assert self.queue.failures(key) == 0
        self._end(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), after=st.one_of(st.none(), st.floats(0, 60)))
    def fail(self, data: st.DataObject, after: float | None) -> None:
        """A worker fails."""
        key = data.draw(st.sampled_from(sorted(self.working)))
        delay = self.queue.failed(key, self.now, after)
        self.failures[key] = self.failures.get(key, 0) + 1
        assert self.queue.failures(key) == self.failures[key]
        expected = min(FIRST_DELAY_SECONDS * 2 ** (self.failures[key] - 1), LAST_DELAY_SECONDS)
        assert delay == (expected if after is None else max(after, FIRST_DELAY_SECONDS))
        self._end(key)
        self._due(key, self.now + delay)

    def _end(self, key: str) -> None:
        self.working.discard(key)
        if key in self.again:
            self.again.discard(key)
            self._due(key, self.now + SOON)
        if self.asked.get(key, float("inf")) < self.now + SOON:
            self.asked[key] = self.now + SOON  # its time came while it was worked on

    @rule(seconds=st.one_of(st.floats(0, 1), st.floats(0, 400)))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    @invariant()
    def counts_agree(self) -> None:
        """What the metrics say is so."""
        assert self.queue.working == len(self.working)
        assert self.queue.ready <= len(self.queue)

    @invariant()
    def the_next_wake_is_not_missed(self) -> None:
        """The engine sleeps until then: it must not be later than anything that is due."""
        if self.queue.ready:
            return
        wake = self.queue.next_wake()
        for key, due in self.asked.items():
            if key not in self.working:
                assert wake is not None
                assert wake <= due

    @invariant()
    def no_key_is_handed_out_twice_at_once(self) -> None:
        """A key is handed out no oftener than the burst and the rate allow, but for a few quick retries."""
        for times in self.taken.values():
            window = times[-BUSY_BURST - 10 :]
            assert len(window) <= BUSY_BURST + 12 + BUSY_PER_SECOND * (window[-1] - window[0])

    def teardown(self) -> None:
        """In the end everything that was asked for is handed out."""
        for key in sorted(self.working):
            self.queue.done(key, self.now)
            self._end(key)
        end = self.now + LONGEST_WAIT + 400
        missing = set(self.asked)
        while missing and self.now < end:
            while (key := self.queue.take(self.now)) is not None:
                missing.discard(key)
                self.queue.done(key, self.now)
            wake = self.queue.next_wake()
            if wake is None:
                break
            self.now = max(self.now, wake)
        assert not missing, "nothing is lost"


QueueMachine.TestCase.settings = examples(100, steps=60)
TestQueue = QueueMachine.TestCase


@given(fails=st.integers(1, 40), fresh=st.integers(1, 40))
def test_failing_keys_and_new_ones_are_taken_in_turn(fails: int, fresh: int) -> None:
    """One bad tenant never delays others, and is not forgotten either."""
    queue: WorkQueue[str] = WorkQueue()
    bad = [f"bad-{number}" for number in range(fails)]
    for key in bad:
        queue.add(key, 0.0)
    for _ in bad:
        key = queue.take(0.0)
        assert key is not None
        queue.failed(key, 0.0, 1.0)
    for number in range(fresh):
        queue.add(f"new-{number}", 1.0)
    order = [queue.take(1.0) for _ in range(fails + fresh)]
    both = min(fresh, fails * FRESH_PER_RETRY) + min(fails, fresh // FRESH_PER_RETRY)
    for begin in range(max(0, both - FRESH_PER_RETRY)):
        window = [str(key)[:3] for key in order[begin : begin + FRESH_PER_RETRY + 1]]
        assert window.count("bad") == 1, "while there are both, one in five is a retry"
    assert len(set(order)) == fails + fresh
    assert None not in order


@given(st.integers(1, 200))
def test_the_delay_doubles_up_to_five_minutes_and_never_overflows(times: int) -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays: list[float] = []
    now = 0.0
    queue.add("a", now)
    for _ in range(times):
        assert queue.take(now) == "a"
        delays.append(queue.failed("a", now))
        now += delays[-1]
    assert delays == sorted(delays)
    assert delays[0] == FIRST_DELAY_SECONDS
    assert delays[-1] <= LAST_DELAY_SECONDS
    assert all(after <= 2 * before for before, after in pairwise(delays))


def test_a_key_that_comes_back_at_once_is_slowed_down_and_the_others_are_not() -> None:
    """Two controllers that correct each other must not eat the operator."""
    queue: WorkQueue[str] = WorkQueue()
    now, runs, quiet = 0.0, 0, 0
    while now < 60.0:
        queue.add("busy", now)
        queue.add("quiet", now) if int(now * 10) % 20 == 0 else None
        while (key := queue.take(now)) is not None:
            runs += key == "busy"
            quiet += key == "quiet"
            queue.done(key, now)
        now += 0.01
    assert runs == pytest.approx(BUSY_BURST + 60 * BUSY_PER_SECOND, abs=2)
    assert quiet >= 30


def test_many_quick_retries_do_not_delay_the_next_event_for_long() -> None:
    """A key that asked for quick retries for a while is not in debt for them afterwards."""
    queue: WorkQueue[str] = WorkQueue()
    now = 0.0
    queue.add("a", now)
    for _ in range(600):
        assert queue.take(now) == "a"
        queue.failed("a", now, 0.1)
        now += 0.1
    assert queue.take(now) == "a"
    queue.done("a", now)
    queue.add("a", now)
    wake = queue.next_wake()
    assert wake is not None
    assert wake - now <= 1.0 / BUSY_PER_SECOND


def test_a_key_that_is_forgotten_begins_anew() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    assert queue.take(0.0) == "a"
    queue.failed("a", 0.0, 100.0)
    queue.forget("a")
    assert queue.failures("a") == 0


@given(rate=st.floats(0.5, 50.0))
def test_a_queue_may_let_busy_keys_come_more_often(rate: float) -> None:
    """A mirror follows a pod that changes all the time within 300 ms."""
    queue, now, taken = WorkQueue[str](rate), 0.0, 0
    queue.add("a", now)
    while taken < BUSY_BURST + 5:
        if queue.take(now) is not None:
            taken += 1
            queue.done("a", now)
            queue.add("a", now)
        else:
            now = queue.next_wake() or now
    assert now == pytest.approx(5 / rate, rel=0.25)
