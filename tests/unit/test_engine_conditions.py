"""Conditions keep their times until they change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.model import Condition, ConditionStatus
from tenantry.engine.conditions import Wanted, find, is_true, merge, replaced

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def _had(type_: str, status: ConditionStatus, reason: str = "Why") -> Condition:
    return Condition(
        type=type_, status=status, reason=reason, message="m", last_transition_time=EARLY, observed_generation=1
    )


def test_the_time_stays_when_only_the_reason_changes() -> None:
    merged = merge(
        [_had("Ready", ConditionStatus.FALSE)], [Wanted("Ready", False, "Other", "n")], generation=2, now=LATE
    )
    assert merged[0].last_transition_time == EARLY
    assert (merged[0].reason, merged[0].message, merged[0].observed_generation) == ("Other", "n", 2)


def test_the_time_changes_with_the_status() -> None:
    merged = merge([_had("Ready", ConditionStatus.FALSE)], [Wanted("Ready", True, "Done", "n")], generation=1, now=LATE)
    assert merged[0].last_transition_time == LATE


def test_unknown_is_a_status_of_its_own() -> None:
    merged = merge(
        [_had("Ready", ConditionStatus.UNKNOWN)], [Wanted("Ready", False, "Why", "n")], generation=1, now=LATE
    )
    assert merged[0].last_transition_time == LATE


def test_what_is_only_shown_when_true_goes_when_it_is_not() -> None:
    merged = merge(
        [_had("Stalled", ConditionStatus.TRUE)],
        [Wanted("Stalled", False, "Why", "n", only_true=True)],
        generation=1,
        now=LATE,
    )
    assert merged == ()


def test_conditions_that_are_no_longer_wanted_are_removed() -> None:
    assert merge([_had("Old", ConditionStatus.TRUE)], [], generation=1, now=LATE) == ()


def test_find_and_is_true() -> None:
    conditions = [_had("Ready", ConditionStatus.FALSE), _had("Suspended", ConditionStatus.TRUE)]
    assert find(conditions, "Ready") == conditions[0]
    assert find(conditions, "Stalled") is None
    assert is_true(conditions, "Suspended")
    assert not is_true(conditions, "Ready")
    assert not is_true(conditions, "Stalled")


WANTED = st.lists(
    st.builds(
        Wanted,
        type=st.sampled_from(["Ready", "Stalled", "Reconciling"]),
        holds=st.booleans(),
        reason=st.sampled_from(["A", "B"]),
        message=st.sampled_from(["m", "n"]),
        only_true=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda wanted: wanted.type,
)


@given(WANTED, WANTED)
def test_merging_twice_is_merging_once_and_never_depends_on_order(first: list[Wanted], second: list[Wanted]) -> None:
    before = merge([], first, generation=1, now=EARLY)
    after = merge(before, second, generation=2, now=LATE)
    assert merge(after, second, generation=2, now="2026-01-01T02:00:00Z") == after
    assert merge(before, reversed(second), generation=2, now=LATE) == after
    assert [condition.type for condition in after] == sorted(condition.type for condition in after)
    for condition in after:
        old = find(before, condition.type)
        kept = old is not None and old.status is condition.status
        assert condition.last_transition_time == (EARLY if kept else LATE)


def test_one_who_says_some_of_them_leaves_the_others() -> None:
    """Each keeps its time, and what is no longer so goes."""
    before = [_had("Ready", ConditionStatus.TRUE), _had("Missing", ConditionStatus.TRUE)]
    there = replaced(before, [Wanted("Missing", True, "Other", "n", only_true=True)], generation=2, now=LATE)
    assert there[1] == before[0]
    assert (there[0].reason, there[0].last_transition_time) == ("Other", EARLY)
    gone = replaced(there, [Wanted("Missing", False, "Other", "n", only_true=True)], generation=2, now=LATE)
    assert gone == (before[0],)
