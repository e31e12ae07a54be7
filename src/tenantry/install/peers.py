"""What other clusters need here: the namespace of their identities, and the operator's rights for both halves. Pure.

    peer   ServiceAccounts "a", "a-renew" in `tenantry-peers` ─► owner of Tenant "peer-a"
    home   Secrets of `tenantry-peers` ─► tokens of those accounts, and the certificates of the Node that stands for it

Accounts, Roles and Secrets are written with the rights of inheritance.

Sources: Kubernetes, "Certificates and Certificate Signing Requests", "Managing Service Accounts" (TokenRequest).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.marks import GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import (
    INVITER_SUFFIX,
    LEASE_SECONDS,
    NODE_PREFIX,
    PEER,
    PEERS_NAMESPACE,
    RENEWER_SUFFIX,
    WORK_SECONDS,
    PeerCluster,
    node_name,
)
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SUFFIX
from tenantry.api.signing import NODE, NODES_GROUP, grant_name
from tenantry.api.subnamespace import Subnamespace
from tenantry.install.policy import NODES, bound, rule, says, validating
from tenantry.install.rights import LABELS, allow, cluster_role, given, given_in

PEERING = "tenantry-peering"
"""The roles of the operator for peers."""

BY_GUEST = f"request.userInfo.username.startsWith('system:serviceaccount:{PEERS_NAMESPACE}:')"
"""CEL: the request comes from another cluster; its rights end with the namespaces of its own Tenant."""


TOKENS = "tenantry-peer-tokens"
PEER_NODES = "tenantry-peer-nodes"

NODE_LIFE_SECONDS = 86_400
"""The longest life of a certificate of a Node that stands for a peer: Kubernetes revokes none."""

_WRITTEN = (
    *("/pods", "/pods/exec", "/pods/attach", "/pods/portforward", "/pods/eviction"),
    *("/pods/ephemeralcontainers", "/pods/resize", "/configmaps", "/secrets", "/services"),
    f"{Subnamespace.resource.group}/{Subnamespace.resource.plural}",
)
"""What another cluster writes here, as group/resource/subresource."""

_SIGNING = Resource("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest")


_WHAT = (
    "(request.resource.group + '/' + request.resource.resource"
    " + (has(request.subResource) && request.subResource != '' ? '/' + request.subResource : ''))"
)
_LASTING = "object.?type.orValue('') == 'kubernetes.io/service-account-token'"

_OWN_LEASE = f"{_WHAT} == 'coordination.k8s.io/leases' && request.namespace == '{PEERS_NAMESPACE}'"
"""CEL: RBAC gives a guest one Lease there."""

EXCEEDED = (
    f"({BY_GUEST} && request.operation != 'DELETE' && !({_OWN_LEASE})"
    f" && (!({_WHAT} in [{', '.join(map(repr, _WRITTEN))}]) || {_WHAT} == '/secrets' && {_LASTING}))"
)
"""CEL: another cluster writes what it may not, although it is an owner.

A working token could make itself permanent by a RoleBinding, or by a token of another ServiceAccount, and a home could
reserve nodes of the peer and start control planes there.
"""

EXCEEDS = (
    f"({_WHAT} == '/secrets'"
    " ? 'type must not be kubernetes.io/service-account-token: the token would outlive the peering'"
    f" : 'another cluster does not write ' + {_WHAT} + ' here: it writes pods, ConfigMaps, Secrets, Services"
    " and Subnamespaces')"
)
"""CEL: the refusal."""


def everything(subject: Json) -> list[Json]:
    """Return the namespace, and the operator's rights in it and on requests for certificates.

    Args:
        subject: The operator, as RBAC names it.
    """
    # Nowhere else: the right to request tokens of any ServiceAccount would be a right to be any workload.
    tokens = allow([""], ["serviceaccounts/token"], ["create"])
    # By these, homes show that they live. The operator grants no right that it does not have.
    leases = allow(["coordination.k8s.io"], ["leases"], ["get", "create", "patch", "update", "delete"])
    # A Node that stands for a peer is a client of its own, which the Node authorizer confines.
    # Whether a peer may open its tunnel; the tokens of tunnels are for no API server.
    reviews = allow(["authentication.k8s.io"], ["tokenreviews"], ["create"])
    requests = allow(["certificates.k8s.io"], ["certificatesigningrequests"], ["create"])
    tenants = allow([GROUP], ["tenants"], ["create", "patch", "delete"])
    # Each namespace of a peer is reported for itself.
    maps = allow([GROUP], ["namespacemaps/status"], ["patch"])
    role = cluster_role(PEERING, rules=[requests, reviews, tenants, maps])
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PEERS_NAMESPACE, "labels": labels}}
    policies = [*bound(_tokens()), *bound(_nodes())]
    return [
        namespace,
        *policies,
        *given_in(PEERS_NAMESPACE, PEERING, subject, tokens, leases),
        role,
        given(PEERING, subject),
    ]


def node_grant(peer: PeerCluster, operator: Sequence[Json]) -> list[Json]:
    """Return the right to act as the Node of one peer, which ends with its PeerCluster.

    Only an administrator can grant it: the operator cannot take the right to be another user. The operator withdraws it
    when the peer does not need it any more.

    Args:
        peer: The PeerCluster, with its uid.
        operator: The operator, as subjects of RBAC.
    """
    node, meta = node_name(peer.metadata.name), peer.metadata
    users = {**allow([""], ["users"], ["impersonate"]), "resourceNames": [f"{NODE}{node}"]}
    groups = {**allow([""], ["groups"], ["impersonate"]), "resourceNames": [NODES_GROUP]}
    role = cluster_role(grant_name(meta.name), rules=[users, groups])
    binding: Json = {**given(role["metadata"]["name"], {}), "subjects": list(operator)}
    resource = PeerCluster.resource
    owner = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta.name, "uid": meta.uid}
    for each in (role, binding):
        metadata: Json = each["metadata"]
        metadata["ownerReferences"] = [owner]
    return [role, binding]


def _tokens() -> Json:
    """Return the policy on how long the tokens are that a home requests: nothing but their end revokes them."""
    invites = f"request.name.endsWith('{INVITER_SUFFIX}')"
    opens = f"request.name.endsWith('{TUNNEL_SUFFIX}')"
    most = f"(request.name.endsWith('{RENEWER_SUFFIX}') || {opens} ? {LEASE_SECONDS} : {WORK_SECONDS})"
    return validating(
        TOKENS,
        [rule("", ["serviceaccounts/token"], "CREATE")],
        [
            says(
                f"object.spec.expirationSeconds <= {most}",
                f"spec.expirationSeconds must be at most {WORK_SECONDS}, or {LEASE_SECONDS} for the account that"
                " renews, or opens a tunnel",
            ),
            says(
                f"!{opens} || object.spec.?audiences.orValue([]) == ['{TUNNEL_AUDIENCE}']",
                f"spec.audiences must be only {TUNNEL_AUDIENCE}: the token of a tunnel is for no API server",
            ),
            says(
                f"!{invites} || object.spec.?boundObjectRef.kind.orValue('') == 'Secret'"
                " && object.spec.boundObjectRef.name == request.name",
                "spec.boundObjectRef must be the Secret with the name of the account: the token of an invitation ends"
                " with its first use",
            ),
        ],
        conditions={"by-another-cluster-or-of-a-file": f"{BY_GUEST} || {invites} || {opens}"},
        where={"matchLabels": {"kubernetes.io/metadata.name": PEERS_NAMESPACE}},
    )


def _nodes() -> Json:
    """Return the policy on the identity of Nodes that stand for peers.

    NodeRestriction admits mirror pods in any namespace, labels of other domains and any lifetime. A certificate
    outlives the peering, and could make a Node without the taint, on which pods of all tenants are placed.
    """
    kind = "request.resource.resource"
    ours = f"(k.startsWith('{GROUP}/') || k.contains('.{GROUP}/'))"

    def marks_of(what: str) -> str:
        labels = f"{what}.?metadata.labels.orValue({{}})"
        return f"{labels}.filter(k, {ours}).map(k, k + '=' + {labels}[k])"

    unchanged = (
        f"{marks_of('object')}.all(m, m in {marks_of('oldObject')})"
        f" && {marks_of('oldObject')}.all(m, m in {marks_of('object')})"
    )
    tainted = f"object.?spec.taints.orValue([]).exists(t, t.key == '{PEER}' && t.effect == 'NoSchedule')"
    named = f"object.metadata.name == '{NODE_PREFIX}' + object.?metadata.labels['{PEER}'].orValue('')"
    validations = [
        says(f"{kind} != 'pods'", "a Node that stands for a peer creates no pods"),
        says(
            f"{kind} != 'nodes' || request.operation != 'CREATE' || {named} && {tainted}",
            f"a Node that stands for a peer must have the label and the taint {PEER}",
        ),
        says(
            f"{kind} != 'nodes' || request.operation != 'UPDATE' || {unchanged}",
            f"labels of {GROUP} must not be changed by the Node itself",
        ),
        says(
            f"{kind} != '{_SIGNING.plural}' || object.?spec.expirationSeconds.orValue(0) > 0"
            f" && object.spec.expirationSeconds <= {NODE_LIFE_SECONDS}",
            f"spec.expirationSeconds must be set, and at most {NODE_LIFE_SECONDS}",
        ),
    ]
    rules = [
        rule("", ["pods"], "CREATE"),
        NODES,
        rule(_SIGNING.group, [_SIGNING.plural], "CREATE"),
    ]
    by_node = f"request.userInfo.username.startsWith('system:node:{NODE_PREFIX}')"
    return validating(PEER_NODES, rules, validations, conditions={"by-the-node-of-a-peer": by_node})
