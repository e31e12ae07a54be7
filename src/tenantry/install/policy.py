"""Admission policies and their bindings, and the conditions that several of them share. Pure.

Source: Kubernetes, "Validating Admission Policy" and "Mutating Admission Policy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.policyparameters import PolicyParameters
from tenantry.policy.users import CONTROL_PLANE

Named = Mapping[str, str]
"""Name to CEL: conditions, or variables in the order in which they are used."""

ADMINISTER = "authorizer.group('tenantry.dev').resource('tenants').check('administer').allowed()"
"""CEL: the user is an administrator to every policy: cluster-admin, and the operator."""

KUBERNETES = f"({CONTROL_PLANE} || request.userInfo.groups.exists(group, group == 'system:nodes'))"
"""CEL: the request comes from Kubernetes' own controllers, its scheduler or a kubelet."""

IN_TENANTS: Json = {"matchExpressions": [{"key": marks.TENANT_UID, "operator": "Exists"}]}
"""Selects the namespaces of all tenants."""

_IN_A_TENANTS_NAMESPACE = (
    f"has(namespaceObject.metadata.labels) && '{marks.TENANT_UID}' in namespaceObject.metadata.labels"
)

PARAM_KIND: Json = {"apiVersion": PolicyParameters.resource.api_version, "kind": PolicyParameters.resource.kind}
"""The kind of the objects with rules, registers and limits; see `policyparameters`."""

_SELECTORS = ("namespaceSelector", "objectSelector")


# CEL has no clock: the time of the newest entry of managedFields is the time of this write.
EXPIRES_LATER = (
    "!has(object.spec.expiresAt) || request.operation == 'UPDATE' && has(oldObject.spec.expiresAt)"
    " && oldObject.spec.expiresAt == object.spec.expiresAt || object.metadata.managedFields.all(f, !has(f.time)"
    " || timestamp(object.spec.expiresAt) > timestamp(f.time))"
)
"""CEL: spec.expiresAt of an object is in the future, or unchanged."""


def by(subject: Json) -> str:
    """Return CEL: whether the request comes from the operator.

    The operator could administer tenants anyway, but its name is cheaper to check than its rights, and it writes more
    than all others together.

    Args:
        subject: The operator, as RBAC names it. Other names must not match, as that of a local cluster elsewhere.
    """
    account = f"system:serviceaccount:{subject.get('namespace', '')}:" if subject["kind"] == "ServiceAccount" else ""
    return f"request.userInfo.username == '{account}{subject['name']}'"


def not_operator(subject: Json) -> Named:
    """Return the condition that the operator's requests do not meet."""
    return {"not-the-operator": f"!({by(subject)})"}


def not_administrator(subject: Json) -> Named:
    """Return the condition that an administrator's requests do not meet.

    Args:
        subject: The operator, as RBAC names it.
    """
    return {"not-an-administrator": f"!({by(subject)}) && !{ADMINISTER}"}


def exists(label: str) -> Json:
    """Return the selector of namespaces with a label."""
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def rule(group: str, resources: Sequence[str], *operations: str, **more: Any) -> Json:  # noqa: ANN401 - fields of JSON
    """Return resources that a policy is evaluated for; CREATE and UPDATE unless operations are given."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations or ("CREATE", "UPDATE")),
        "resources": list(resources),
        **more,
    }


NEW_PODS = rule("", ["pods"], "CREATE", apiVersions=["v1"])


NODES = rule("", ["nodes", "nodes/status"])


def items(path: str) -> str:
    """Return CEL for a mutating policy: the list at a path of the object; [] if it is missing or null.

    A mutating policy sees an object before the API server validates it. A required list without a value is null there,
    and an expression that fails on it would refuse the request instead of the validation.
    """
    return f"(has({path}) && {path} != null ? {path} : [])"


def in_a_tenant(what: str) -> Json:
    """Return the validation that objects are only created in namespaces of tenants.

    Args:
        what: The object, as in "the SliceClaim".
    """
    message = (
        f"'namespace ' + request.namespace + ' does not belong to a tenant: create {what} in a tenant\\'s namespace'"
    )
    return says(f"request.operation != 'CREATE' || {_IN_A_TENANTS_NAMESPACE}", message, told=True)


def says(expression: str, message: str, *, told: bool = False) -> Json:
    """Return one validation; `told` if the message is an expression itself."""
    return {"expression": expression, "messageExpression" if told else "message": message, "reason": "Forbidden"}


def adds_no_finalizer(refusal: str) -> Json:
    """Return the validation that rejects finalizers of a new object, and further ones of an object that exists.

    Args:
        refusal: What follows "metadata.finalizers of " in the message: the kinds, and the reason.
    """
    return says(
        "!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, oldObject != null"
        " && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)",
        f"metadata.finalizers of {refusal}",
    )


def validating(
    name: str,
    rules: Sequence[Json],
    validations: Sequence[Json],
    *,
    conditions: Named | None = None,
    variables: Named | None = None,
    where: Json | None = None,
    params: Json | None = None,
) -> Json:
    """Return a ValidatingAdmissionPolicy.

    Args:
        name: Its name.
        rules: The resources that it is evaluated for; see `rule`.
        validations: What has to hold; see `says`.
        conditions: The matchConditions: requests that do not meet them cost little.
        variables: Of the validations.
        where: The namespaceSelector; None for everywhere.
        params: The paramKind; None for no parameters.
    """
    more: Json = {"validations": list(validations)}
    return _policy("Validating", name, rules, conditions, variables, where, params, more)


def mutating(
    name: str,
    rules: Sequence[Json],
    patches: Sequence[str],
    *,
    conditions: Named | None = None,
    variables: Named | None = None,
    where: Json | None = None,
    params: Json | None = None,
    reinvoked: str = "Never",
) -> Json:
    """Return a MutatingAdmissionPolicy.

    Args:
        name: Its name.
        rules: The resources that it is evaluated for; see `rule`.
        patches: Expressions that give a list of JSONPatch.
        conditions: As for `validating`, as the next three.
        variables: Of the patches.
        where: The namespaceSelector.
        params: The paramKind.
        reinvoked: Never, or IfNeeded if a later policy may undo it.
    """
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches]
    more: Json = {"reinvocationPolicy": reinvoked, "mutations": mutations}
    return _policy("Mutating", name, rules, conditions, variables, where, params, more)


def _policy(  # noqa: PLR0917 - the parts of one object
    kind: str,
    name: str,
    rules: Sequence[Json],
    conditions: Named | None,
    variables: Named | None,
    where: Json | None,
    params: Json | None,
    more: Json,
) -> Json:
    spec: Json = {
        # Admission fails closed: the API server refuses a request if the policy cannot be evaluated.
        "failurePolicy": "Fail",
        "matchConstraints": {
            **({"namespaceSelector": where} if where is not None else {}),
            # Rules name every version of their groups, and no kind of theirs is served by two groups. So the default,
            # Equivalent, matches nothing more, and looks up other names of the resource for each policy and request.
            "matchPolicy": "Exact",
            "resourceRules": list(rules),
        },
        **({"matchConditions": _expressions(conditions)} if conditions else {}),
        **more,
        **({"paramKind": params} if params else {}),
        **({"variables": _expressions(variables)} if variables else {}),
    }
    return _object(f"{kind}AdmissionPolicy", name, spec)


def _expressions(named: Named) -> list[Json]:
    return [{"name": name, "expression": cel} for name, cel in named.items()]


def _object(kind: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": spec,
    }


def binding(name: str, kind: str = "Validating", *, called: str = "", **more: Json | list[str]) -> Json:
    """Return the binding that puts a policy into force everywhere.

    Args:
        name: The name of the policy, and of the binding.
        kind: Validating or Mutating.
        called: The binding's own name, if the policy has several.
        more: Further fields of the spec, as paramRef.
    """
    actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
    return _object(f"{kind}AdmissionPolicyBinding", called or name, {"policyName": name, **actions, **more})


def bound(policy: Json, **more: Json | list[str]) -> list[Json]:
    """Return a policy and its binding, with further fields of the binding's spec."""
    kind = policy["kind"].removesuffix("AdmissionPolicy")
    return [policy, binding(policy["metadata"]["name"], kind, called="", **more)]


def refusing(
    name: str,
    rules: Sequence[Json],
    message: str,
    *,
    conditions: Named,
    where: Json | None = None,
    told: bool = False,
) -> list[Json]:
    """Return a policy that refuses every request that meets its conditions, and its binding; see `validating`."""
    return bound(validating(name, rules, [says("false", message, told=told)], conditions=conditions, where=where))


def narrowed(made: Sequence[Json]) -> list[Json]:
    """Return policies and bindings with the selectors of each policy moved to its bindings.

    The effect is the same and cheaper: the API server looks at the selectors of a policy before the resources, and
    parses them for every request of any kind; at those of a binding only if the policy is about the request's resource.
    With 40 policies that was 8 % of its CPU while a tree was created; see docs/benchmarks.md, "Trees". A policy that
    did not compile would then refuse requests in every namespace, but the API server stores none.

    Source: k8s.io/apiserver, pkg/admission/plugin/policy/matching, `Matcher.Matches`.

    Args:
        made: Anything that is installed; other objects are left as they are.
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
    """Return a binding that also selects what its policy selected."""
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
