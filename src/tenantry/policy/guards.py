"""Guards: what is refused inside a control plane to its own administrators, as rules that the API server has as files.

    ClusterGuard ─► RuleTargets and RuleChecks ─► `manifests`: policies without parameters, in a file of the API server
                                                ─► `violations`: the same decision in Python

Administrators neither see nor delete such policies, and these also decide on admission policies themselves. A policy
exempts by groups only: no certificate, token or impersonation makes a user inside a member of these two
(go/hosted/internal/guarded). Pure.

Source: Kubernetes, KEP-5793 (ManifestBasedAdmissionControlConfig); "TLS bootstrapping"; "Bootstrap Tokens".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.clusterguards import ClusterGuard
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json as Manifest
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import CheckScope, RuleCheck, RuleTarget, Violation, listed, quoted
from tenantry.policy.compile import fixed
from tenantry.policy.forms import refuse
from tenantry.policy.mend import merged
from tenantry.policy.request import Json, Request, Review, part, parts

SOURCE = "the host of this cluster"
SUFFIX = ".static.k8s.io"
"""Of the names of policies in files, which no other policy may have."""

MASTERS, NODES = "system:masters", "system:nodes"
_BY_OTHERS = f"!('{MASTERS}' in request.userInfo.groups)"
_BY_USERS = f"!request.userInfo.groups.exists(g, g in {listed((MASTERS, NODES))})"


def _is_by_other(request: Request) -> bool:
    return MASTERS not in request.groups


def _is_by_user(request: Request) -> bool:
    return not {MASTERS, NODES} & {*request.groups}


def _is_by_any(_: Request) -> bool:
    return True


_NAME = "(oldObject != null ? oldObject.metadata.name : request.?name.orValue(''))"
"""The request that deletes one object of a collection has no name."""


def _name(request: Request) -> str:
    return str(part(request.old_object, "metadata").get("name", "")) or request.name


def _named(target: RuleTarget, plain: Json) -> CheckScope:
    """Return the scope of checks of a whole object, which a deletion does not have."""

    def path(request: Request) -> str:
        return f"{request.resource} '{_name(request)}'"

    return CheckScope(
        target=target.name,
        path=f"request.resource.resource + ' \\'' + {_NAME} + '\\''",
        values=lambda review: [(path(review.request), review.request.object)],
        held=lambda value: [("", value)],
        sample=lambda fragment: merged(plain, fragment),
    )


# -- connections to URLs --------------------------------------------------------------------------

_WEBHOOKS = RuleTarget(
    name="outgoing-urls",
    group="admissionregistration.k8s.io",
    resources=("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
    more=(("apiextensions.k8s.io", ("customresourcedefinitions",)),),
    conditions={},
    variables={},
    concerns=_is_by_any,
)
_URL = "clientConfig.?url.hasValue()"


def _has_url(value: Json, _: Review) -> bool:
    configured = [*parts(value, "webhooks"), part(value, "spec", "conversion", "webhook")]
    return any("url" in part(each, "clientConfig") for each in configured)


# -- rights ---------------------------------------------------------------------------------------

OWN_PREFIX = "tenantry:"
SYSTEM_ROLES = (
    "system:kubelet-api-admin",
    "system:node",
    "system:node-bootstrapper",
    "system:node-proxier",
)
"""The roles of Kubernetes that the bindings of the operator name."""

_RIGHTS = RuleTarget(
    name="operator-rights",
    group=RBAC_GROUP,
    resources=("clusterroles", "clusterrolebindings"),
    operations=("CREATE", "UPDATE", "DELETE"),
    conditions={"by-others": _BY_OTHERS},
    variables={},
    concerns=_is_by_other,
)


def _is_kept(_: Json, review: Review) -> bool:
    name = _name(review.request)
    return name.startswith(OWN_PREFIX) or name in SYSTEM_ROLES


# -- nodes ----------------------------------------------------------------------------------------

_NODES = RuleTarget(
    name="nodes",
    group="",
    resources=("nodes", "nodes/status"),
    operations=("CREATE", "UPDATE", "DELETE"),
    conditions={"by-users": _BY_USERS},
    variables={},
    concerns=_is_by_user,
)
_DOMAIN = "tenantry.dev/"
_OWN_LABELS = "{0}.metadata.?labels.orValue({{}}).transformMap(k, v, " + f"k.startsWith({quoted(_DOMAIN)})" + ", v)"
_KEPT = ("spec.?providerID", "status.?addresses", "status.?daemonEndpoints")
_CHANGED = " || ".join(
    [
        *(f"object.?{field} != oldObject.?{field}" for field in _KEPT),
        f"{_OWN_LABELS.format('object')} != {_OWN_LABELS.format('oldObject')}",
    ]
)


def _is_made(_: Json, review: Review) -> bool:
    return review.request.operation != "UPDATE"


def _is_changed(_: Json, review: Review) -> bool:
    request = review.request
    return request.operation == "UPDATE" and _identity(request.object) != _identity(request.old_object)


def _identity(value: Json) -> Sequence[object]:
    labels = part(value, "metadata", "labels").items()
    status = part(value, "status")
    return (
        part(value, "spec").get("providerID"),
        status.get("addresses"),
        status.get("daemonEndpoints"),
        {key: text for key, text in labels if key.startswith(_DOMAIN)},
    )


KUBELET_SIGNERS = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving")
_APPROVALS = RuleTarget(
    name="node-certificates",
    group="certificates.k8s.io",
    resources=("certificatesigningrequests/approval",),
    operations=("UPDATE",),
    conditions={"by-others": _BY_OTHERS},
    variables={},
    concerns=_is_by_other,
)


def _is_of_kubelet(value: Json, _: Review) -> bool:
    return part(value, "spec").get("signerName") in KUBELET_SIGNERS


# -- tokens ---------------------------------------------------------------------------------------

BOOTSTRAP_TOKEN = "bootstrap.kubernetes.io/token"  # noqa: S105 - a type of Secrets
_TOKENS = RuleTarget(
    name="bootstrap-tokens",
    group="",
    resources=("secrets",),
    conditions={"by-others": _BY_OTHERS},
    variables={},
    concerns=_is_by_other,
)


def _is_token(value: Json, _: Review) -> bool:
    return value.get("type") == BOOTSTRAP_TOKEN


# -- all ------------------------------------------------------------------------------------------


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """What one guard refuses.

    Args:
        targets: The kinds of objects that it decides on.
        checks: Its decisions.
    """

    targets: tuple[RuleTarget, ...]
    checks: tuple[RuleCheck, ...]


def _rule(guard: ClusterGuard) -> str:
    return f"guards.{guard.value}"


def _check(
    guard: ClusterGuard,
    target: RuleTarget,
    plain: Json,
    *,
    bad: str,
    is_bad: Callable[[Any, Review], bool],
    what: str,
    fix: str,
    example: Json,
) -> RuleCheck:
    return refuse(_rule(guard), _named(target, plain), bad=bad, is_bad=is_bad, what=what, fix=fix, example={**example})


GUARDS: dict[ClusterGuard, Guard] = {
    ClusterGuard.OUTGOING_URLS: Guard(
        targets=(_WEBHOOKS,),
        checks=(
            _check(
                ClusterGuard.OUTGOING_URLS,
                _WEBHOOKS,
                {"metadata": {"name": "w"}, "webhooks": []},
                bad=f"object.?webhooks.orValue([]).exists(w, w.{_URL})"
                " || object.?spec.?conversion.?webhook.?clientConfig.?url.hasValue()",
                is_bad=_has_url,
                what="has a url in clientConfig",
                fix="name a Service of this cluster in clientConfig.service",
                example={"webhooks": [{"name": "a.example.com", "clientConfig": {"url": "https://example.com/"}}]},
            ),
        ),
    ),
    ClusterGuard.OPERATOR_RIGHTS: Guard(
        targets=(_RIGHTS,),
        checks=(
            _check(
                ClusterGuard.OPERATOR_RIGHTS,
                _RIGHTS,
                {"metadata": {"name": "tenantry:owners"}},
                bad=f"{_NAME}.startsWith('{OWN_PREFIX}') || {_NAME} in {listed(SYSTEM_ROLES)}",
                is_bad=_is_kept,
                what="belongs to the operator",
                fix="create a role or binding of another name",
                example={},
            ),
        ),
    ),
    ClusterGuard.NODE_IDENTITY: Guard(
        targets=(_NODES, _APPROVALS),
        checks=(
            _check(
                ClusterGuard.NODE_IDENTITY,
                _NODES,
                {"metadata": {"name": "n"}},
                bad="request.operation != 'UPDATE'",
                is_bad=_is_made,
                what="must not be created or deleted by users",
                fix="change the number of nodes of the DedicatedCluster",
                example={},
            ),
            _check(
                ClusterGuard.NODE_IDENTITY,
                _NODES,
                {"metadata": {"name": "n"}},
                bad=f"request.operation == 'UPDATE' && ({_CHANGED})",
                is_bad=_is_changed,
                what=f"must keep its addresses, ports, provider id and labels of {_DOMAIN.rstrip('/')}",
                fix="leave them as they are",
                example={"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}},
            ),
            _check(
                ClusterGuard.NODE_IDENTITY,
                _APPROVALS,
                {"metadata": {"name": "csr"}, "spec": {"signerName": "example.com/signer"}},
                bad=f"object.spec.signerName in {listed(KUBELET_SIGNERS)}",
                is_bad=_is_of_kubelet,
                what="is for the certificate of a node",
                fix="leave the decision to the operator",
                example={"spec": {"signerName": KUBELET_SIGNERS[0]}},
            ),
        ),
    ),
    ClusterGuard.BOOTSTRAP_TOKENS: Guard(
        targets=(_TOKENS,),
        checks=(
            _check(
                ClusterGuard.BOOTSTRAP_TOKENS,
                _TOKENS,
                {"metadata": {"name": "s"}, "type": "Opaque"},
                bad=f"object.?type.orValue('') == '{BOOTSTRAP_TOKEN}'",
                is_bad=_is_token,
                what="is a token by which a machine joins",
                fix="change the number of nodes of the DedicatedCluster, which makes tokens for its machines",
                example={"type": BOOTSTRAP_TOKEN},
            ),
        ),
    ),
}


def violations(request: Request, guards: Iterable[ClusterGuard]) -> list[Violation]:
    """Return everything in a request that guards refuse: the API server's answer.

    Args:
        request: The request.
        guards: The guards that are in force.
    """
    found: list[Violation] = []
    for guard in guards:
        review = Review(request, Section(refused={_rule(guard): SOURCE}))
        matched = {target.name for target in GUARDS[guard].targets if target.matches(request)}
        found += [
            each for check in GUARDS[guard].checks if check.scope.target in matched for each in check.violations(review)
        ]
    return found


def manifests(guards: Iterable[ClusterGuard]) -> list[Manifest]:
    """Return the policies of guards and their bindings, in one order whatever that of the guards is."""
    wanted = frozenset(guards)
    return [each for guard in ClusterGuard if guard in wanted for each in _policies(guard)]


def _policies(guard: ClusterGuard) -> Iterable[Manifest]:
    for target in GUARDS[guard].targets:
        checks = [each for each in GUARDS[guard].checks if each.scope.target == target.name]
        made, name = fixed(target, checks, {_rule(guard): SOURCE}), f"tenantry-{target.name}{SUFFIX}"
        rules = [
            {
                "apiGroups": [group],
                "apiVersions": ["*"],
                "operations": [*target.operations],
                "resources": [*plurals],
            }
            for group, plurals in target.groups
        ]
        spec: Manifest = {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Exact", "resourceRules": rules},
            "matchConditions": [{"name": key, "expression": cel} for key, cel in made.conditions.items()],
            "variables": [{"name": key, "expression": cel} for key, cel in made.variables.items()],
            "validations": [{**made.validation, "message": f"refused by guard {guard.value} of {SOURCE}"}],
        }
        yield _object("ValidatingAdmissionPolicy", name, spec)
        yield _object("ValidatingAdmissionPolicyBinding", name, {"policyName": name, "validationActions": ["Deny"]})


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": spec,
    }
