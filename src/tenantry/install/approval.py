"""The policies of requests: the API server writes the requester and the decider, and checks both. Pure.

    create          ─► spec.requester := the authenticated user   ─► it is that user
    status.decision ─► status.decidedBy := the authenticated user ─► not the requester, may approve, may bind the role

They hold while the operator is down. Sources: Kubernetes, "Mutating Admission Policy", "Validating Admission Policy",
and "Using RBAC Authorization" (the verb `bind`).
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import KEEP, READ, Json, Resource
from tenantry.api.requests import (
    APPROVALS,
    APPROVALS_MARK,
    REASONS,
    REQUESTS,
    ClusterRoleRequest,
    RoleRequest,
    TenantRequest,
)
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.install.policy import (
    ADMINISTER,
    PARAM_KIND,
    Named,
    bound,
    by,
    in_a_tenant,
    mutating,
    rule,
    says,
    validating,
)
from tenantry.install.rights import allow, cluster_role, given
from tenantry.policy.text import has_parameter, parameter
from tenantry.policy.users import CONTROL_PLANE

STAMPS = ("tenantry-requester", "tenantry-decider")
ASKING = "tenantry-requests"
DECIDING = "tenantry-request-decisions"
OPERATOR_ROLE = "tenantry-operator-requests"
REQUESTER_ROLE = "tenantry-requester"
CLUSTER_REQUESTER_ROLE = "tenantry-cluster-requester"

OWNERS_MAY_GIVE = ("view", "edit", "admin", marks.OWNER_ROLE)
"""ClusterRoles whose rights every owner has in its namespaces: binding them there grants nothing new."""


def everything(subject: Json) -> list[Json]:
    """Return policies, bindings and rights of requests.

    Args:
        subject: The operator, as RBAC names it.
    """
    operator = by(subject)
    return [*_rights(subject), *_stamps(), *_checks(operator), *_automatic(operator)]


# -- stamps ---------------------------------------------------------------------------------------


def _stamps() -> list[Json]:
    plurals = [kind.resource.plural for kind in REQUESTS]
    who = (
        "Object.spec.requester{name: request.userInfo.username,"
        " groups: has(request.userInfo.groups) ? request.userInfo.groups : []}"
    )
    statuses = [f"{plural}/status" for plural in plurals]
    return [
        *_stamp(STAMPS[0], rule(marks.GROUP, plurals, "CREATE"), "/spec/requester", who),
        *_stamp(
            STAMPS[1],
            rule(marks.GROUP, statuses, "UPDATE"),
            "/status/decidedBy",
            "request.userInfo.username",
            {"decides": f"{_decision('object')} != {_decision('oldObject')}"},
        ),
    ]


def _stamp(name: str, about: Json, path: str, value: str, conditions: Named | None = None) -> list[Json]:
    patch = f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]'
    # The API server itself refuses a request without a spec or a status, after this policy.
    above = f"object.{path.split('/')[1]}"
    there = {"has-fields": f"has({above}) && {above} != null", **(conditions or {})}
    return bound(mutating(name, [about], [patch], conditions=there, reinvoked="IfNeeded"))


def _decision(of: str) -> str:
    return f"(has({of}.status) && has({of}.status.decision) ? {of}.status.decision : 'Pending')"


# -- checks ---------------------------------------------------------------------------------------


_TENANTS = f"request.resource.resource == '{TenantRequest.resource.plural}'"
_NAMESPACED = "has(request.namespace)"
_PLACE = f".namespace({_NAMESPACED} ? request.namespace : '')"


def _checks(operator: str) -> list[Json]:
    """Return the policies on requests of every kind: one on requests, and one on decisions."""
    plurals = [kind.resource.plural for kind in REQUESTS]
    asked = rule(marks.GROUP, plurals, "CREATE", "UPDATE", "DELETE")
    decided = rule(marks.GROUP, [f"{plural}/status" for plural in plurals], "UPDATE")
    return [
        *bound(validating(ASKING, [asked], _asking(operator))),
        *bound(validating(DECIDING, [decided], _deciding(), variables=_variables(operator))),
    ]


def _may_approve() -> str:
    resource = f"authorizer.group('{marks.GROUP}').resource(request.resource.resource)"
    return f"{resource}{_PLACE}.check('approve').allowed()"


def _asking(operator: str) -> list[Json]:
    """Return the validations of every request, and of its deletion."""
    creates = "request.operation == 'CREATE'"
    mine = "(has(oldObject.spec.requester) && oldObject.spec.requester.name == request.userInfo.username)"
    kept = "request.operation == 'UPDATE' && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers"
    found = [
        says(
            # A mutating policy, or the operator's webhook, has just written it: only without these, it is another one.
            f"!({creates}) || has(object.spec.requester) && has(object.spec.requester.name)"
            " && object.spec.requester.name == request.userInfo.username"
            " && (has(object.spec.requester.groups) ? object.spec.requester.groups : [])"
            " == (has(request.userInfo.groups) ? request.userInfo.groups : [])",
            "spec.requester must be the user who asks: the MutatingAdmissionPolicy tenantry-requester is missing; run"
            " `tenantry install`, or on Kubernetes before 1.36 wait until the operator runs",
        ),
        says(
            f"request.operation != 'DELETE' || {mine} || {CONTROL_PLANE} || {_may_approve()}"
            f" || ({operator}) && {_decision('oldObject')} == 'Pending'",
            "only the requester and users who may decide can delete a request: its grant ends with it",
        ),
        says(
            f"request.operation == 'DELETE' || !has(object.metadata.finalizers) || object.metadata.finalizers.all(f,"
            f" {kept}) || ({operator}) || {CONTROL_PLANE} || {ADMINISTER}",
            "metadata.finalizers of a request must not be set: it ends when it is withdrawn, and what it gave with it",
        ),
    ]
    inside = in_a_tenant("the request")
    return [*found, {**inside, "expression": f"!{_NAMESPACED} || {inside['expression']}"}]


def _variables(operator: str) -> dict[str, str]:
    def field(of: str, name: str, empty: str = "''") -> str:
        return f"has({of}.status) && has({of}.status.{name}) ? {of}.status.{name} : {empty}"

    return {
        "was": _decision("oldObject"),
        "is": _decision("object"),
        "decides": "variables.was != variables.is",
        "approves": "variables.decides && variables.is == 'Approved'",
        "isOperator": operator,
        "requester": "has(object.spec.requester) ? object.spec.requester.name : ''",
        "decider": field("object", "decidedBy"),
        "oldDecider": field("oldObject", "decidedBy"),
        "sameReason": f"({field('object', 'reason')}) == ({field('oldObject', 'reason')})",
        "sameRest": (
            " && ".join(
                f"({field('object', name, empty)}) == ({field('oldObject', name, empty)})"
                for name, empty in (
                    ("conditions", "[]"),
                    ("granted", "''"),
                    ("expiresAt", "''"),
                    ("observedGeneration", "0"),
                )
            )
        ),
    }


def _deciding() -> list[Json]:
    """Return the validations of a decision."""
    operator = "variables.isOperator"
    decides, approves = "variables.decides", "variables.approves"
    may_be_automatic = f"{approves} && {_TENANTS}"
    return [
        says(
            f"!{decides} || variables.was == 'Pending'",
            "'status.decision is ' + variables.was + ' already, by ' + variables.oldDecider"
            " + ', and never changes: make a new request'",
            told=True,
        ),
        says(
            f"{decides} ? variables.decider == request.userInfo.username : variables.decider == variables.oldDecider",
            "status.decidedBy must be the user who decides; the API server writes it",
        ),
        says(
            f"{operator} || variables.sameRest",
            "users may only write status.decision and status.reason",
        ),
        says(f"{decides} || variables.sameReason", "status.reason must not change but with the decision"),
        says(
            f"!{decides} || !{operator} || ({may_be_automatic})",
            "the operator decides nothing but TenantRequests that TenancyDefaults approves",
        ),
        says(
            f"!{decides} || {operator} || variables.requester != request.userInfo.username",
            "you asked for it yourself: another user must decide; to withdraw it, delete it",
        ),
        says(
            f"!{decides} || {operator} || {_may_approve()}",
            "'you may not decide this: it requires the verb approve on ' + request.resource.resource + '.'"
            f" + request.resource.group + ({_NAMESPACED} ? ' in ' + request.namespace : '')",
            told=True,
        ),
        _puppets(),
        *_giving(),
    ]


def _puppets() -> Json:
    """Return the validation that keeps users from deciding as a ServiceAccount, which they may act as."""
    is_one = "request.userInfo.username.startsWith('system:serviceaccount:')"
    return says(
        f"!{_NAMESPACED} || !variables.decides || variables.isOperator || !{is_one} || {ADMINISTER}",
        "a ServiceAccount decides nothing here, because people of the tenant can act as one; only one that may"
        " administer tenants does",
    )


def _giving() -> list[Json]:
    """Return the validations that keep the operator from granting what the decider could not (a confused deputy)."""
    unless = "!variables.approves || variables.isOperator"
    for_tenants, for_roles = f"!({_TENANTS}) || {unless}", f"{_TENANTS} || {unless}"
    owners = "(has(object.spec.owners) ? object.spec.owners : [])"
    may_create = f"authorizer.group('{marks.GROUP}').resource('tenants').check('create').allowed()"
    kind = "object.spec.roleRef.kind"
    may_bind = (
        f"authorizer.group('{RBAC_GROUP}').resource({kind} == 'Role' ? 'roles' : 'clusterroles'){_PLACE}"
        ".name(object.spec.roleRef.name).check('bind').allowed()"
    )
    subjects = "(has(object.spec.subjects) ? object.spec.subjects : [])"
    return [
        says(f"{for_tenants} || {may_create}", "you may not create tenants, so you may not approve a request for one"),
        says(
            f"{for_tenants} || {_not_among(owners, programs=True)}",
            "you would own the tenant: another user must decide",
        ),
        says(
            f"{for_roles} || {may_bind}",
            f"'you may not give ' + {kind} + ' ' + object.spec.roleRef.name + ' to other users in '"
            f" + ({_NAMESPACED} ? request.namespace : 'the whole cluster') + ': that requires the verb bind on it'",
            told=True,
        ),
        says(
            f"{for_roles} || {_not_among(subjects)}",
            "you, or a group of yours, would get the role: another user must decide",
        ),
    ]


def _not_among(these: str, *, programs: bool = False) -> str:
    """Return CEL: whether the decider is none of these subjects, nor in a group among them.

    Args:
        these: CEL: a list of subjects.
        programs: Whether ServiceAccounts may be among them.
    """
    account = "'system:serviceaccount:' + s.?namespace.orValue('') + ':' + s.name"
    program = f" && !(s.kind == 'ServiceAccount' && {account} == request.userInfo.username)" if programs else ""
    return (
        f"{these}.all(s, !(s.kind == 'User' && s.name == request.userInfo.username)"
        f" && !(s.kind == 'Group' && has(request.userInfo.groups) && s.name in request.userInfo.groups){program})"
    )


def _automatic(operator: str) -> list[Json]:
    """Return the policy that lets the operator approve only by a rule of an administrator."""
    told = "(has(object.status.reason) ? object.status.reason : '')"
    listed = f"{has_parameter(REASONS)} && {told} in {parameter(REASONS)}.split('\\n')"
    validations = [
        says(
            f"{told} != '' && {listed}",
            "the operator may not approve: no rule of TenancyDefaults spec.autoApprove is the one in status.reason",
        )
    ]
    place: Json = {"name": APPROVALS, "namespace": marks.SYSTEM_NAMESPACE}
    # The installation creates the parameters without rules: if they are missing, Deny refuses every user's decisions,
    # because parameters are looked up before conditions. The operator owns their texts, which a new installation keeps.
    labels = {marks.MANAGED_BY: marks.MANAGER, OWN_MARK: APPROVALS_MARK}
    nothing = {**PARAM_KIND, "metadata": {**place, "labels": labels}}
    policy = validating(
        APPROVALS,
        [rule(marks.GROUP, [f"{TenantRequest.resource.plural}/status"], "UPDATE")],
        validations,
        params=PARAM_KIND,
        conditions={"by-the-operator": operator, "decides": f"{_decision('object')} != {_decision('oldObject')}"},
    )
    return [nothing, *bound(policy, paramRef={**place, "parameterNotFoundAction": "Deny"})]


# -- rights ---------------------------------------------------------------------------------------


def _rights(subject: Json) -> list[Json]:
    """Return the rights of the operator, of users of tenants, and of all users on requests."""
    tenants, roles, cluster = ([kind.resource.plural] for kind in (TenantRequest, RoleRequest, ClusterRoleRequest))
    operator = _role(
        OPERATOR_ROLE,
        allow([marks.GROUP], ["tenants"], ["create"]),
        allow([RBAC_GROUP], ["clusterrolebindings"], KEEP),
        allow([RBAC_GROUP], ["roles", "clusterroles"], ["get", "bind"]),
        # The roles by which requesters read their own requests. Without `escalate`, the API server refuses a role with
        # a right that the operator lacks itself.
        allow([RBAC_GROUP], ["clusterroles"], KEEP),
    )
    # Not get or list: requests are private, and the operator lets each requester read the own ones (controllers/
    # requesters). The policy limits which requests a user may delete.
    requester = _role(REQUESTER_ROLE, allow([marks.GROUP], tenants, ["create", "delete"]))
    staff = _role(CLUSTER_REQUESTER_ROLE, allow([marks.GROUP], cluster, ["create", *READ, "delete"]))
    people = _role("tenantry-aggregate-to-view", allow([marks.GROUP], roles, [*READ, "create", "delete"]))
    people["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = "true"
    owners = _role(
        "tenantry-owners-approve",
        allow([marks.GROUP], roles, ["approve"]),
        allow([marks.GROUP], [f"{plural}/status" for plural in roles], ["get", "update", "patch"]),
        {**allow([RBAC_GROUP], ["clusterroles"], ["bind"]), "resourceNames": list(OWNERS_MAY_GIVE)},
    )
    owners["metadata"]["labels"]["tenantry.dev/aggregate-to-owner"] = "true"
    all_users = {"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC_GROUP}
    roles_bound = [given(OPERATOR_ROLE, subject), given(REQUESTER_ROLE, all_users)]
    return [operator, requester, staff, people, owners, *roles_bound]


def _role(name: str, *rules: Json) -> Json:
    return cluster_role(name, rules=list(rules))


# -- probes ---------------------------------------------------------------------------------------


def probes() -> list[tuple[Resource, Json]]:
    """Return a request of each kind for a dry run.

    A policy is in force a moment after it is created. A mutating policy then refuses, for another moment, every object
    of a new kind, because the list of kinds of the admission plugin is older.
    """
    meta: Json = {"name": "tenantry-install"}
    users = [{"kind": "User", "name": "tenantry-install"}]
    role = {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": users}
    return [
        (TenantRequest.resource, {"metadata": meta, "spec": {"tenant": "tenantry-install", "owners": users}}),
        (RoleRequest.resource, {"metadata": {**meta, "namespace": "default"}, "spec": role}),
        (ClusterRoleRequest.resource, {"metadata": meta, "spec": role}),
    ]


def is_stamped(answer: Json) -> bool:
    """Return whether the API server has written the requester into a request."""
    return bool(answer["spec"].get("requester", {}).get("name"))


def is_early(refusal: str) -> bool:
    """Return whether a request was refused only because its mutating policy is not in force yet."""
    return "There can be a delay" in refusal or f"{STAMPS[0]} is missing" in refusal
