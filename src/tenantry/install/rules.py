"""The policies by which rules are kept, and what keeps the rules themselves. Pure.

Source: Kubernetes, "Validating Admission Policy" (parameter resources).
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.tenancyrules import AUDIT_MARK, NAME, OWN_MARK, WARN_MARK, TenancyRules
from tenantry.install.policy import IN_TENANTS, NOT_ADMINISTRATOR, binding, rule, says, validating
from tenantry.policy.check import Subject
from tenantry.policy.compile import SUBJECTS, compiled

Json = dict[str, Any]

PREFIX = "tenantry-rules-"
MADE = "tenantry-rules"

_KIND: Json = {"apiVersion": TenancyRules.resource.api_version, "kind": TenancyRules.resource.kind}
_ACTIONS = {"enforce": "Deny", "warn": "Warn", "audit": "Audit"}
_WHERE: dict[str, Json] = {
    "enforce": IN_TENANTS,
    "warn": {"matchExpressions": [{"key": WARN_MARK, "operator": "Exists"}]},
    "audit": {"matchExpressions": [{"key": AUDIT_MARK, "operator": "Exists"}]},
}


def everything() -> list[Json]:
    """Return the policies of all rules and their bindings, and what protects the rules."""
    policies = [each for subject in SUBJECTS for section in _ACTIONS for each in _policy(subject, section)]
    return [*policies, *_made()]


def name_of(subject: Subject, section: str) -> str:
    """Return the name of the policy of a kind of object."""
    return f"{PREFIX}{subject.name}" + ("" if section == "enforce" else f"-{section}")


def _policy(subject: Subject, section: str) -> list[Json]:
    parts, name = compiled(subject, section), name_of(subject, section)
    policy = validating(
        name,
        [rule(subject.group, subject.resources, *subject.operations)],
        parts.validations,
        conditions=parts.conditions,
        where=_WHERE[section],
        paramKind=_KIND,
        variables=parts.variables,
    )
    return [policy, *bindings(name, validationActions=[_ACTIONS[section]])]


def bindings(name: str, kind: str = "Validating", **more: Json | list[str]) -> list[Json]:
    """Return what gives a policy the rules of each namespace: its own, else those that all tenants share.

    Args:
        name: Of the policy.
        kind: Validating or Mutating.
        more: Further fields of the spec.
    """
    # Without rules nothing passes: the operator has not been there yet.
    own: Json = {"name": NAME, "parameterNotFoundAction": "Deny"}  # in the namespace of the request
    shared = {**own, "namespace": marks.SYSTEM_NAMESPACE}
    kept: Json = {"paramRef": own, "matchResources": _where(OWN_MARK, "Exists"), **more}
    common: Json = {"paramRef": shared, "matchResources": _where(OWN_MARK, "DoesNotExist"), **more}
    return [binding(name, kind, **kept), binding(name, kind, called=f"{name}-shared", **common)]


def _where(label: str, operator: str) -> Json:
    return {"namespaceSelector": {"matchExpressions": [{"key": label, "operator": operator}]}}


def _made() -> list[Json]:
    """Return what keeps people from writing the rules of a namespace."""
    resource = TenancyRules.resource
    told = says("false", "TenancyRules are Tenantry's: change spec.rules of the Tenant or the Subnamespace")
    house = {
        "name": "not-kubernetes-keeping-house",
        "expression": "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
    }
    about = rule(resource.group, [resource.plural], "CREATE", "UPDATE", "DELETE")
    return [validating(MADE, [about], [told], conditions=[house, NOT_ADMINISTRATOR]), binding(MADE)]
