"""Objects of a cluster with real nodes: RuntimeClasses, rights of the nodes' programs, a StorageClass, and CoreDNS.

Source: docs/concepts/dns.md for the Corefile; kubernetes/kubernetes, cluster/addons/dns/coredns for the rest.
"""

from __future__ import annotations

from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.api.model import Resource
from tenantry.controllers.clustercontents.objects import dns_deployment
from tenantry.local import build, pki
from tenantry.local.bootstrap import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NamedObject, apply_objects, bind
from tenantry.local.real import volumes
from tenantry.local.real.network import DNS_ADDRESS
from tenantry.local.real.settings import coredns_image

RUNTIMES = {"runc": "runc", "gvisor": "runsc"}
"""From the name of a RuntimeClass to its handler."""

_CLASS = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
_SERVICE = Resource("", "v1", "services", "Service")
_DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
_STORAGE_CLASS = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_LABELS = {"k8s-app": "kube-dns"}
_DNS = "system:coredns"
_AGENT = "tenantry:netpol-agent"
_STORAGE = "tenantry:local-storage"
_READ = ["list", "watch"]
# Nodes have no route out of this machine, so no other server is asked for other names.
_COREFILE = """\
.:53 {
    errors
    health
    ready
    tenantry cluster.local in-addr.arpa ip6.arpa
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods verified
    }
    cache 30
    loadbalance
}
"""


async def apply(kubeconfig: Path) -> None:
    """Apply all objects to a cluster.

    Raises:
        LocalError: CoreDNS is not built.
    """
    dns = build.built(build.DNS)
    if dns is None:
        raise LocalError("CoreDNS is not built: `tenantry local build --with-dns` does it")
    image = coredns_image(dns.folder.name)
    await apply_objects(kubeconfig, (*_runtimes(), *_rights(), *_storage(), *_dns(image)), "kube-system")


def _runtimes() -> list[NamedObject]:
    return [(_CLASS, name, {"handler": handler}) for name, handler in RUNTIMES.items()]


def _rights() -> list[NamedObject]:
    services = {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": _READ}
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ}
    pods = {"apiGroups": [""], "resources": ["pods", "namespaces", "nodes"], "verbs": _READ}
    policies = {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _READ}
    return [
        (CLUSTER_ROLE, _DNS, {"rules": [services, slices]}),
        (CLUSTER_ROLE_BINDING, _DNS, bind(_DNS, account="coredns")),
        (CLUSTER_ROLE, _AGENT, {"rules": [pods, policies]}),
        (CLUSTER_ROLE_BINDING, _AGENT, bind(_AGENT, pki.NETPOL_AGENT_USER)),
    ]


def _storage() -> list[NamedObject]:
    """Return the default StorageClass and its rights; volumes are created on the node of their pod."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    made = {
        "metadata": {"name": volumes.CLASS, "annotations": default},
        "provisioner": volumes.PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claims = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": _READ}
    folders = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": [*_READ, "create", "delete"]}
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    return [
        (_STORAGE_CLASS, volumes.CLASS, made),
        (CLUSTER_ROLE, _STORAGE, {"rules": [claims, folders, events]}),
        (CLUSTER_ROLE_BINDING, _STORAGE, bind(_STORAGE, pki.STORAGE_USER)),
    ]


def _dns(image: str) -> list[NamedObject]:
    # A cluster may have simulated nodes as well, which would only pretend to run it.
    simulated = {"key": "app.kubernetes.io/managed-by", "operator": "NotIn", "values": ["tenantry-local"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [simulated]}]}
    spec = dns_deployment(image)
    spec["template"]["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return [
        (_ACCOUNT, "coredns", {}),
        (_CONFIG_MAP, "coredns", {"data": {"Corefile": _COREFILE}}),
        (_SERVICE, "kube-dns", {"spec": {"clusterIP": DNS_ADDRESS, "selector": _LABELS, "ports": ports}}),
        (_DEPLOYMENT, "coredns", {"spec": spec}),
    ]
