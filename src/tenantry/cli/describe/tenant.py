"""The page of a tenant. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.kubernetes import RoleBinding, Subject
from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.wording import more
from tenantry.cli import durations, output
from tenantry.cli.describe.sections import UNREADABLE, conditions, events, head, map_text, owners, rows, section
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.description import TenantDescription

LISTED = 10


def page(found: TenantDescription, now: datetime) -> list[Part]:
    """Return the page."""
    tenant = found.tenant
    spec, status, meta = tenant.spec, tenant.status, tenant.metadata
    runtime = spec.isolation.runtime
    pairs = [
        ("Labels", map_text(meta.labels)),
        ("Suspended", output.cell(spec.suspended)),
        ("Expires", durations.expiry(spec.expires_at, now)),
        ("Network", spec.isolation.network.value),
        ("Runtime", "Sandboxed if the cluster has a sandbox" if runtime is UNSET else runtime.value),
        ("Control plane", spec.isolation.control_plane.value),
        ("Nodes", spec.isolation.nodes.value),
        ("Isolation class", "not known yet" if status.isolation_class is UNSET else status.isolation_class.value),
        ("Cluster network policy", spec.cluster_network_policy.value),
    ]
    return [
        *head(meta, pairs, now),
        *owners(spec.owners),
        *conditions(meta, status.observed_generation, status.conditions, now),
        *section("Namespace", [_namespace(found)]),
        *(_inside(found) if found.owns_namespace else []),
        *events(found.events, now),
    ]


def _namespace(found: TenantDescription) -> str:
    if found.namespace is None:
        return "none yet"
    name = found.namespace.metadata.name
    if not found.owns_namespace:
        ready = find(found.tenant.status.conditions, reasons.READY)
        is_restored = ready is not None and ready.reason == reasons.NOT_ADOPTED
        before = "it belonged to an earlier tenant of this name" if is_restored else "it existed before"
        return f"{name} does not belong to this tenant: {before}"
    pods = "" if found.pods is None else f", {found.pods} pod{'' if found.pods == 1 else 's'}"
    return f"{name}  {found.namespace.status.phase}{pods}"


def _inside(found: TenantDescription) -> list[Part]:
    """Return the sections about the contents of the namespace."""
    usage = (
        None
        if found.quotas is None
        else [(each.key, each.used, each.hard, quota.metadata.name) for quota in found.quotas for each in quota.usage()]
    )
    limits = (
        None
        if found.limits is None
        else [
            (resource, output.cell(item.default_request.get(resource)), output.cell(item.default.get(resource)))
            for each in found.limits
            for item in each.spec.limits
            for resource in sorted({*item.default_request, *item.default})
        ]
    )
    policies = (
        None
        if found.policies is None
        else [
            *((f"ClusterNetworkPolicy {each.metadata.name}", each.spec.tier) for each in found.cluster_policies or ()),
            *((each.metadata.name, ", ".join(each.spec.policy_types)) for each in found.policies),
        ]
    )
    bindings = None if found.bindings is None else [row for each in found.bindings for row in _subjects(each)]
    return [
        *section("Quota", rows(("KEY", "USED", "HARD", "RESOURCEQUOTA"), usage, "no limits")),
        *section("Container defaults", rows(("RESOURCE", "REQUEST", "LIMIT"), limits)),
        *section("Network policies", rows(("NAME", "ABOUT"), policies, "none: everything is allowed")),
        *section("Access", rows(("SUBJECT", "ROLE", "ROLEBINDING"), bindings, "only administrators")),
        *section("Subnamespaces", _subnamespaces(found)),
    ]


def _subjects(binding: RoleBinding) -> Iterator[tuple[str, str, str]]:
    role = f"{binding.role_ref.kind} {binding.role_ref.name}"
    none = "none while suspended" if SUSPENDED_SUBJECTS in binding.metadata.annotations else "none"
    for subject in map(_subject, binding.subjects) if binding.subjects else (none,):
        yield subject, role, binding.metadata.name


def _subject(subject: Subject) -> str:
    namespace = subject.namespace
    return f"{subject.kind} {f'{namespace}/' if isinstance(namespace, str) and namespace else ''}{subject.name}"


def _subnamespaces(found: TenantDescription) -> list[Part]:
    if found.subnamespaces is None:
        return [UNREADABLE]
    listed = [
        (each.metadata.name, each.spec.mode.value, output.cell(each.status.namespace))
        for each in found.subnamespaces[:LISTED]
    ]
    left = len(found.subnamespaces) - LISTED
    return [*rows(("NAME", "MODE", "NAMESPACE"), listed), *([more(left)] if left > 0 else [])]
