"""For any pods that come and go: the quota that follows them is enough, and at most a step more (X03)."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tenantry.world.shares.amounts import Amounts, add, fits
from tenantry.world.shares.following import (
    DOWN_SECONDS,
    PodLedger,
    first,
    fitting,
    follow,
    step_below,
    step_to,
    within,
)
from testkit.examples import examples

KEYS = ("pods", "requests.cpu", "limits.memory", "requests.example.com/gpu")
MEBIBYTE = 1024 * 1024 * 1000
LEAST_STEPS = {"pods": 4000, "requests.cpu": 100, "limits.memory": 256 * MEBIBYTE, "requests.example.com/gpu": 1000}
UNITS = {"pods": 1000, "requests.cpu": 1, "limits.memory": MEBIBYTE, "requests.example.com/gpu": 1000}

amounts = st.fixed_dictionaries({key: st.integers(0, 400).map(lambda n, key=key: n * UNITS[key]) for key in KEYS})
needs = st.lists(st.tuples(st.integers(0, 400), amounts), max_size=30)


@examples(300)
@given(st.sampled_from(KEYS), st.integers(0, 10**9))
def test_a_step_is_enough_and_at_most_a_quarter_or_the_least_step_above_the_need(key: str, need: int) -> None:
    value = step_to(key, need * (UNITS[key] if key != "limits.memory" else 1))
    need *= UNITS[key] if key != "limits.memory" else 1
    assert value >= need
    assert value <= max(need + need // 4 + UNITS[key], need + LEAST_STEPS[key], first(key))
    # The values are a ladder: each is the least one for itself, and for what is above the one below it.
    assert step_to(key, value) == value
    below = step_below(key, value)
    assert (below == -1) == (value == first(key))
    assert below < need or value == first(key)
    assert below == -1 or (step_to(key, below) == below and step_to(key, below + 1) == value)


@examples(200)
@given(needs)
def test_the_quota_is_enough_at_every_moment_and_falls_only_after_ten_minutes_of_too_much(
    story: list[tuple[int, Amounts]],
) -> None:
    has: Amounts = {}
    since: Mapping[str, float] = {}
    now = 0.0
    # By key: since when every need would have been met by a lower step.
    low: dict[str, float] = {}
    for seconds, need in story:
        now += seconds
        step = follow(KEYS, need, has, since, now)
        assert fits(need, step.hard)
        for key in KEYS:
            most = step_to(key, need[key])
            if key in has and step.hard[key] < has[key]:
                assert now - low[key] >= DOWN_SECONDS
            if step.hard[key] > has.get(key, 0):
                assert step.hard[key] == most
            if most < step.hard[key]:
                low.setdefault(key, now)
            else:
                low.pop(key, None)
        has, since = step.hard, step.since
        # Nothing else happens until the need changes, or the time that was returned has passed.
        assert follow(KEYS, need, has, since, now).hard == has
        if step.again is not None:
            assert follow(KEYS, need, has, since, now + step.again / 2).hard == has
    settled = follow(KEYS, need := story[-1][1] if story else {}, has, since, now)
    if settled.again is not None:
        has, since, now = settled.hard, settled.since, now + settled.again
        for _ in KEYS:
            step = follow(KEYS, need, has, since, now)
            has, since, now = step.hard, step.since, now + (step.again or 0.0)
        assert has == {key: step_to(key, need.get(key, 0)) for key in KEYS}


@examples(100)
@given(needs, st.integers(0, 30))
def test_a_new_process_neither_raises_nor_lowers_the_quota(story: list[tuple[int, Amounts]], at: int) -> None:
    has: Amounts = {}
    since: Mapping[str, float] = {}
    now = 0.0
    for seconds, need in story[:at]:
        now += seconds
        step = follow(KEYS, need, has, since, now)
        has, since = step.hard, step.since
    need = story[:at][-1][1] if story[:at] else {}
    has = has or follow(KEYS, need, {}, {}, 0.0).hard
    # The clock of another process, which does not know the pods at first.
    assert follow(KEYS, {}, has, {}, 0.0, is_known=False).hard == has
    assert follow(KEYS, {}, has, {}, 2 * DOWN_SECONDS, is_known=False).hard == has
    assert follow(KEYS, need, has, {}, 0.0).hard == has


def test_many_pods_one_by_one_take_few_steps() -> None:
    has: Amounts = {}
    writes = 0
    for count in range(1, 301):
        step = follow(("pods",), {"pods": 1000 * count}, has, {}, 0.0)
        writes += step.hard != has
        has = step.hard
    assert writes <= 20


def test_a_need_that_goes_up_and_down_within_ten_minutes_causes_no_write() -> None:
    has, now = {"pods": step_to("pods", 100_000)}, 0.0
    since: Mapping[str, float] = {}
    for _ in range(20):
        for pods in (100_000, 10_000):
            now += 300.0
            step = follow(("pods",), {"pods": pods}, has, since, now)
            assert step.hard == has
            since = step.since


@examples(100)
@given(amounts, amounts, st.lists(amounts, max_size=12))
def test_without_room_the_quota_is_what_the_pods_that_fit_need(
    has: Amounts, room: Amounts, pods: list[Amounts]
) -> None:
    need: Amounts = dict.fromkeys(KEYS, 0)
    for each in pods:
        add(need, each)
    most = {key: has[key] + room[key] for key in KEYS}
    whole = follow(KEYS, need, has, {}, 0.0).hard
    wanted = within(whole, need, has, room)
    assert fits(wanted, most)
    assert fits(need, wanted) == fits(need, most)
    assert fits(wanted, whole)
    for key in KEYS:
        # A step that does not fit takes no more than the pods need, so that others get the rest.
        assert wanted[key] in {whole[key], need[key], has[key], most[key]}
        assert whole[key] <= most[key] or wanted[key] <= max(need[key], has[key])
    assert fits(fitting(pods, most), most)
    if fits(need, most):
        assert fitting(pods, most) == need


@examples(100)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.lists(amounts, max_size=2), st.booleans()), max_size=30))
def test_the_ledger_has_the_sum_over_the_pods(changes: list[tuple[str, list[Amounts], bool]]) -> None:
    ledger, known = PodLedger(), dict[str, list[Amounts]]()
    for name, charges, is_sent in changes:
        ledger.put(name, charges, is_sent=is_sent)
        known[name] = charges
    for key in KEYS:
        whole = sum(max((each[key] for each in charges), default=0) for charges in known.values())
        assert ledger.need.get(key, 0) == whole
        assert sum(each[key] for each in ledger.pods()) == whole
