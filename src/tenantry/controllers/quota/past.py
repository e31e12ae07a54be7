"""Adjustments that have ended leave the spec: pure.

    ended for an hour, set by `tenantry quota adjust` alone     removed
    ended for an hour, also set by another client               stays: a GitOps controller would add it again, forever

The record of `metadata.managedFields` shows which clients set an adjustment: the list is a map by name. Source:
Kubernetes, "Server-Side Apply".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from tenantry.api.marks import CLI_FIELD_MANAGER
from tenantry.api.model import Json
from tenantry.api.tenantresourcequota import Adjustment, TenantResourceQuota
from tenantry.engine.plan import Amendment, Plan
from tenantry.world.leases import instant

KEPT_SECONDS = 3600.0
"""How long an adjustment stays after its end, so that a person who looks for the reason of a change finds it."""


def seconds_kept(adjustment: Adjustment, now: dt.datetime) -> float:
    """Return how many seconds an adjustment that has ended stays; 0 or less if it is to be removed."""
    return KEPT_SECONDS - (now - instant(adjustment.expires_at)).total_seconds()


def plan(tenant_quota: TenantResourceQuota, past: Iterable[Adjustment]) -> Plan:
    """Return the write that removes adjustments.

    Args:
        tenant_quota: The object that has them.
        past: The adjustments that have ended.
    """
    ended = {each.name: each.expires_at for each in past}

    def change(found: Json) -> Json:
        there: list[Json] = found.get("spec", {}).get("adjustments", [])
        shared = _names_of_others(found)
        # One of the same name may have been set anew meanwhile.
        kept = [each for each in there if each["name"] in shared or ended.get(each["name"]) != each.get("expiresAt")]
        return {"spec": {"adjustments": kept}} if len(kept) < len(there) else {}

    return Plan(writes=(Amendment(resource=tenant_quota.resource, seen=tenant_quota, change=change, is_read=True),))


def _names_of_others(found: Json) -> set[str]:
    """Return the names of the adjustments that another client than the command sets."""
    names: set[str] = set()
    for each in found["metadata"].get("managedFields", []):
        if each.get("manager") == CLI_FIELD_MANAGER:
            continue
        fields = each.get("fieldsV1", {}).get("f:spec", {}).get("f:adjustments", {})
        names |= {item["name"] for item in map(_key, fields) if "name" in item}
    return names


def _key(field: str) -> dict[str, str]:
    """Return the key of a list item in a record of fields: `k:{"name":"sale"}`; {} for another field."""
    return msgspec.json.decode(field.removeprefix("k:"), type=dict[str, str]) if field.startswith("k:") else {}
