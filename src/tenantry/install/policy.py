"""The shapes of admission policies, and what several of them say: pure.

Source: Kubernetes, "Validating Admission Policy" and "Mutating Admission Policy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.policy.users import CONTROL_PLANE

Json = dict[str, Any]

ADMINISTER = "authorizer.group('tenantry.dev').resource('tenants').check('administer').allowed()"
"""Who may `administer` tenants is an administrator to every policy: cluster-admin, and the operator."""

KUBERNETES = f"({CONTROL_PLANE} || request.userInfo.groups.exists(group, group == 'system:nodes'))"
"""CEL: the request comes from Kubernetes' own controllers, its scheduler or a kubelet."""

IN_TENANTS: Json = {"matchExpressions": [{"key": marks.TENANT_UID, "operator": "Exists"}]}
"""Selects the namespaces of all tenants."""

_SELECTORS = ("namespaceSelector", "objectSelector")

IN_A_TENANTS_NAMESPACE = (
    f"has(namespaceObject.metadata.labels) && '{marks.TENANT_UID}' in namespaceObject.metadata.labels"
)


def by(subject: Json) -> str:
    """Return the expression for: the operator itself asks, which is told from other administrators by its name.

    An administrator to every policy anyway, it has to be asked no rights: it writes more than all others together.

    Args:
        subject: The operator, as RBAC names it: nobody else's name must do, as that of a local cluster elsewhere.
    """
    account = f"system:serviceaccount:{subject.get('namespace', '')}:" if subject["kind"] == "ServiceAccount" else ""
    return f"request.userInfo.username == '{account}{subject['name']}'"


def not_administrator(subject: Json) -> Json:
    """Return the condition that an administrator's requests do not meet.

    Args:
        subject: The operator, as RBAC names it.
    """
    return {"name": "not-an-administrator", "expression": f"!({by(subject)}) && !{ADMINISTER}"}


def rule(group: str, resources: Sequence[str], *operations: str) -> Json:
    """Return what a policy is about."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
    }


def says(expression: str, message: str, *, told: bool = False) -> Json:
    """Return one validation; `told` where the message is an expression itself."""
    return {"expression": expression, "messageExpression" if told else "message": message, "reason": "Forbidden"}


def validating(
    name: str,
    rules: Sequence[Json],
    validations: Sequence[Json],
    *,
    conditions: Sequence[Json] = (),
    where: Json | None = None,
    **more: object,
) -> Json:
    """Return a ValidatingAdmissionPolicy.

    Args:
        name: Its name.
        rules: What it is about; see `rule`.
        validations: What has to hold; see `says`.
        conditions: When it is asked at all: what they leave out costs little.
        where: The namespaceSelector; None for everywhere.
        more: Further fields of the spec.
    """
    return _policy("Validating", name, rules, conditions, where, {"validations": list(validations), **more})


def mutating(
    name: str,
    rules: Sequence[Json],
    patches: Sequence[str],
    *,
    conditions: Sequence[Json] = (),
    where: Json | None = None,
    reinvoked: str = "Never",
) -> Json:
    """Return a MutatingAdmissionPolicy.

    Args:
        name: Its name.
        rules: What it is about; see `rule`.
        patches: Expressions that give a list of JSONPatch.
        conditions: When it is asked at all.
        where: The namespaceSelector; None for everywhere.
        reinvoked: Never, or IfNeeded where a later one may undo it.
    """
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches]
    return _policy(
        "Mutating", name, rules, conditions, where, {"reinvocationPolicy": reinvoked, "mutations": mutations}
    )


def _policy(  # noqa: PLR0917 - the parts of one object
    kind: str, name: str, rules: Sequence[Json], conditions: Sequence[Json], where: Json | None, more: Json
) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}AdmissionPolicy",
        "metadata": {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                **({"namespaceSelector": where} if where is not None else {}),
                "resourceRules": list(rules),
            },
            **({"matchConditions": list(conditions)} if conditions else {}),
            **more,
        },
    }


def binding(name: str, kind: str = "Validating", *, called: str = "", **more: object) -> Json:
    """Return what puts a policy into force everywhere.

    Args:
        name: Of the policy, and of the binding.
        kind: Validating or Mutating.
        called: The binding's own name, where the policy has several.
        more: Further fields of the spec, as paramRef.
    """
    actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": called or name, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {"policyName": name, **actions, **more},
    }


def narrowed(made: Sequence[Json]) -> list[Json]:
    """Return policies and bindings with the selectors of each policy moved to its bindings, which asks the same.

    Of a policy the API server looks at the selectors before the resources, and parses them for every request of any
    kind; of a binding only where the policy is about the request's resource. With 40 policies that was 8 % of its CPU
    while a tree was made; see docs/benchmarks.md, "Trees". A policy that did not compile would refuse what it is about
    in every namespace, but the API server stores none.

    Source: k8s.io/apiserver, pkg/admission/plugin/policy/matching, `Matcher.Matches`.

    Args:
        made: Anything that is installed; what is no policy or binding is left as it is.
    """
    selectors: dict[tuple[str, str], Json] = {}
    found: list[Json] = []
    for each in made:
        match = each.get("spec", {}).get("matchConstraints", {})
        own = {key: match[key] for key in _SELECTORS if key in match}
        if own:
            selectors[each["kind"], each["metadata"]["name"]] = own
            rest = {key: value for key, value in match.items() if key not in own}
            found.append({**each, "spec": {**each["spec"], "matchConstraints": rest}})
        else:
            found.append(each)
    return [_with(each, selectors) for each in found]


def _with(made: Json, selectors: Mapping[tuple[str, str], Json]) -> Json:
    """Return a binding that selects what its policy selected, too."""
    kind = made["kind"].removesuffix("Binding")
    more = selectors.get((kind, made.get("spec", {}).get("policyName", ""))) if kind != made["kind"] else None
    if not more:
        return made
    match = made["spec"].get("matchResources", {})
    both = {key: _both(match.get(key, {}), selector) for key, selector in more.items()}
    return {**made, "spec": {**made["spec"], "matchResources": {**match, **both}}}


def _both(one: Json, other: Json) -> Json:
    """Return the label selector that selects what both select."""
    labels = {**one.get("matchLabels", {}), **other.get("matchLabels", {})}
    expressions = [*one.get("matchExpressions", ())]
    expressions += [each for each in other.get("matchExpressions", ()) if each not in expressions]
    return {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }
