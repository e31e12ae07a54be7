"""The pages of a Subnamespace and of a TenantResourceQuota. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tenantry.api.subnamespace import Inheritance, InheritanceMode, Subnamespace
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.wording import shortened
from tenantry.cli import durations, output
from tenantry.cli.describe.sections import conditions, events, head, map_text, owners, rows, section

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.objects import ReportedEvent


def subnamespace_page(value: Subnamespace, found: Sequence[ReportedEvent] | None, now: datetime) -> list[Part]:
    """Return the page of a Subnamespace."""
    spec, status, meta = value.spec, value.status, value.metadata
    pairs = [
        ("Namespace", status.namespace or "none yet"),
        ("Mode", spec.mode.value),
        ("Scope", spec.scope.value),
        ("Control plane", spec.isolation.control_plane.value),
        ("Depth", str(status.depth) if status.depth else "not known yet"),
        ("Subnamespaces inside", _children(status.children, status.first_children)),
        ("Deleted with what is inside", "yes" if spec.allow_cascading_deletion else "no: not while any are inside"),
        ("Expires", durations.expiry(spec.expires_at, now)),
        ("Labels", map_text(spec.labels)),
        ("Annotations", map_text(spec.annotations)),
    ]
    if spec.adopt.namespace:
        where = f", moved from {spec.adopt.parent}" if spec.adopt.parent else ""
        pairs.append(("Adopts", f"{spec.adopt.namespace}{where}"))
    quota = status.quota
    assigned = quota.assigned or {key: str(amount) for key, amount in spec.quota.hard.items()}
    return [
        *head(meta, pairs, now),
        *owners(spec.owners),
        *section("Inherits", _inheritance(spec.inheritance, status.copied)),
        *conditions(meta, status.observed_generation, status.conditions, now),
        *section("Quota, of all below it together", _quota(assigned, quota.used, quota.free)),
        *events(found, now),
    ]


def quota_page(value: TenantResourceQuota, found: Sequence[ReportedEvent] | None, now: datetime) -> list[Part]:
    """Return the page of a TenantResourceQuota."""
    meta, status = value.metadata, value.status
    pairs = [
        ("Namespaces", str(len(status.tree) + status.omitted)),
        ("Moves under way", str(len(status.batch.targets))),
    ]
    adjustments = [
        (
            each.name,
            ", ".join(f"{key}={by}" for key, by in each.resources.items()),
            durations.expiry(each.expires_at, now),
        )
        for each in value.spec.adjustments
    ]
    return [
        *head(meta, pairs, now),
        *section("Adjustments", rows(("NAME", "RESOURCES", "EXPIRES"), adjustments)),
        *conditions(meta, status.observed_generation, status.conditions, now),
        *section("Quota of the whole tree", _quota(status.hard, status.used, {})),
        *events(found, now),
    ]


def _children(count: int, first: Sequence[str]) -> str:
    return f"{count} ({shortened(first, in_order=True, total=count)})" if first else str(count)


def _inheritance(given: Inheritance, copied: Sequence[str]) -> list[Part]:
    modes = {
        "roles": given.roles,
        "roleBindings": given.role_bindings,
        "networkPolicies": given.network_policies,
        "limitRanges": given.limit_ranges,
        "secrets": given.secrets,
        "configMaps": given.config_maps,
        "serviceAccounts": given.service_accounts,
        **{each.resource: each.mode for each in given.others},
    }
    found = [(kind, mode.value) for kind, mode in modes.items() if mode is not InheritanceMode.NONE]
    done = [f"copied already: {', '.join(copied)}"] if copied and found else []
    return [*rows(("KIND", "MODE"), found, "nothing"), *done]


def _quota(assigned: Mapping[str, str], used: Mapping[str, str], free: Mapping[str, str]) -> list[Part]:
    found = [
        (key, amount, output.cell(used.get(key)), *([output.cell(free.get(key))] if free else []))
        for key, amount in sorted(assigned.items())
    ]
    return rows(("KEY", "ASSIGNED", "USED", *(["FREE"] if free else [])), found, "none")
