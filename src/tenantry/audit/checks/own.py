"""Checks of Tenantry's own objects and marks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import Namespace
from tenantry.api.requests import ClusterRoleRequest, RoleRequest, TenantRequest
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.audit import kinds
from tenantry.audit.attempts import DRY_RUN, create, delete, get, list_, may, patch
from tenantry.audit.check import MERGE_PATCH, Alone, Area, Attempt, Check, Nothing, Seen, Severity
from tenantry.audit.checks.api import named, of_others, of_rights
from tenantry.audit.place import Foreign, Place
from tenantry.kube import wire

Json = dict[str, Any]

NOT_HERE = "the cluster does not have Tenantry's kinds"
INSTALL = "Put Tenantry's policies back: `tenantry install`."


def _marks(place: Place) -> list[Attempt]:
    changes: list[Json] = [
        {"metadata": {"labels": {marks.TENANT_UID: "x"}}},
        {"metadata": {"labels": {marks.TENANT_UID: None}}},
        {"metadata": {"labels": {marks.NETWORK: "Open"}}},
        {"metadata": {"labels": {f"{marks.POD_SECURITY}/enforce": "privileged"}}},
        {"metadata": {"annotations": {marks.CIDRS: "0.0.0.0/0"}}},
        {"metadata": {"labels": {"audit": "x"}}},
    ]
    found = [patch(Namespace.resource, place.namespace, change) for change in changes]
    found += [patch(Namespace.resource, place.namespace, changes[0], subresource="status")]
    return [*found, may("update", "namespaces", namespace=place.namespace, subresource="finalize")]


def _marked(place: Place) -> list[Attempt]:
    return [
        create(kinds.CONFIG_MAPS, named(place, labels={key: "x"}), place.namespace, what=f"with the label {key}")
        for key in (marks.INHERITED_FROM, marks.TENANT)
    ]


def _honest(place: Place) -> Attempt:
    return create(kinds.CONFIG_MAPS, named(place), place.namespace)


def _made(place: Place) -> list[Attempt] | Nothing:
    if place.made is None:
        return Nothing("whoever asked may not read the namespace")
    if not place.made:
        return Nothing("Tenantry made nothing in this namespace")
    return [
        attempt
        for each in place.made
        for attempt in (
            Attempt(
                what=f"take Tenantry's label from {each.told} (dry run)",
                method="PATCH",
                path=each.path,
                body={"metadata": {"labels": {marks.MANAGED_BY: "x"}}},
                content_type=MERGE_PATCH,
                query=DRY_RUN,
            ),
            Attempt(what=f"delete {each.told} (dry run)", method="DELETE", path=each.path, query=DRY_RUN),
        )
    ]


def _tenants(place: Place) -> list[Attempt]:
    names = [name for name in (place.tenant, *place.other_tenants[:2]) if name] or [place.name]
    found = [patch(Tenant.resource, name, {"spec": {"suspended": False, "quota": {"hard": {}}}}) for name in names]
    found += [delete(Tenant.resource, name) for name in names]
    return [*found, create(Tenant.resource, {**named(place), "spec": {"owners": [{"kind": "User", "name": "x"}]}})]


def _read_tenants(place: Place) -> list[Attempt]:
    found = [list_(Tenant.resource), list_(TenantResourceQuota.resource), list_(TenantRequest.resource)]
    return [*found, *(get(wire.path(Tenant.resource, "", name)) for name in place.other_tenants[:3])]


def _decisions(place: Place) -> list[Attempt]:
    resource, name = TenantResourceQuota.resource, place.tenant or place.name
    return [
        patch(resource, name, {"spec": {"adjustments": []}}),
        patch(resource, name, {"status": {"hard": {}}}, subresource="status"),
        patch(TenancyDefaults.resource, "default", {"spec": {"rules": None}}),
        create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {}}),
        patch(TenancyRules.resource, "tenantry", {"spec": {"enforce": None}}, place.namespace),
        delete(TenancyRules.resource, "tenantry", place.namespace),
        patch(Tenant.resource, name, {"status": {"namespace": "kube-system"}}, subresource="status"),
    ]


def _subnamespaces(place: Place, other: Foreign) -> list[Attempt]:
    value = {**named(place), "spec": {"mode": "Workspace", "inheritance": {"roleBindings": "Sync"}}}
    return [
        list_(Subnamespace.resource, other.name),
        create(Subnamespace.resource, value, other.name),
        delete(Subnamespace.resource, place.name, other.name),
    ]


def _approvals(place: Place) -> list[Attempt]:
    # Asked rather than tried: a request has to be there, and making one is not for an audit.
    found = [
        may("patch", kind.resource.plural, group=marks.GROUP, subresource="status")
        for kind in (TenantRequest, ClusterRoleRequest)
    ]
    found += [may("approve", kind.resource.plural, group=marks.GROUP) for kind in (TenantRequest, ClusterRoleRequest)]
    plural = RoleRequest.resource.plural
    return [*found, *(may("approve", plural, group=marks.GROUP, namespace=other.name) for other in place.others)]


def _administer(_: Place) -> list[Attempt]:
    return [may("administer", "tenants", group=marks.GROUP)]


def _reports(place: Place) -> list[Attempt]:
    return [
        patch(IsolationReport.resource, "latest", {"status": {"score": 100}}, place.namespace, subresource="status"),
        delete(IsolationReport.resource, "latest", place.namespace),
    ]


def _where_installed(check: Check) -> Check:
    def attempts(place: Place) -> Sequence[Attempt] | Nothing | Seen:
        return check.attempts(place) if place.has_tenantry else Nothing(NOT_HERE)

    return replace(check, attempts=attempts)


_check = partial(of_rights, area=Area.TENANTRY, group="OWN")

_ROWS = (
    _check(
        "001",
        "Marks of its namespace",
        Severity.CRITICAL,
        "Changes and removes labels of its namespace, through its status too (dry runs).",
        "The namespace stays the tenant's, under its policies.",
        _marks,
    ),
    _check(
        "002",
        "Marks on its objects",
        Severity.MEDIUM,
        "Creates ConfigMaps with Tenantry's marks (dry runs).",
        "Nothing looks as if Tenantry had made or inherited it.",
        _marked,
        control=_honest,
        fix=INSTALL,
        alone=Alone.OPEN,
    ),
    _check(
        "003",
        "What Tenantry made",
        Severity.CRITICAL,
        "Changes and deletes the quota, limits, network policies, rules and bindings that Tenantry made (dry runs).",
        "The guards stay where they are.",
        _made,
        fix=INSTALL,
        alone=Alone.DEPENDS,
    ),
    _check(
        "004",
        "Tenants are written",
        Severity.CRITICAL,
        "Changes, deletes and creates Tenants, its own and others' (dry runs).",
        "Isolation and quota are what the administrators decided.",
        _tenants,
    ),
    _check(
        "005",
        "Tenants are read",
        Severity.MEDIUM,
        "Lists Tenants, their quotas and the requests for new ones, and reads those of others.",
        "Who else is on the cluster is not told.",
        _read_tenants,
        benchmark="block_multitenant_resources",
    ),
    _check(
        "006",
        "Decisions of administrators and of the operator",
        Severity.CRITICAL,
        "Changes the TenantResourceQuota, TenancyDefaults, TenancyRules and a Tenant's status (dry runs).",
        "Rules and quotas are not lifted.",
        _decisions,
    ),
    _check(
        "007",
        "Subnamespaces of others",
        Severity.CRITICAL,
        "Lists, creates and deletes Subnamespaces in namespaces of others (dry runs).",
        "Nobody else's tree is changed.",
        of_others(_subnamespaces),
    ),
    _check(
        "008",
        "Approval of requests",
        Severity.CRITICAL,
        "Asks whether it may approve TenantRequests, ClusterRoleRequests and RoleRequests of others.",
        "Nobody approves what is not theirs to give.",
        _approvals,
    ),
    _check(
        "009",
        "The verb administer",
        Severity.CRITICAL,
        "Asks whether it may administer tenants.",
        "Tenantry's policies do not take the tenant for an administrator.",
        _administer,
    ),
    _check(
        "010",
        "Reports like this one",
        Severity.LOW,
        "Changes and deletes the IsolationReport of its namespace (dry runs).",
        "Reports say what was found.",
        _reports,
    ),
)

CHECKS: Sequence[Check] = tuple(_where_installed(row) for row in _ROWS)
