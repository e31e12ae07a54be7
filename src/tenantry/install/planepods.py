"""What control planes in Pods need on an existing cluster: `tenantry install --virtual-control-planes`. Pure.

    Namespace tenantry-vcp ─► Pod Security Standard "restricted"
    NetworkPolicies        ─► no egress; ingress from the proxy to the API server, and from the operator to the sidecar
    Deployment             ─► the proxy before them (planeproxy.py)
    Role                   ─► the operator's rights in this namespace only
    StatefulSet            ─► an etcd that they can share (planestore.py), with `--hosted-etcd`

In the tenants' namespaces, control planes in Pods need no further rights: their mirrors write with tokens of
ServiceAccounts in `tenantry-mirrors`, to which RoleBindings in these namespaces give the ClusterRole of mirrors.

Source: Kubernetes, "Pod Security Admission", "Network Policies", "Using RBAC Authorization".
"""

from __future__ import annotations

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.controllers.virtualcontrolplane.shards import lease_name
from tenantry.hosting import sidecar
from tenantry.install import planeproxy, planestore
from tenantry.install.rights import LABELS, allow

NAME = "tenantry-control-planes"
SCRATCH = "/snapshots"
"""The folder of the operator for snapshots on their way: they are too large for a volume in memory."""

SCRATCH_SIZE = "2Gi"

_KEEP = ("get", "create", "patch", "delete")


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator runs control planes in Pods.

    Args:
        image: Their image; see `tenantry image build --with-hosted`.
        others: Images of other versions, as VERSION=IMAGE.
        storage_class: The StorageClass of their volumes; "" for the default one.
        service_type: The type of the Services by which users reach them.
        shards: The number of parts in which the replicas of the operator divide them.
        has_etcd: Whether there is an etcd that they can share.
    """

    image: str
    others: tuple[str, ...] = ()
    storage_class: str = ""
    service_type: str = "ClusterIP"
    shards: int = 1
    has_etcd: bool = False


def arguments(options: PodOptions) -> list[str]:
    """Return the arguments of the operator."""
    images = [word for value in (options.image, *options.others) for word in ("--hosted-image", value)]
    found = [*images, "--hosted-service", options.service_type, "--hosted-scratch", SCRATCH]
    if options.shards > 1:
        found += ["--hosted-shards", str(options.shards)]
    if options.has_etcd:
        found.append("--hosted-etcd")
    return [*found, "--hosted-storage-class", options.storage_class] if options.storage_class else found


def everything(subject: Json, options: PodOptions) -> list[Json]:
    """Return the namespace, its NetworkPolicies, the operator's rights there, the proxy, and the etcd if there is one.

    Args:
        subject: The operator, as RBAC names it.
        options: How the operator runs control planes in Pods.
    """
    is_in_cluster = subject["kind"] == "ServiceAccount"
    proxy = planeproxy.everything(options.image, marks.OPERATOR_PEER, is_in_cluster=is_in_cluster)
    etcd = planestore.everything(options.image, options.storage_class, marks.OPERATOR_PEER, is_in_cluster=is_in_cluster)
    security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    namespace: Json = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": PROCESS_NAMESPACE, "labels": {**LABELS, **security}},
    }
    rights = _rights(subject, options.shards)
    return [namespace, *rights, *_network(subject), *proxy, *(etcd if options.has_etcd else ())]


def _meta(name: str, namespace: str = PROCESS_NAMESPACE) -> Json:
    return {"name": name, "namespace": namespace, "labels": dict(LABELS)}


def _rights(subject: Json, shards: int) -> list[Json]:
    rules = [
        # By name: no list of Secrets.
        allow([""], ["secrets", "services", "persistentvolumeclaims"], _KEEP),
        allow(["apps"], ["statefulsets"], _KEEP),
        # The ports of control planes at the proxy.
        allow([""], ["configmaps"], ["get", "create", "patch"]),
        # A SQL server elsewhere is opened to the Pod of one control plane.
        allow(["networking.k8s.io"], ["networkpolicies"], _KEEP),
        # Of snapshots, while no control plane has the volume.
        allow(["batch"], ["jobs"], ["create", "delete"]),
        allow([""], ["pods"], ["list", "watch"]),
    ]
    found = _given(subject, PROCESS_NAMESPACE, rules)
    if shards > 1:
        # It may create any Lease there already.
        leases = allow(["coordination.k8s.io"], ["leases"], ["get", "update", "patch"])
        names = [lease_name(index) for index in range(shards)]
        found += _given(subject, marks.SYSTEM_NAMESPACE, [{**leases, "resourceNames": names}])
    return found


def _given(subject: Json, namespace: str, rules: list[Json]) -> list[Json]:
    version = f"{RBAC_GROUP}/v1"
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": NAME}
    role = {"apiVersion": version, "kind": "Role", "metadata": _meta(NAME, namespace), "rules": rules}
    binding = {"apiVersion": version, "kind": "RoleBinding", "metadata": _meta(NAME, namespace), "roleRef": reference}
    return [role, {**binding, "subjects": [subject]}]


def _network(subject: Json) -> list[Json]:
    own = (sidecar.API_PORT, sidecar.TUNNEL_PORT, sidecar.KEEPER_PORT)
    operator: Json = {"ports": [{"protocol": "TCP", "port": each} for each in own]}
    # An operator outside of the cluster has no address that is known here; certificates admit it alone.
    if subject["kind"] == "ServiceAccount":
        operator["from"] = [marks.OPERATOR_PEER]
    # Users and pods pass the proxy, which refuses them while their tenant is suspended.
    clients: Json = {"from": [planeproxy.peer()], "ports": [{"protocol": "TCP", "port": sidecar.API_PORT}]}
    spec: Json = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [clients, operator],
        # The process of a tenant opens no connection, and its sidecar only answers.
        "egress": [],
    }
    version = "networking.k8s.io/v1"
    return [{"apiVersion": version, "kind": "NetworkPolicy", "metadata": _meta(NAME), "spec": spec}]
