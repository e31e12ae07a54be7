"""The policies that enforce rules, and those that protect the rules themselves. Pure.

Source: Kubernetes, "Validating Admission Policy" (parameter resources).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import MAPS, OWN_MARK, TenancyRules, action_mark
from tenantry.api.tenant import Tenant
from tenantry.install.policy import (
    IN_TENANTS,
    PARAM_KIND,
    Named,
    binding,
    bound,
    by,
    not_administrator,
    rule,
    says,
    validating,
)
from tenantry.policy import looser
from tenantry.policy.catalog import TARGETS
from tenantry.policy.check import RuleTarget, quoted
from tenantry.policy.compile import ENFORCED, PROBLEM, SUSPICIOUS, compiled, forms, only_validation
from tenantry.world.rules import STANDARD_SOURCE

PREFIX = "tenantry-rules-"
MADE = "tenantry-rules"
LOOSER = "tenantry-looser"

WARNED = "warn"
ACTIONS = {"enforce": "Deny", WARNED: "Warn", "audit": "Audit"}


def everything(subject: Json) -> list[Json]:
    """Return the policies of all rules and their bindings, and the policies that protect the rules.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*(each for kind in TARGETS for each in _policy(kind, subject)), *_made(subject), *_looser()]


def name_of(target: RuleTarget) -> str:
    """Return the name of the policy of a kind of object."""
    return f"{PREFIX}{target.name}"


def _policy(target: RuleTarget, subject: Json) -> list[Json]:
    parts, name = compiled(target), name_of(target)
    about = [rule(group, plurals, *target.operations) for group, plurals in target.groups]
    templates = [rule(group, plurals, *target.operations) for group, plurals in target.templates]
    policy = validating(
        name,
        [*about, *templates],
        [parts.validation],
        conditions=_spared(parts.conditions, subject) if target.spared else parts.conditions,
        where=_where_is(target),
        params=PARAM_KIND,
        variables=parts.variables,
    )
    enforced = about if templates else ()
    acted = [
        bindings(
            name,
            section=each,
            target=target.name if target.is_rarely_reported else "",
            missing=target.missing if each == ENFORCED else "",
            about=enforced if each == ENFORCED else (),
            # Each binding costs the API server a conversion of the object; the author of a template is warned anyway.
            without=target.unread if each == WARNED else (),
            validationActions=[action],
        )
        for each, action in ACTIONS.items()
    ]
    if templates:
        # The author of a template is warned at once; while there are no rules the pods are refused instead.
        acted.append(bindings(name, aside="templates", missing="Allow", about=templates, validationActions=["Warn"]))
    return [policy, *(each for both in acted for each in both)]


def _spared(conditions: Named, subject: Json) -> Named:
    """Return conditions that the operator's requests do not meet, in one expression that looks at the user first."""
    others = " && ".join(f"({cel})" for cel in conditions.values())
    return {SUSPICIOUS: f"!({by(subject)}) && {others}"}


def _where_is(target: RuleTarget) -> Json:
    """Return the selector of the namespaces that a policy is for."""
    marked = [_labelled(target.marked, "Exists")] if target.marked else []
    return {"matchExpressions": [*IN_TENANTS["matchExpressions"], *marked]}


def bindings(
    name: str,
    kind: str = "Validating",
    *,
    section: str = ENFORCED,
    target: str = "",
    aside: str = "",
    missing: str = "",
    about: Sequence[Json] = (),
    without: Sequence[str] = (),
    **more: Json | list[str],
) -> list[Json]:
    """Return the bindings of a policy to the rules of each namespace: its own, else those that tenants share.

    Args:
        name: The policy.
        kind: Validating or Mutating.
        section: Of the rules; warn and audit only select namespaces that have such rules.
        target: The kind of object that these rules are about; "" for any.
        aside: The end of the bindings' names, if the section has others.
        missing: Deny or Allow, for a request while there are no rules; by default Deny for `enforce`.
        about: The resources of the policy that they are for; see `rule`; by default all.
        without: Labels of objects that they are not for.
        more: Further fields of the spec.
    """
    # Before the operator has written rules, nothing passes.
    action = missing or ("Deny" if section == ENFORCED else "Allow")
    own: Json = {"name": MAPS[section], "parameterNotFoundAction": action}  # in the namespace of the request
    shared = {**own, "namespace": marks.SYSTEM_NAMESPACE}
    has_any = [_labelled(action_mark(section, target), "Exists")] if section != ENFORCED else []
    only: Json = {"resourceRules": list(about)} if about else {}
    if without:
        only["objectSelector"] = {"matchExpressions": [_labelled(label, "DoesNotExist") for label in without]}
    kept = {**_where(_labelled(OWN_MARK, "Exists"), *has_any), **only}
    common = {**_where(_labelled(OWN_MARK, "DoesNotExist"), *has_any), **only}
    called = "-".join(filter(None, (name, aside or (section if section != ENFORCED else ""))))
    return [
        binding(name, kind, called=called, **({"paramRef": own, "matchResources": kept} | more)),
        binding(name, kind, called=f"{called}-shared", **({"paramRef": shared, "matchResources": common} | more)),
    ]


def _labelled(label: str, operator: str) -> Json:
    return {"key": label, "operator": operator}


def _where(*expressions: Json) -> Json:
    return {"namespaceSelector": {"matchExpressions": list(expressions)}}


def _looser() -> list[Json]:
    """Return the policy that refuses rules that are looser than those above, in Tenants and Subnamespaces."""
    new = "request.operation == 'CREATE' || !has(oldObject.spec.rules) || object.spec.rules != oldObject.spec.rules"
    below, top = (rule(each.group, [each.plural]) for each in (Subnamespace.resource, Tenant.resource))
    # A Tenant may loosen the standard.
    ignored = f"object.kind == '{Tenant.resource.kind}' ? {quoted(STANDARD_SOURCE)} : ''"
    problem = looser.problem()
    used = {name: cel for name, cel in forms().items() if f"variables.{name}" in problem}
    policy = validating(
        LOOSER,
        [below, top],
        [only_validation()],
        conditions={"has-new-rules": f"has(object.spec.rules) && ({new})"},
        where=IN_TENANTS,
        params=PARAM_KIND,
        variables={**used, **looser.variables(ignored), PROBLEM: problem},
    )
    params: Json = {"name": MAPS[ENFORCED], "namespace": marks.SYSTEM_NAMESPACE, "parameterNotFoundAction": "Allow"}
    return [
        policy,
        # Before the operator has written rules, merging them loosens nothing either.
        *bindings(LOOSER, missing="Allow", about=[below]),
        # The same for rules of a Tenant: only TenancyDefaults are above.
        binding(LOOSER, called=f"{LOOSER}-tenants", paramRef=params, matchResources={"resourceRules": [top]}),
    ]


def _made(subject: Json) -> list[Json]:
    """Return the policy by which only the operator writes TenancyRules."""
    resource = TenancyRules.resource
    told = says("false", "TenancyRules are Tenantry's: change spec.rules of the Tenant or the Subnamespace")
    house = {
        "not-kubernetes-keeping-house": "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"
    }
    about = rule(resource.group, [resource.plural], "CREATE", "UPDATE", "DELETE")
    return bound(validating(MADE, [about], [told], conditions={**house, **not_administrator(subject)}))
