"""The amounts that a tenant may use at a moment: its quota and the adjustments in force (E10). Pure."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import Adjustment, TenantResourceQuota
from tenantry.controllers.quota.past import seconds_kept
from tenantry.world import quota
from tenantry.world.leases import lease
from tenantry.world.shares.amounts import Amounts, read, thousandths


class EffectiveQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that a tenant may use now.

    Args:
        hard: The amounts by normal key.
        problems: Adjustments that are not in force, and why.
        warnings: Adjustments that end soon.
        past: Adjustments that ended some time ago; see `past`.
        next_seconds: The seconds until one of these changes; None for never.
    """

    hard: Amounts
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    past: tuple[Adjustment, ...] = ()
    next_seconds: float | None = None


def effective_quota(tenant: Tenant, tenant_quota: TenantResourceQuota | None, now: dt.datetime) -> EffectiveQuota:
    """Return the amounts that a tenant may use now.

    Args:
        tenant: Its quota.
        tenant_quota: Its adjustments.
        now: The time, with an offset.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    hard = read(quota.normal(tenant.spec.quota.hard))
    problems: list[str] = []
    warnings: list[str] = []
    past: list[Adjustment] = []
    turns: list[float] = []
    changed = dict(hard)
    for adjustment in tenant_quota.spec.adjustments if tenant_quota is not None else ():
        try:
            term = lease(adjustment.expires_at, now)
            amounts = _amounts(adjustment, hard)
        except InputError as error:
            problems.append(f"adjustment {adjustment.name!r} is left out: {error}")
            continue
        if term.next_seconds is not None:
            turns.append(term.next_seconds)
        if term.is_expired:
            kept = seconds_kept(adjustment, now)
            if kept > 0:
                turns.append(kept)
            else:
                past.append(adjustment)
            continue
        if term.warned:
            warnings.append(f"adjustment {adjustment.name!r} ends at {adjustment.expires_at}")
        for key, value in amounts.items():
            changed[key] += value
    # Adjustments may be negative, and several may take more than there is.
    return EffectiveQuota(
        hard={key: max(0, value) for key, value in changed.items()},
        problems=tuple(problems),
        warnings=tuple(warnings),
        past=tuple(past),
        next_seconds=min(turns, default=None),
    )


def _amounts(adjustment: Adjustment, hard: Amounts) -> Amounts:
    amounts: Amounts = {}
    for key, value in adjustment.resources.items():
        normal = quota.normal_key(key)
        if normal not in hard:
            raise InputError(f"the tenant's quota does not limit {normal}")
        if normal in amounts:
            raise InputError(f"it has {key!r} and another spelling of it; keep one")
        amounts[normal] = thousandths(value)
    return amounts
