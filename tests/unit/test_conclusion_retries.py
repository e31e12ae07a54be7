"""When a reconcile that a full quota ended is tried again."""

from __future__ import annotations

import pytest

from tenantry.api.errors import ApiError, Conflict, Forbidden, RetryableError
from tenantry.controllers.conclusion import ROOM_SECONDS, retried
from tenantry.engine.workqueue import FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS

_FULL = Forbidden(
    'networkpolicies "x" is forbidden: exceeded quota: tenantry-counts, requested: count/a=1, used: count/a=8, limited:'
    " count/a=8",
    status=403,
)


def _seconds(attempt: int) -> float:
    found = retried(_FULL, attempt)
    assert isinstance(found, RetryableError)
    assert found.after_seconds is not None
    assert str(found) == str(_FULL)
    return found.after_seconds


def test_a_full_quota_is_tried_with_a_back_off_that_ends_early() -> None:
    """The event of the room may come before admission knows of it, and no other follows."""
    assert _seconds(0) == FIRST_DELAY_SECONDS
    assert [_seconds(attempt + 1) / _seconds(attempt) for attempt in range(5)] == [2.0] * 5
    assert _seconds(12) == _seconds(10_000) == ROOM_SECONDS < LAST_DELAY_SECONDS


@pytest.mark.parametrize(
    "error", [Forbidden("pods is forbidden: User cannot create", status=403), Conflict("changed", status=409)]
)
def test_other_errors_keep_the_back_off_of_the_queue(error: ApiError) -> None:
    assert retried(error, 3) is error
