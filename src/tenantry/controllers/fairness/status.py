"""What TenancyDefaults say of the levels that they reserve: pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tenantry.api import reasons
from tenantry.api.tenancydefaults import TenancyDefaults, TenancyDefaultsStatus
from tenantry.engine.conditions import Wanted, replaced

NAMED = 3
"""How many are named in a message."""


def compute(defaults: TenancyDefaults, missing: Collection[str], now: str) -> TenancyDefaultsStatus:
    """Return the status to write; what others say there stays.

    Args:
        defaults: As an administrator has it.
        missing: The reserved tenants that are not there.
        now: RFC 3339.
    """
    names = sorted(missing)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    message = (
        f"no such tenants in spec.fairness.reserved: {', '.join(map(repr, names[:NAMED]))}{more}; nobody has their"
        " levels until they are made: correct the names, or take them out"
    )
    wanted = Wanted(reasons.TENANTS_MISSING, bool(names), reasons.TENANT_NOT_FOUND, message, only_true=True)
    status = defaults.status
    conditions = replaced(status.conditions, [wanted], generation=defaults.metadata.generation, now=now)
    return msgspec.structs.replace(status, conditions=conditions)
