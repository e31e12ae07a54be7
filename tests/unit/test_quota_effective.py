"""What a tenant may use at a moment: its quota and the adjustments in force."""

from __future__ import annotations

import datetime as dt

from tenantry.api.model import ObjectMeta
from tenantry.api.tenantresourcequota import Adjustment, TenantResourceQuota, TenantResourceQuotaSpec
from tenantry.controllers.quota.effective import EffectiveQuota, effective_quota
from testkit.worlds import tenant

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _effective(*adjustments: Adjustment) -> EffectiveQuota:
    found = TenantResourceQuota(
        metadata=ObjectMeta(name="acme"), spec=TenantResourceQuotaSpec(adjustments=tuple(adjustments))
    )
    return effective_quota(tenant("acme", quota={"cpu": 4, "pods": 10}), found, NOW)


def _adjustment(expires_at: str = "", **resources: int | str) -> Adjustment:
    return Adjustment(name="more", resources={**resources}, expires_at=expires_at)


def test_adjustments_add_up_and_nothing_goes_below_zero() -> None:
    """E10: a negative adjustment may take more than there is."""
    found = _effective(_adjustment(cpu=2), _adjustment(cpu="500m", pods=-50))
    assert found == EffectiveQuota(hard={"requests.cpu": 6500, "pods": 0})


def test_an_adjustment_counts_until_it_ends() -> None:
    """E10: the tenant is warned on the last day, and looked at again when something changes."""
    later = _effective(_adjustment("2026-02-01T00:00:00Z", cpu=2))
    assert (later.hard["requests.cpu"], later.warnings) == (6000, ())
    soon = _effective(_adjustment("2026-01-01T06:00:00Z", cpu=2))
    assert soon.warnings == ("adjustment 'more' ends at 2026-01-01T06:00:00Z",)
    assert soon.next_seconds is not None
    assert 0 < soon.next_seconds <= 6 * 3600
    past = _adjustment("2025-12-31T00:00:00Z", cpu=2)
    assert _effective(past) == EffectiveQuota(hard={"requests.cpu": 4000, "pods": 10_000}, past=(past,))


def test_an_adjustment_that_ended_leaves_the_spec_an_hour_later() -> None:
    """E10: and the tenant is looked at again then."""
    found = _effective(_adjustment("2025-12-31T23:30:00Z", cpu=2))
    assert (found.past, found.next_seconds) == ((), 1800.0)
    hour = _adjustment("2025-12-31T23:00:00Z", cpu=2)
    assert _effective(hour).past == (hour,)


def test_an_adjustment_that_makes_no_sense_is_left_out_and_the_others_count() -> None:
    """E10."""
    twice = Adjustment(name="twice", resources={"cpu": 1, "requests.cpu": 1})
    found = _effective(_adjustment(memory=1), twice, _adjustment(expires_at="tomorrow", cpu=1), _adjustment(cpu=1))
    assert found.hard["requests.cpu"] == 5000
    assert [problem.split(" is left out: ")[0] for problem in found.problems] == [
        "adjustment 'more'",
        "adjustment 'twice'",
        "adjustment 'more'",
    ]
