"""The policies that keep a tenant's own NetworkPolicies from opening it to others. Pure.

NetworkPolicies add up: one that opens is enough, so each is checked by itself. They cannot be intersected with those of
Tenantry either. So a rule without peers, as many charts have it, gets the zone as its only peer when it is written:

    egress: [{}]                   ─►  egress: [{to: [{namespaceSelector: {matchLabels: {tenantry.dev/zone: …}}}]}]
    ingress: [{ports: [80]}]       ─►  ingress: [{ports: [80], from: [the same]}]

The policy that refuses does not rely on it. Source: Kubernetes, "Network Policies", "Mutating Admission Policy".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.install.policy import (
    Named,
    bound,
    items,
    mutating,
    not_administrator,
    refusing,
    rule,
    says,
    validating,
)

POLICIES = "tenantry-networkpolicies"
PEERS = "tenantry-networkpolicy-peers"
PLUGINS = "tenantry-network-plugins"

PLUGIN_GROUPS = (
    "cilium.io",
    "crd.antrea.io",
    "crd.projectcalico.org",
    "k8s.ovn.org",
    "policy.networking.k8s.io",
    "projectcalico.org",
)
"""API groups of network plugins with kinds that act like NetworkPolicy."""

_CONFINED = {
    "matchExpressions": [
        {"key": marks.TENANT_UID, "operator": "Exists"},
        {"key": marks.NETWORK, "operator": "In", "values": ["Isolated", "Baseline"]},
    ]
}
_LABELS = "namespaceObject.metadata.labels"
_ANNOTATIONS = "namespaceObject.metadata.annotations"
_SECTIONS = (("ingress", "from"), ("egress", "to"))
"""The sections of a NetworkPolicy, and the field of their rules that holds the peers."""
_NAME = "kubernetes.io/metadata.name"
"""The label of a namespace that the API server sets to its name."""

# An older NetworkPolicy may still get labels, and be deleted in the foreground.
_SAYS_SOMETHING_NEW = "request.operation == 'CREATE' || object.spec != oldObject.spec"


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings (H06).

    Args:
        subject: The operator, as RBAC names it.
    """
    other = not_administrator(subject)
    return [*_peers(other), *_policies(other), *_plugins(other)]


def _peers(other: Named) -> list[Json]:
    """Return the policy that gives rules without peers the zone of their namespace.

    It changes nothing that it has changed before, and a section is one value to server-side apply: who applies the
    same object again, applies the same change again.
    """
    lacks = "(!has(r.{0}) || r.{0} == null || size(r.{0}) == 0)".format
    zone = f"{_LABELS}['{marks.ZONE}']"
    peer = f"[{{'namespaceSelector': {{'matchLabels': {{'{marks.ZONE}': {zone}}}}}}}]"
    patches = [
        f"'{marks.ZONE}' in {_LABELS} ? {items(f'object.spec.{field}')}.transformList(i, r, {lacks(peers)},"
        f" JSONPatch{{op: 'add', path: '/spec/{field}/' + string(i) + '/{peers}', value: {peer}}}) : []"
        for field, peers in _SECTIONS
    ]
    any_lacks = " || ".join(f"{items(f'object.spec.{field}')}.exists(r, {lacks(peers)})" for field, peers in _SECTIONS)
    policy = mutating(
        PEERS,
        [rule("networking.k8s.io", ["networkpolicies"])],
        patches,
        conditions={"has-open-rules": any_lacks, "says-something-new": _SAYS_SOMETHING_NEW, **other},
        where=_CONFINED,
        reinvoked="IfNeeded",
    )
    return bound(policy)


def _policies(other: Named) -> list[Json]:
    """Return the policy by which every rule of a tenant's NetworkPolicies names peers, and only of its own tree.

    A parent does not reach a Subtenant, because both sides have to allow it, and the ingress is in the Subtenant.
    """
    variables = {
        "cidrs": (
            f"has({_ANNOTATIONS}) && '{marks.CIDRS}' in {_ANNOTATIONS}"
            f" ? {_ANNOTATIONS}['{marks.CIDRS}'].split(',') : []"
        )
    }
    allowed = (
        "isCIDR(p.ipBlock.cidr) && variables.cidrs.exists(c, isCIDR(c) && cidr(c).containsCIDR(cidr(p.ipBlock.cidr)))"
    )
    given = "p.namespaceSelector.matchLabels"
    itself = f"'{_NAME}' in {given} && {given}['{_NAME}'] == request.namespace"
    pinned = " || ".join((*(_has_own(key) for key in (marks.TENANT_UID, marks.ZONE)), itself))
    own = f"!has(p.namespaceSelector) || has(p.namespaceSelector.matchLabels) && ({pinned})"
    validations = [
        says(
            f"!has(object.spec.{field}) || object.spec.{field}.all(r, has(r.{peers}) && size(r.{peers}) > 0"
            f" && r.{peers}.all(p, has(p.ipBlock) ? {allowed} : ({own})))",
            _message(field, peers),
            told=True,
        )
        for field, peers in _SECTIONS
    ]
    # Peers by podSelector alone are always allowed; conditions do not see the labels of the namespace.
    names_others = " || ".join(
        f"(has(object.spec.{field}) && object.spec.{field}.exists(r, !has(r.{peers}) || size(r.{peers}) == 0"
        f" || r.{peers}.exists(p, has(p.ipBlock) || has(p.namespaceSelector))))"
        for field, peers in _SECTIONS
    )
    policy = validating(
        POLICIES,
        [rule("networking.k8s.io", ["networkpolicies"])],
        validations,
        variables=variables,
        conditions={"names-others": names_others, "says-something-new": _SAYS_SOMETHING_NEW, **other},
        where=_CONFINED,
    )
    return bound(policy)


def _has_own(key: str) -> str:
    """Return CEL: whether a namespaceSelector selects the namespace's own value of a label."""
    given = "p.namespaceSelector.matchLabels"
    return f"'{key}' in {given} && '{key}' in {_LABELS} && {given}['{key}'] == {_LABELS}['{key}']"


def _message(field: str, peers: str) -> str:
    return (
        f"'spec.{field}: each rule must have {peers}, and each of them must select {marks.TENANT_UID}: '"
        f" + {_LABELS}['{marks.TENANT_UID}'] + ' by namespaceSelector.matchLabels, or this namespace by {_NAME}: '"
        " + request.namespace + ', or have a podSelector alone, which means this namespace, too'"
        " + (size(variables.cidrs) > 0 ? ', or an ipBlock within ' + variables.cidrs.join(', ') : '')"
        " + '; to open it to others is for an administrator'"
    )


def _plugins(other: Named) -> list[Json]:
    """Return the policy that refuses the kinds of network plugins, which open as NetworkPolicies do."""
    about = {
        "apiGroups": list(PLUGIN_GROUPS),
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["*"],
        "scope": "Namespaced",
    }
    told = "request.kind.kind + ' of ' + request.kind.group + ' is for an administrator: write a NetworkPolicy'"
    return refusing(PLUGINS, [about], told, told=True, conditions=other, where=_CONFINED)
