"""What `tenantry describe` prints of a Subnamespace and of a TenantResourceQuota: pure, the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tenantry.api.subnamespace import Inheritance, InheritanceMode, Subnamespace
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.wording import shortened
from tenantry.cli import durations, output
from tenantry.cli.page import conditions, events, expiry, head, marks_text, owners, section
from tenantry.cli.seen import EventSeen

if TYPE_CHECKING:
    from tenantry.cli.output import Part


def subnamespace(value: Subnamespace, found: Sequence[EventSeen] | None, now: datetime) -> list[Part]:
    """Return the page of a Subnamespace."""
    spec, status, meta = value.spec, value.status, value.metadata
    pairs = [
        ("Name", meta.name),
        ("Parent", meta.namespace),
        ("Namespace", status.namespace or "none yet"),
        ("Age", durations.age(meta.creation_timestamp, now)),
        ("Uid", meta.uid),
        ("Mode", spec.mode.value),
        ("Scope", spec.scope.value),
        ("Depth", str(status.depth) if status.depth else "not known yet"),
        ("Subnamespaces inside", _children(status.children, status.first_children)),
        ("Deleted with what is inside", "yes" if spec.allow_cascading_deletion else "no: not while any are inside"),
        ("Expires", expiry(spec.expires_at, now)),
        ("Labels", marks_text(spec.labels)),
        ("Annotations", marks_text(spec.annotations)),
    ]
    if meta.deletion_timestamp:
        pairs.insert(4, ("Being deleted", f"for {durations.age(meta.deletion_timestamp, now)}"))
    if spec.adopt.namespace:
        where = f", moved from {spec.adopt.parent}" if spec.adopt.parent else ""
        pairs.append(("Adopts", f"{spec.adopt.namespace}{where}"))
    quota = status.quota
    return [
        *head(pairs),
        *section("Owners", owners(spec.owners)),
        *section("Inherits", _inheritance(spec.inheritance, status.copied)),
        *section("Conditions", conditions(value, status, now)),
        *section("Quota, of all below it together", _quota(quota.assigned or _asked(value), quota.used, quota.free)),
        *section("Events", events(found, now)),
    ]


def quota(value: TenantResourceQuota, found: Sequence[EventSeen] | None, now: datetime) -> list[Part]:
    """Return the page of a TenantResourceQuota."""
    meta, status = value.metadata, value.status
    pairs = [
        ("Name", meta.name),
        ("Age", durations.age(meta.creation_timestamp, now)),
        ("Uid", meta.uid),
        ("Namespaces", str(len(status.tree) + status.omitted)),
        ("Moves under way", str(len(status.batch.targets))),
    ]
    rows = [
        (
            each.name,
            ", ".join(f"{key}={amount}" for key, amount in each.resources.items()),
            expiry(each.expires_at, now),
        )
        for each in value.spec.adjustments
    ]
    return [
        *head(pairs),
        *section("Adjustments", [output.table(("NAME", "RESOURCES", "EXPIRES"), rows)] if rows else []),
        *section("Conditions", conditions(value, status, now)),
        *section("Quota of the whole tree", _quota(status.hard, status.used, {})),
        *section("Events", events(found, now)),
    ]


def _children(count: int, first: Sequence[str]) -> str:
    if not first:
        return str(count)
    return f"{count} ({shortened(first, total=count)})"


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
    rows = [(kind, mode.value) for kind, mode in modes.items() if mode is not InheritanceMode.NONE]
    if not rows:
        return ["nothing"]
    done = [f"copied already: {', '.join(copied)}"] if copied else []
    return [output.table(("KIND", "MODE"), rows), *done]


def _asked(value: Subnamespace) -> dict[str, str]:
    return {key: str(amount) for key, amount in value.spec.quota.hard.items()}


def _quota(assigned: Mapping[str, str], used: Mapping[str, str], free: Mapping[str, str]) -> list[Part]:
    rows = [
        (key, amount, output.cell(used.get(key)), *([output.cell(free.get(key))] if free else []))
        for key, amount in sorted(assigned.items())
    ]
    headers = ("KEY", "ASSIGNED", "USED", *(["FREE"] if free else []))
    return [output.table(headers, rows)] if rows else ["none"]
