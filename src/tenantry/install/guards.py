"""The policies that keep tenants from changing the objects that Tenantry creates in their namespaces. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.api.requests import REQUEST, REQUEST_UID
from tenantry.install.marks import protection
from tenantry.install.policy import ADMINISTER, IN_TENANTS, KUBERNETES, by, refusing, rule

MADE = "tenantry-made"
REPORTS = IsolationReport.resource


def guards(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*_made(subject), *protection(subject)]


def _made(subject: Json) -> list[Json]:
    """Return the policy that protects the objects that Tenantry creates in a namespace.

    They are known by their names, and bindings of granted requests by their mark, which tenants can neither set nor
    remove. IsolationReports are always Tenantry's.
    """
    rules = [
        rule(group, resources, "CREATE", "UPDATE", "DELETE")
        for group, resources in (
            ("", ["resourcequotas", "limitranges", "configmaps"]),
            ("networking.k8s.io", ["networkpolicies"]),
            (RBAC_GROUP, ["rolebindings"]),
            (REPORTS.group, [REPORTS.plural]),
        )
    ]
    # A deletion has no object, and the deletion of a collection has no name in the request.
    which = "(object != null ? object : oldObject).metadata.name"
    granted = f"(oldObject != null && '{REQUEST_UID}' in oldObject.?metadata.labels.orValue({{}}))"
    reported = f"request.resource.resource == '{REPORTS.plural}'"
    ours = f"({which}.startsWith('tenantry-') || {granted} || {reported})"
    # One expression, because all conditions are evaluated, and a check of the user's rights is the expensive part.
    asked = f"!({by(subject)}) && {ours} && !{KUBERNETES} && !{ADMINISTER}"
    conditions = {"of-ours-and-not-by-an-administrator": asked}
    request = f"RoleRequest '\" + oldObject.metadata.labels[?'{REQUEST}'].orValue('') + \"'"
    told = (
        f'"\'" + {which} + "\' is Tenantry\'s: " + ({reported}'
        f' ? "an administrator writes it by `tenantry audit --report`" : {granted}'
        f' ? "{request} determines its content; to end it, delete the request"'
        ' : "the Tenant or the Subnamespace determines its content; change it there, or give your own object'
        ' another name")'
    )
    return refusing(MADE, rules, told, told=True, conditions=conditions, where=IN_TENANTS)
