"""The objects that the operator keeps inside a control plane with nodes of its own: pure.

    version, network, runtime of the nodes ─► rights of the nodes          always
                                          ─► CoreDNS, NetworkPolicy, …    by the mode of each add-on

Source: Kubernetes, "TLS bootstrapping"; kubernetes/kubernetes, cluster/addons/dns/coredns.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.clusteraddons import AddOnName
from tenantry.api.contribution import BOOTSTRAPPERS
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.signing import NODES_GROUP
from tenantry.hosting import tunnelapi
from tenantry.hosting.certificates import KUBELET_CLIENT_USER
from tenantry.hosting.noderuntime import NodeRuntime

RIGHTS = "Rights"
"""The mark of what nodes need to join: it is kept in every cluster, and is no add-on."""

SYSTEM = "kube-system"

CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)

KINDS = (
    *(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, RUNTIME_CLASSES, STORAGE_CLASSES),
    *(ACCOUNTS, CONFIG_MAPS, SERVICES, DEPLOYMENTS),
    *(ENDPOINT_SLICES, API_SERVICES),
)

RECORD = "tenantry-add-ons"
"""The ConfigMap that names the add-ons that were created once."""

DNS_ACCOUNT = "coredns"
_TENTH = 10
_READ = ("list", "watch")
_DNS_LABELS: Json = {"k8s-app": "kube-dns"}


class ContentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the objects depend on.

    Args:
        service_range: The addresses of Services; for two families, the primary one, a comma and the other one.
        domain: The domain of the cluster.
        runtime: What its real nodes can run; None if it has no real nodes.
        has_tunnels: It has machines from outside, which open tunnels.
    """

    service_range: str
    domain: str = "cluster.local"
    runtime: NodeRuntime | None = None
    has_tunnels: bool = False

    @property
    def dns_address(self) -> str:
        """Return the address of the Service of CoreDNS: the tenth of the range, which kubelets know."""
        return str(ipaddress.ip_network(self.service_range.partition(",")[0])[_TENTH])


class ContentObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is to be inside.

    Args:
        add_on: The add-on that it belongs to, or `RIGHTS`.
        resource: Its kind.
        body: The object with the fields that the operator owns, and its name.
    """

    add_on: str
    resource: Resource
    body: Json

    @property
    def key(self) -> str:
        """Return how messages name it: its kind, and its namespace and name."""
        return f"{self.resource.kind} {self.object_key}"

    @property
    def object_key(self) -> str:
        """Return its key in a cache."""
        meta: Json = self.body["metadata"]
        return object_key(meta.get("namespace", ""), meta["name"])


def objects(facts: ContentFacts) -> tuple[ContentObject, ...]:
    """Return all objects, whatever the modes of the add-ons are."""
    runtime = facts.runtime
    found = [*_rights(), *_network_policy(), *(_tunnels() if facts.has_tunnels else ())]
    if runtime is not None:
        found += _runtime_classes(runtime.handlers)
        found += _storage(runtime) if runtime.storage_class else ()
        found += _dns(facts, runtime.dns_image) if runtime.dns_image else ()
    return tuple(found)


def _object(add_on: str, resource: Resource, name: str, fields: Json) -> ContentObject:
    """Return an object with the marks of the operator; `fields` may have annotations."""
    meta: Json = {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER, marks.ADD_ON: add_on}}
    if resource.namespaced:
        meta["namespace"] = SYSTEM
    rest = {key: value for key, value in fields.items() if key != "annotations"}
    if "annotations" in fields:
        meta["annotations"] = fields["annotations"]
    return ContentObject(add_on=add_on, resource=resource, body={"metadata": meta, **rest})


def _binding(add_on: str, name: str, role: str, *subjects: Json) -> ContentObject:
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}
    return _object(add_on, CLUSTER_ROLE_BINDINGS, name, {"roleRef": reference, "subjects": [*subjects]})


def _group(name: str) -> Json:
    return {"apiGroup": RBAC_GROUP, "kind": "Group", "name": name}


def _user(name: str) -> Json:
    return {"apiGroup": RBAC_GROUP, "kind": "User", "name": name}


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Json:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


# -- always ---------------------------------------------------------------------------------------


def _rights() -> Iterable[ContentObject]:
    """Return the rights of a machine with a token, of the API server at kubelets, and of kube-proxy."""
    yield _binding(RIGHTS, "tenantry:node-bootstrappers", "system:node-bootstrapper", _group(BOOTSTRAPPERS))
    yield _binding(RIGHTS, "tenantry:kubelet-client", "system:kubelet-api-admin", _user(KUBELET_CLIENT_USER))
    # The programs of a node that has joined have its identity.
    yield _binding(RIGHTS, "tenantry:node-proxiers", "system:node-proxier", _group(NODES_GROUP))


def _tunnels() -> Iterable[ContentObject]:
    """Return the aggregated API at which machines from outside open their tunnels: the gate plays it.

    The API server does not verify the gate, which it reaches at a socket of its own and not through a network. The gate
    verifies the API server.
    """
    name = "tenantry-tunnel"
    rules = [_rule(tunnelapi.GROUP, ("nodes/proxy",), ("get",))]
    port: Json = {"name": "", "port": tunnelapi.PORT, "protocol": "TCP"}
    yield _object(RIGHTS, CLUSTER_ROLES, "tenantry:node-tunnels", {"rules": rules})
    yield _binding(RIGHTS, "tenantry:node-tunnels", "tenantry:node-tunnels", _group(NODES_GROUP))
    yield _object(RIGHTS, SERVICES, name, {"spec": {"ports": [{"port": tunnelapi.PORT, "protocol": "TCP"}]}})
    slice_ = _object(
        RIGHTS,
        ENDPOINT_SLICES,
        name,
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": [tunnelapi.ADDRESS], "conditions": {"ready": True}}],
            "ports": [port],
        },
    )
    slice_.body["metadata"]["labels"]["kubernetes.io/service-name"] = name
    yield slice_
    service: Json = {"namespace": SYSTEM, "name": name, "port": tunnelapi.PORT}
    spec: Json = {
        "group": tunnelapi.GROUP,
        "version": tunnelapi.VERSION,
        "service": service,
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    yield _object(RIGHTS, API_SERVICES, f"{tunnelapi.VERSION}.{tunnelapi.GROUP}", {"spec": spec})


# -- add-ons --------------------------------------------------------------------------------------


def _network_policy() -> Iterable[ContentObject]:
    """Return what the agent of each node reads, which puts NetworkPolicies in force there."""
    name = "tenantry:netpol-agent"
    rules = [
        _rule("", ("pods", "namespaces", "nodes"), _READ),
        _rule("networking.k8s.io", ("networkpolicies",), _READ),
    ]
    yield _object(AddOnName.NETWORK_POLICY, CLUSTER_ROLES, name, {"rules": rules})
    yield _binding(AddOnName.NETWORK_POLICY, name, name, _group(NODES_GROUP))


def _runtime_classes(handlers: Mapping[str, str]) -> Iterable[ContentObject]:
    for name, handler in sorted(handlers.items()):
        yield _object(AddOnName.RUNTIME_CLASSES, RUNTIME_CLASSES, name, {"handler": handler})


def _storage(runtime: NodeRuntime) -> Iterable[ContentObject]:
    """Return the default StorageClass, and the rights of what provisions its volumes."""
    name = "tenantry:local-storage"
    made: Json = {
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        "provisioner": runtime.provisioner,
        "reclaimPolicy": "Delete",
        # A volume is made on the node of its pod.
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    rules = [
        _rule("", ("persistentvolumeclaims",), _READ),
        _rule("", ("persistentvolumes",), (*_READ, "create", "delete")),
        _rule("events.k8s.io", ("events",), ("create", "patch")),
    ]
    yield _object(AddOnName.STORAGE, STORAGE_CLASSES, runtime.storage_class, made)
    yield _object(AddOnName.STORAGE, CLUSTER_ROLES, name, {"rules": rules})
    yield _binding(AddOnName.STORAGE, name, name, _user(runtime.storage_user))


def _corefile(domain: str) -> str:
    # No other server is asked for other names: what nodes may reach is not decided here.
    return f"""\
.:53 {{
    errors
    health
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods verified
    }}
    cache 30
    loadbalance
}}
"""


def _dns(facts: ContentFacts, image: str) -> Iterable[ContentObject]:
    name, system = DNS_ACCOUNT, "system:coredns"
    rules = [
        _rule("", ("services", "pods", "namespaces"), _READ),
        _rule("discovery.k8s.io", ("endpointslices",), _READ),
    ]
    account = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": name}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    yield _object(AddOnName.CORE_DNS, ACCOUNTS, name, {})
    yield _object(AddOnName.CORE_DNS, CLUSTER_ROLES, system, {"rules": rules})
    yield _binding(AddOnName.CORE_DNS, system, system, account)
    yield _object(AddOnName.CORE_DNS, CONFIG_MAPS, name, {"data": {"Corefile": _corefile(facts.domain)}})
    spec: Json = {"clusterIP": facts.dns_address, "selector": _DNS_LABELS, "ports": ports}
    yield _object(AddOnName.CORE_DNS, SERVICES, "kube-dns", {"spec": spec})
    yield _object(AddOnName.CORE_DNS, DEPLOYMENTS, name, {"spec": dns_deployment(image)})


def dns_deployment(image: str) -> Json:
    """Return the spec of the Deployment of CoreDNS, whose Corefile is in the ConfigMap `coredns`.

    Source: kubernetes/kubernetes, cluster/addons/dns/coredns.
    """
    container: Json = {
        "name": "coredns",
        "image": image,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "corefile", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod: Json = {
        "serviceAccountName": DNS_ACCOUNT,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "corefile", "configMap": {"name": DNS_ACCOUNT}}],
    }
    template: Json = {"metadata": {"labels": _DNS_LABELS}, "spec": pod}
    return {"replicas": 1, "selector": {"matchLabels": _DNS_LABELS}, "template": template}
