"""The policies by which rules are kept, and what keeps the rules themselves. Pure.

Source: Kubernetes, "Validating Admission Policy" (parameter resources).
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import AUDIT_MARK, NAME, OWN_MARK, WARN_MARK, TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.install.policy import IN_TENANTS, NOT_ADMINISTRATOR, binding, rule, says, validating
from tenantry.policy import looser
from tenantry.policy.check import Subject
from tenantry.policy.compile import ENFORCED, PROBLEM, SUBJECTS, compiled, forms, only_validation
from tenantry.world.rules import STANDARD_SOURCE

Json = dict[str, Any]

PREFIX = "tenantry-rules-"
MADE = "tenantry-rules"
LOOSER = "tenantry-looser-subnamespaces"
LOOSER_TENANTS = "tenantry-looser-tenants"

PARAM_KIND: Json = {"apiVersion": TenancyRules.resource.api_version, "kind": TenancyRules.resource.kind}
ACTIONS = {"enforce": "Deny", "warn": "Warn", "audit": "Audit"}
_WHERE: dict[str, Json] = {
    "enforce": IN_TENANTS,
    "warn": {"matchExpressions": [{"key": WARN_MARK, "operator": "Exists"}]},
    "audit": {"matchExpressions": [{"key": AUDIT_MARK, "operator": "Exists"}]},
}


def everything() -> list[Json]:
    """Return the policies of all rules and their bindings, and what protects the rules."""
    policies = [each for subject in SUBJECTS for section in ACTIONS for each in _policy(subject, section)]
    return [*policies, *_made(), *_looser()]


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
        where=_where_is(subject, section),
        paramKind=PARAM_KIND,
        variables=parts.variables,
    )
    return [policy, *bindings(name, validationActions=[ACTIONS[section]])]


def _where_is(subject: Subject, section: str) -> Json:
    """Return the namespaces that a policy is about."""
    marked = [{"key": subject.marked, "operator": "Exists"}] if subject.marked else []
    return {"matchExpressions": [*_WHERE[section]["matchExpressions"], *marked]}


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


def _looser() -> list[Json]:
    """Return what keeps rules from being looser than those above: a Tenant's, and a Subnamespace's."""
    params: Json = {"name": NAME, "namespace": marks.SYSTEM_NAMESPACE, "parameterNotFoundAction": "Allow"}
    return [
        _compares(LOOSER, Subnamespace, IN_TENANTS, ""),
        *bindings(LOOSER),
        # What is only the standard is a Tenant's to decide otherwise.
        _compares(LOOSER_TENANTS, Tenant, None, STANDARD_SOURCE),
        # Without the operator's first word nothing is above a Tenant but what it would merge anyway.
        binding(LOOSER_TENANTS, paramRef=params),
    ]


def _compares(name: str, kind: type[Subnamespace | Tenant], where: Json | None, ignored: str) -> Json:
    new = "request.operation == 'CREATE' || !has(oldObject.spec.rules) || object.spec.rules != oldObject.spec.rules"
    return validating(
        name,
        [rule(kind.resource.group, [kind.resource.plural], "CREATE", "UPDATE")],
        [only_validation()],
        conditions=[{"name": "has-new-rules", "expression": f"has(object.spec.rules) && ({new})"}],
        where=where,
        paramKind=PARAM_KIND,
        variables=[
            {"name": form, "expression": text}
            for form, text in {**forms(ENFORCED), PROBLEM: looser.problem(ignored)}.items()
        ],
    )


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
