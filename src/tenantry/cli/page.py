"""What `tenantry describe` prints of a tenant: pure, the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.kubernetes import LimitRange, RoleBinding, Subject
from tenantry.api.marks import SUSPENDED_SUBJECTS, TENANT_UID
from tenantry.api.model import KubernetesObject
from tenantry.api.owner import Owner
from tenantry.api.runtime import Runtime
from tenantry.api.subnamespace import Subnamespace, SubnamespaceStatus
from tenantry.api.tenant import Tenant, TenantStatus
from tenantry.api.tenantresourcequota import TenantResourceQuotaStatus
from tenantry.api.wording import more
from tenantry.cli import durations, output
from tenantry.cli.seen import ClusterPolicySeen, EventSeen, NamespaceSeen, PolicySeen, QuotaSeen

if TYPE_CHECKING:
    from tenantry.cli.output import Part

Status = TenantStatus | SubnamespaceStatus | TenantResourceQuotaStatus

EVENTS = 10
LISTED = 10
UNREADABLE = "you may not read this"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one tenant; None is what may not be read."""

    tenant: Tenant
    namespace: NamespaceSeen | None
    quotas: list[QuotaSeen] | None
    limits: list[LimitRange] | None
    policies: list[PolicySeen] | None
    cluster_policies: list[ClusterPolicySeen] | None
    bindings: list[RoleBinding] | None
    pods: int | None
    subnamespaces: list[Subnamespace] | None
    events: list[EventSeen] | None


def lines(facts: Facts, now: datetime) -> list[Part]:
    """Return the page."""
    return [
        *_head(facts.tenant, now),
        *section("Owners", owners(facts.tenant.spec.owners)),
        *section("Conditions", conditions(facts.tenant, facts.tenant.status, now)),
        *section("Namespace", _namespace(facts)),
        *(_inside(facts) if _is_own(facts) else []),
        *section("Events", events(facts.events, now)),
    ]


def _head(tenant: Tenant, now: datetime) -> list[str]:
    spec, meta = tenant.spec, tenant.metadata
    pairs = [
        ("Name", meta.name),
        ("Age", durations.age(meta.creation_timestamp, now)),
        ("Uid", meta.uid),
        ("Labels", marks_text(meta.labels)),
        ("Suspended", output.cell(spec.suspended)),
        ("Expires", expiry(spec.expires_at, now)),
        ("Network", spec.isolation.network.value),
        ("Runtime", _runtime(spec.isolation.runtime)),
        ("Cluster network policy", spec.cluster_network_policy.value),
    ]
    if meta.deletion_timestamp:
        pairs.insert(2, ("Being deleted", f"for {durations.age(meta.deletion_timestamp, now)}"))
    return head(pairs)


def _runtime(runtime: Runtime | UnsetType) -> str:
    return "Sandboxed where the cluster has a sandbox" if runtime is UNSET else runtime.value


def expiry(at: str, now: datetime) -> str:
    """Return when something ends, and in how long."""
    if not at:
        return "never"
    left = durations.left(at, now)
    return f"{at} ({f'in {durations.text(left)}' if left > 0 else 'past'})"


def head(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines of names and values, the values below each other."""
    width = max(len(name) for name, _ in pairs) + 1
    return [f"{name + ':':<{width}}  {value}" for name, value in pairs]


def marks_text(marks: dict[str, str]) -> str:
    """Return labels or annotations in one line."""
    return ", ".join(f"{key}={value}" for key, value in sorted(marks.items())) or output.NONE


def section(title: str, body: Iterable[Part]) -> list[Part]:
    """Return a title and the indented lines below it."""
    return [f"{title}:", *(output.indented(part) for part in list(body) or [output.NONE])]


def owners(given: Sequence[Owner]) -> list[Part]:
    """Return the table of owners."""
    if not given:
        return []
    rows = [(owner.kind.value, owner.name, owner.namespace) for owner in given]
    return [output.table(("KIND", "NAME", "NAMESPACE"), [[output.cell(value) for value in row] for row in rows])]


def conditions(value: KubernetesObject, status: Status, now: datetime) -> list[Part]:
    """Return the table of an object's conditions."""
    found = status.conditions
    if not found:
        return ["none yet: the operator has not dealt with it; does it run?"]
    rows = [
        (each.type, each.status.value, durations.age(each.last_transition_time, now), each.reason, each.message)
        for each in found
    ]
    stale = status.observed_generation < value.metadata.generation
    note = ["these are about an older spec: the operator has not dealt with the newest yet"] if stale else []
    return [output.table(("TYPE", "STATUS", "AGE", "REASON", "MESSAGE"), rows), *note]


def _is_own(facts: Facts) -> bool:
    labels = facts.namespace.metadata.labels if facts.namespace is not None else {}
    return labels.get(TENANT_UID) == facts.tenant.metadata.uid


def _namespace(facts: Facts) -> Iterator[str]:
    namespace = facts.namespace
    if namespace is None:
        yield "none yet"
        return
    name = namespace.metadata.name
    if not _is_own(facts):
        yield f"{name} is not this tenant's: it was there before"
        return
    pods = "" if facts.pods is None else f", {facts.pods} pod{'' if facts.pods == 1 else 's'}"
    yield f"{name}  {namespace.status.phase}{pods}"


def _inside(facts: Facts) -> list[Part]:
    """Return the sections about what is in the namespace."""
    return [
        *section("Quota", _quota(facts.quotas)),
        *section("Container defaults", _limits(facts.limits)),
        *section("Network policies", _policies(facts.policies, facts.cluster_policies)),
        *section("Who gets in", _bindings(facts.bindings)),
        *section("Subnamespaces", _subnamespaces(facts.subnamespaces)),
    ]


def _quota(quotas: Sequence[QuotaSeen] | None) -> list[Part]:
    if quotas is None:
        return [UNREADABLE]
    rows = [(use.key, use.used, use.hard, quota.metadata.name) for quota in quotas for use in quota.uses()]
    return [output.table(("KEY", "USED", "HARD", "RESOURCEQUOTA"), rows)] if rows else ["no limits"]


def _limits(limits: Sequence[LimitRange] | None) -> list[Part]:
    if limits is None:
        return [UNREADABLE]
    rows = [
        (resource, output.cell(item.default_request.get(resource)), output.cell(item.default.get(resource)))
        for each in limits
        for item in each.spec.limits
        for resource in sorted({*item.default_request, *item.default})
    ]
    return [output.table(("RESOURCE", "REQUEST", "LIMIT"), rows)] if rows else []


def _policies(policies: Sequence[PolicySeen] | None, above: Sequence[ClusterPolicySeen] | None) -> list[Part]:
    if policies is None:
        return [UNREADABLE]
    rows = [(f"ClusterNetworkPolicy {each.metadata.name}", each.spec.tier) for each in above or ()]
    rows += [(each.metadata.name, ", ".join(each.spec.policy_types)) for each in policies]
    return [output.table(("NAME", "ABOUT"), rows)] if rows else ["none: everything is allowed"]


def _bindings(bindings: Sequence[RoleBinding] | None) -> list[Part]:
    if bindings is None:
        return [UNREADABLE]
    rows: list[tuple[str, str, str]] = []
    for binding in bindings:
        role = f"{binding.role_ref.kind} {binding.role_ref.name}"
        closed = SUSPENDED_SUBJECTS in binding.metadata.annotations
        nobody = "nobody while suspended" if closed else "nobody"
        people = [_subject(subject) for subject in binding.subjects] or [nobody]
        rows += [(person, role, binding.metadata.name) for person in people]
    return [output.table(("WHO", "ROLE", "ROLEBINDING"), rows)] if rows else ["nobody but administrators"]


def _subnamespaces(found: Sequence[Subnamespace] | None) -> list[Part]:
    if found is None:
        return [UNREADABLE]
    rows = [(each.metadata.name, each.spec.mode.value, output.cell(each.status.namespace)) for each in found[:LISTED]]
    rest = [more(len(found) - LISTED)] if len(found) > LISTED else []
    return [output.table(("NAME", "MODE", "NAMESPACE"), rows), *rest] if rows else []


def _subject(subject: Subject) -> str:
    namespace = subject.namespace
    return f"{subject.kind} {f'{namespace}/' if isinstance(namespace, str) and namespace else ''}{subject.name}"


def events(found: Sequence[EventSeen] | None, now: datetime) -> list[Part]:
    """Return the table of the latest events; None where they may not be read."""
    if found is None:
        return [UNREADABLE]
    latest = sorted(found, key=lambda event: event.last)[-EVENTS:]
    rows = [
        (durations.age(event.last, now), event.type, event.reason, str(event.count), output.cell(event.note))
        for event in latest
    ]
    return [output.table(("LAST", "TYPE", "REASON", "COUNT", "MESSAGE"), rows)] if rows else []
