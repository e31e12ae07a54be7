"""The status of TenancyDefaults about the levels that they reserve: pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tenantry.api import reasons
from tenantry.api.tenancydefaults import TenancyDefaults, TenancyDefaultsStatus
from tenantry.api.wording import shortened
from tenantry.engine.conditions import Wanted, replaced
from tenantry.engine.plan import Blocked


def compute(
    defaults: TenancyDefaults, missing: Collection[str], problem: Blocked | None, now: str
) -> TenancyDefaultsStatus:
    """Return the status to write; the conditions of other controllers stay.

    Args:
        defaults: As an administrator has it.
        missing: The reserved tenants that are not there.
        problem: What keeps a level or FlowSchema from being as it should; None for nothing.
        now: RFC 3339.
    """
    message = (
        f"no such tenants in spec.fairness.reserved: {shortened(map(repr, missing))}; no user has their"
        " levels until they are made: correct the names, or take them out"
    )
    wanted = Wanted(reasons.TENANTS_MISSING, bool(missing), reasons.TENANT_NOT_FOUND, message, only_true=True)
    blocked = Wanted(reasons.LEVELS_BLOCKED, False, "", "", only_true=True)
    if problem is not None:
        blocked = Wanted(reasons.LEVELS_BLOCKED, True, problem.reason, problem.message, only_true=True)
    status = defaults.status
    conditions = replaced(status.conditions, [wanted, blocked], generation=defaults.metadata.generation, now=now)
    return msgspec.structs.replace(status, conditions=conditions)
