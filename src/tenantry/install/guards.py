"""What keeps tenants from changing the objects that Tenantry creates in their namespaces. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.api.requests import REQUEST, REQUEST_UID
from tenantry.install.marks import ObjectGuard, protection
from tenantry.install.policy import KUBERNETES, rule

REPORTS = IsolationReport.resource
_MADE = (
    ("", ["resourcequotas", "limitranges", "configmaps"]),
    ("networking.k8s.io", ["networkpolicies"]),
    (RBAC_GROUP, ["roles", "rolebindings"]),
    (REPORTS.group, [REPORTS.plural]),
)
"""The kinds that Tenantry creates in a namespace: group and resources."""


def guards(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return protection(subject, _made())


def _made() -> ObjectGuard:
    """Return what protects the objects that Tenantry creates in a namespace.

    They are known by their names, and bindings of granted requests by their mark, which tenants can neither set nor
    remove. IsolationReports are always Tenantry's.
    """
    kinds = [(group, resource) for group, resources in _MADE for resource in resources]
    rules = [rule(group, resources, "DELETE") for group, resources in _MADE]
    # A deletion has no object, and the deletion of a collection has no name in the request.
    which = "(object != null ? object : oldObject).metadata.name"
    granted = f"(oldObject != null && '{REQUEST_UID}' in oldObject.?metadata.labels.orValue({{}}))"
    reported = f"request.resource.resource == '{REPORTS.plural}'"
    listed = ", ".join(f"'{group}/{resource}'" for group, resource in kinds)
    is_one = f"(request.resource.group + '/' + request.resource.resource) in [{listed}] && !has(request.subResource)"
    ours = f"({which}.startsWith('tenantry-') || {granted} || {reported})"
    request = f"RoleRequest '\" + oldObject.metadata.labels[?'{REQUEST}'].orValue('') + \"'"
    told = (
        f'"\'" + {which} + "\' is Tenantry\'s: " + ({reported}'
        f' ? "an administrator writes it by `tenantry audit --report`" : {granted}'
        f' ? "{request} determines its content; to end it, delete the request"'
        ' : "the Tenant or the Subnamespace determines its content; change it there, or give your own object'
        ' another name")'
    )
    return ObjectGuard(rules=rules, suspicious=f"({is_one} && {ours} && !{KUBERNETES})", message=told)
