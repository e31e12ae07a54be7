"""How long pods may stay that have to leave a node: pure.

since ──── grace period ────┬──── disruption budgets still hold ────┬──►
evicted               │ evicted, and stopped at once          │ deleted
"""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.world.leases import instant


class EvictionDeadlines(msgspec.Struct, frozen=True):
    """How long pods that have to leave may still stay.

    Args:
        grace: Seconds left of the grace period; 0 or less once it is over.
        budget: Seconds left during which disruption budgets hold; 0 or less once that is over.
    """

    grace: float
    budget: float


def eviction_deadlines(since: str, now: dt.datetime, grace_seconds: int, budget_seconds: int) -> EvictionDeadlines:
    """Return how long pods may still stay that have to leave.

    Args:
        since: Since when they have to, RFC 3339.
        now: The time.
        grace_seconds: The grace period.
        budget_seconds: How long disruption budgets hold, at least as long as the grace period.
    """
    spent = (now - instant(since)).total_seconds()
    return EvictionDeadlines(grace_seconds - spent, max(grace_seconds, budget_seconds) - spent)
