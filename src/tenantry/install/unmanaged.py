"""A peer without an operator, for tests of many clusters: its kinds, and what the operator would make of a guest. Pure.

    PeerCluster "a" ─► what serves it (controllers/peering/guests/guest.py)
                    ─► namespace "peer-a" with the cluster id, and the rights of the guest in it
    Subnamespace    ─► its namespace, with the same rights: a program that plays the operator makes both

No policy is in force there: such a peer is for programs of one's own.
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.crd import custom_resource_definition
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.peercluster import PEERS_NAMESPACE, PeerCluster, tenant_name
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.install.rights import LABELS, allow, cluster_role

KINDS: tuple[type[KubernetesObject], ...] = (PeerCluster, Tenant, Subnamespace)
"""Each kind takes memory of every API server: only those that the home reads, or that serve it."""

GUEST = "tenantry:guest"

_EVERY = ("get", "list", "watch", "create", "update", "patch", "delete")


def foundation() -> list[Json]:
    """Return what every such peer needs."""
    rules = [
        allow([""], ["namespaces", "resourcequotas"], ["get", "list", "watch"]),
        allow([""], ["pods", "configmaps", "secrets", "services"], _EVERY),
        allow([""], ["pods/log", "pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
        allow(["discovery.k8s.io"], ["endpointslices"], _EVERY),
        allow(["", "events.k8s.io"], ["events"], ["get", "list", "watch"]),
        allow([marks.GROUP], [Subnamespace.resource.plural], _EVERY),
    ]
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PEERS_NAMESPACE, "labels": LABELS}}
    return [*(custom_resource_definition(kind) for kind in KINDS), namespace, cluster_role(GUEST, rules=rules)]


def namespace_of(guest: str, name: str, cluster_uid: str) -> list[Json]:
    """Return a namespace of a guest, and its rights there.

    Args:
        guest: The PeerCluster at the peer.
        name: The namespace.
        cluster_uid: The uid of the namespace kube-system of the peer.
    """
    labels = {**LABELS, marks.TENANT: tenant_name(guest), marks.CLUSTER_UID: cluster_uid}
    binding: Json = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "guest", "namespace": name, "labels": LABELS},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": GUEST},
        "subjects": [{"kind": "ServiceAccount", "name": guest, "namespace": PEERS_NAMESPACE}],
    }
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, binding]
