"""What keeps a tenant within its own namespaces although it may write in them: the API server refuses the rest. Pure.

Source: Kubernetes, "Validating Admission Policy" and "Network Policies" (policies add up: one that opens is enough).
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.install.marks import KUBERNETES, protection
from tenantry.install.policy import ADMINISTER, IN_TENANTS, NOT_ADMINISTRATOR, binding, rule, says, validating

Json = dict[str, Any]

MADE = "tenantry-made"
NETWORK = "tenantry-networkpolicies"

_CONFINED = {
    "matchExpressions": [
        {"key": marks.TENANT_UID, "operator": "Exists"},
        {"key": marks.NETWORK, "operator": "In", "values": ["Isolated", "Baseline"]},
    ]
}


def guards() -> list[Json]:
    """Return the policies and their bindings."""
    return [*_made(), *protection(), *_network()]


def _made() -> list[Json]:
    """Return what protects the objects that Tenantry makes in a namespace, which are known by their names."""
    rules = [
        rule(group, resources, "CREATE", "UPDATE", "DELETE")
        for group, resources in (
            ("", ["resourcequotas", "limitranges"]),
            ("networking.k8s.io", ["networkpolicies"]),
            (RBAC_GROUP, ["rolebindings"]),
        )
    ]
    # A deletion has no object, and one of a collection names none in the request.
    which = "(object != null ? object : oldObject).metadata.name"
    # In one expression, because all conditions are evaluated, and to ask what somebody may do is what costs.
    asked = f"{which}.startsWith('tenantry-') && !{KUBERNETES} && !{ADMINISTER}"
    conditions = [{"name": "of-ours-and-not-by-an-administrator", "expression": asked}]
    told = (
        f"\"'\" + {which} + \"' is Tenantry's: what it says comes from the Tenant or the Subnamespace; change it there,"
        ' and give objects of your own another name"'
    )
    policy = validating(MADE, rules, [says("false", told, told=True)], conditions=conditions, where=IN_TENANTS)
    return [policy, binding(MADE)]


def _network() -> list[Json]:
    """Return what keeps a tenant's own NetworkPolicies from opening it to others (H06).

    In a namespace that is Isolated or Baseline, whoever may come in is of the tenant; in one that is Isolated, so is
    whatever its pods may reach. What is to be opened further is opened by an administrator.
    """
    own = f"namespaceObject.metadata.labels['{marks.TENANT_UID}']"
    pinned = (
        "!has(p.ipBlock) && (!has(p.namespaceSelector) || has(p.namespaceSelector.matchLabels)"
        f" && '{marks.TENANT_UID}' in p.namespaceSelector.matchLabels"
        f" && p.namespaceSelector.matchLabels['{marks.TENANT_UID}'] == {own})"
    )
    isolated = f"namespaceObject.metadata.labels['{marks.NETWORK}'] == 'Isolated'"
    how = (
        f" + {own} + ', or have a podSelector alone, which means this namespace; to open it to others is for an"
        " administrator'"
    )

    def told(field: str, peers: str) -> str:
        return f"'{field}: each rule must have {peers}, and each of them must select {marks.TENANT_UID}: '{how}"

    validations = [
        says(
            "!has(object.spec.ingress) || object.spec.ingress.all(r,"
            f" has(r.from) && size(r.from) > 0 && r.from.all(p, {pinned}))",
            told("spec.ingress", "from"),
            told=True,
        ),
        says(
            f"!({isolated}) || !has(object.spec.egress) || object.spec.egress.all(r,"
            f" has(r.to) && size(r.to) > 0 && r.to.all(p, {pinned}))",
            told("spec.egress", "to"),
            told=True,
        ),
    ]
    about = rule("networking.k8s.io", ["networkpolicies"], "CREATE", "UPDATE")
    policy = validating(NETWORK, [about], validations, conditions=[NOT_ADMINISTRATOR], where=_CONFINED)
    return [policy, binding(NETWORK)]
