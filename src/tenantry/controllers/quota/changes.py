"""Which changes of objects concern the division of a quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.quota.objects import is_charged
from tenantry.engine.cache import Change
from tenantry.engine.observed import Observed


def by_spec(change: Change[Any]) -> Iterable[str]:
    """Return the key of an object whose spec has changed."""
    before, after = change.before, change.after
    if before is not None and after is not None and same_to_us(before, after):
        return ()
    return watched.own_key(change)


def charge(found: VirtualControlPlane) -> tuple[bool, dict[str, str], int]:
    """Return what decides about the charge of a control plane."""
    return is_charged(found), found.status.charged, found.status.wakes


def same_to_us(before: Any, after: Any) -> bool:  # noqa: ANN401 - any object with metadata
    """Return whether two states of an object are the same for the division."""
    # The operator itself writes the status: only the spec and a deletion concern the division.
    one, other = before.metadata, after.metadata
    return (one.uid, one.generation, one.deletion_timestamp) == (other.uid, other.generation, other.deletion_timestamp)


def differs(before: Observed, after: Observed) -> bool:
    """Return whether more has changed than the use."""
    return (before.digest, before.labels, before.annotations) != (after.digest, after.labels, after.annotations)
