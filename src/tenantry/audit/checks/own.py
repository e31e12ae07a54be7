"""Checks of Tenantry's own objects, labels and annotations."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.requests import ClusterRoleRequest, RoleRequest, TenantRequest
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.audit import kinds
from tenantry.audit.attempts import DRY_RUN, create, delete, get, list_, may, patch
from tenantry.audit.check import (
    MERGE_PATCH,
    Attempt,
    AuditCheck,
    NotApplicable,
    Observation,
    Severity,
    WithoutTenantry,
)
from tenantry.audit.checks.api import in_each_other, named
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext, OtherNamespace
from tenantry.kube import wire

NOT_INSTALLED = "the cluster does not have Tenantry's kinds"
INSTALL = "Restore Tenantry's policies: `tenantry install`."


def _namespace_labels(context: AuditContext) -> list[Attempt]:
    changes: list[Json] = [
        {"metadata": {"labels": {marks.TENANT_UID: "x"}}},
        {"metadata": {"labels": {marks.TENANT_UID: None}}},
        {"metadata": {"labels": {marks.NETWORK: "Open"}}},
        {"metadata": {"labels": {f"{marks.POD_SECURITY}/enforce": "privileged"}}},
        {"metadata": {"annotations": {marks.CIDRS: "0.0.0.0/0"}}},
        {"metadata": {"labels": {"audit": "x"}}},
    ]
    found = [patch(Namespace.resource, context.namespace, change) for change in changes]
    # A policy that matches only the object itself does not see writes through subresources.
    found += [patch(Namespace.resource, context.namespace, changes[0], subresource="status")]
    return [*found, may("update", "namespaces", namespace=context.namespace, subresource="finalize")]


def _object_labels(context: AuditContext) -> list[Attempt]:
    return [
        create(kinds.CONFIG_MAPS, named(context, labels={key: "x"}), context.namespace, what=f"with the label {key}")
        for key in (marks.INHERITED_FROM, marks.TENANT)
    ]


def _managed_objects(context: AuditContext) -> list[Attempt] | NotApplicable:
    if context.made is None:
        return NotApplicable("the administrator may not read the namespace")
    if not context.made:
        return NotApplicable("Tenantry created nothing in this namespace")
    return [
        attempt
        for each in context.made
        for attempt in (
            Attempt(
                what=f"remove Tenantry's label from {each.told} (dry run)",
                method="PATCH",
                path=each.path,
                body={"metadata": {"labels": {marks.MANAGED_BY: "x"}}},
                content_type=MERGE_PATCH,
                query=DRY_RUN,
            ),
            Attempt(what=f"delete {each.told} (dry run)", method="DELETE", path=each.path, query=DRY_RUN),
        )
    ]


def _tenants(context: AuditContext) -> list[Attempt]:
    names = [name for name in (context.tenant, *context.other_tenants[:2]) if name] or [context.name]
    found = [patch(Tenant.resource, name, {"spec": {"suspended": False, "quota": {"hard": {}}}}) for name in names]
    found += [delete(Tenant.resource, name) for name in names]
    return [*found, create(Tenant.resource, {**named(context), "spec": {"owners": [{"kind": "User", "name": "x"}]}})]


def _read_tenants(context: AuditContext) -> list[Attempt]:
    found = [list_(kind.resource) for kind in (Tenant, TenantResourceQuota, TenantRequest)]
    return [*found, *(get(wire.path(Tenant.resource, "", name)) for name in context.other_tenants[:3])]


def _decisions(context: AuditContext) -> list[Attempt]:
    resource, name = TenantResourceQuota.resource, context.tenant or context.name
    return [
        patch(resource, name, {"spec": {"adjustments": []}}),
        patch(resource, name, {"status": {"hard": {}}}, subresource="status"),
        patch(TenancyDefaults.resource, "default", {"spec": {"rules": None}}),
        create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {}}),
        patch(TenancyRules.resource, "tenantry", {"spec": {"enforce": None}}, context.namespace),
        delete(TenancyRules.resource, "tenantry", context.namespace),
        patch(Tenant.resource, name, {"status": {"namespace": "kube-system"}}, subresource="status"),
    ]


def _subnamespaces(context: AuditContext, other: OtherNamespace) -> list[Attempt]:
    value = {**named(context), "spec": {"mode": "Workspace", "inheritance": {"roleBindings": "Sync"}}}
    return [
        list_(Subnamespace.resource, other.name),
        create(Subnamespace.resource, value, other.name),
        delete(Subnamespace.resource, context.name, other.name),
    ]


def _approvals(context: AuditContext) -> list[Attempt]:
    # An approval needs a request that exists, and an audit creates none: it asks for the right instead.
    found: list[Attempt] = []
    for plural in (TenantRequest.resource.plural, ClusterRoleRequest.resource.plural):
        found.append(may("patch", plural, group=marks.GROUP, subresource="status"))
        found.append(may("approve", plural, group=marks.GROUP))
    plural = RoleRequest.resource.plural
    return [*found, *(may("approve", plural, group=marks.GROUP, namespace=other.name) for other in context.others)]


def _reports(context: AuditContext) -> list[Attempt]:
    resource, name, change = IsolationReport.resource, "latest", {"status": {"score": 100}}
    return [
        patch(resource, name, change, context.namespace, subresource="status"),
        delete(resource, name, context.namespace),
    ]


def _installation(context: AuditContext) -> NotApplicable | Observation:
    if context.installation is None:
        return NotApplicable("the caller may not read and replace the installed objects")
    return Observation("compare the installed objects with the shipped ones", "; ".join(context.installation))


def _guards(context: AuditContext) -> NotApplicable | Observation:
    if context.unguarded is None:
        return NotApplicable("no control plane of the namespace has spec.guards, or the caller may not read them")
    return Observation("read the conditions of the control planes with guards", "; ".join(context.unguarded))


def _if_installed(row: AuditCheck) -> AuditCheck:
    def attempts(context: AuditContext) -> Sequence[Attempt] | NotApplicable | Observation:
        return row.attempts(context) if context.has_tenantry else NotApplicable(NOT_INSTALLED)

    return replace(row, attempts=attempts)


_ROWS = (
    check(
        "OWN-001",
        "Cannot change the labels of its namespace",
        Severity.CRITICAL,
        "Changes and removes labels of its namespace, through its status, too (dry runs).",
        "The namespace stays the tenant's, and its policies keep applying.",
        _namespace_labels,
    ),
    check(
        "OWN-002",
        "Cannot put Tenantry's labels on objects",
        Severity.MEDIUM,
        "Creates ConfigMaps with Tenantry's labels (dry runs).",
        "No object pretends that Tenantry created or copied it.",
        _object_labels,
        fix=INSTALL,
        control=lambda context: create(kinds.CONFIG_MAPS, named(context), context.namespace),
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "OWN-003",
        "Cannot change objects that Tenantry created",
        Severity.CRITICAL,
        "Changes and deletes the quota, limits, network policies, rules and bindings that Tenantry created (dry runs).",
        "The objects that isolate the tenant stay in place.",
        _managed_objects,
        fix=INSTALL,
        alone=WithoutTenantry.DEPENDS,
    ),
    check(
        "OWN-004",
        "Cannot change Tenants",
        Severity.CRITICAL,
        "Changes, deletes and creates Tenants, its own and others' (dry runs).",
        "Isolation and quota are what the administrators decided.",
        _tenants,
    ),
    check(
        "OWN-005",
        "Cannot read other Tenants",
        Severity.MEDIUM,
        "Lists Tenants, their quotas and the requests for new ones, and reads those of others.",
        "The tenant does not learn which other tenants the cluster has.",
        _read_tenants,
        benchmark="block_multitenant_resources",
    ),
    check(
        "OWN-006",
        "Cannot change decisions of administrators or the operator",
        Severity.CRITICAL,
        "Changes the TenantResourceQuota, TenancyDefaults, TenancyRules and a Tenant's status (dry runs).",
        "Rules and quotas stay in force.",
        _decisions,
    ),
    check(
        "OWN-007",
        "Cannot use Subnamespaces of others",
        Severity.CRITICAL,
        "Lists, creates and deletes Subnamespaces in namespaces of others (dry runs).",
        "The tenant does not change the trees of others.",
        in_each_other(_subnamespaces),
    ),
    check(
        "OWN-008",
        "Cannot approve requests of others",
        Severity.CRITICAL,
        "Asks whether the user may approve TenantRequests, ClusterRoleRequests and RoleRequests of others.",
        "Only users who may grant what a request asks for approve it.",
        _approvals,
    ),
    check(
        "OWN-009",
        "Does not have the verb administer",
        Severity.CRITICAL,
        "Asks whether the user may administer tenants.",
        "Tenantry's policies do not treat the tenant as an administrator.",
        lambda _: [may("administer", "tenants", group=marks.GROUP)],
    ),
    check(
        "OWN-011",
        "The installation is what this version ships",
        Severity.CRITICAL,
        "Compares each installed policy, binding, kind, role and shared parameter with the shipped one.",
        "No guard is missing, changed or has another exemption.",
        _installation,
        fix=INSTALL,
        alone=WithoutTenantry.DEPENDS,
    ),
    check(
        "OWN-012",
        "The guards of its clusters are in force",
        Severity.LOW,
        "Reads the condition GuardsEnforced of each control plane of the namespace that has guards.",
        "The API servers of its clusters refuse what guards name to their own administrators, too.",
        _guards,
        fix="Upgrade the control plane to Kubernetes 1.36, which has admission policies from files.",
        alone=WithoutTenantry.DEPENDS,
    ),
    check(
        "OWN-010",
        "Cannot change IsolationReports",
        Severity.LOW,
        "Changes and deletes the IsolationReport of its namespace (dry runs).",
        "Reports contain what the audit found.",
        _reports,
    ),
)

CHECKS: Sequence[AuditCheck] = tuple(_if_installed(row) for row in _ROWS)
