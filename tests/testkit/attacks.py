"""The requests of a hostile tenant: the rows of THREAT_MODEL.md that name `test_untrusted` (H06, X02).

Mallory owns the tenant `mallory`, and is after the tenant `shop` and after the cluster. `own` below is mallory's
namespace, `POD` a pod that all rules let pass.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from tenantry.kube.client import JSON, MERGE_PATCH

Json = dict[str, Any]

OWN, VICTIM = "mallory", "shop"
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "attack"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "c",
                "image": "registry.example.com/c:1",
                "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """One request that has to be refused.

    Args:
        id: As in THREAT_MODEL.md.
        what: What it would give.
        method: Of HTTP.
        path: On the API server.
        body: As JSON.
        content_type: Of the body.
        refused: The words of the refusal that show that it is the right one.
    """

    id: str
    what: str
    method: str
    path: str
    body: Json | None = None
    content_type: str = JSON
    refused: str = "forbidden"


def _core(namespace: str, plural: str, *more: str) -> str:
    return "/".join(["/api/v1/namespaces", namespace, plural, *more])


def _group(group: str, namespace: str, plural: str, *more: str) -> str:
    return "/".join([f"/apis/{group}/namespaces", namespace, plural, *more])


def _read(id_: str, what: str, path: str) -> Attack:
    return Attack(id=id_, what=what, method="GET", path=path)


def _make(id_: str, what: str, path: str, kind: str, body: Json, *, refused: str = "forbidden") -> Attack:
    version = path.removeprefix("/apis/").split("/namespaces/")[0] if path.startswith("/apis/") else "v1"
    version = version if "/namespaces/" in path else "/".join(version.split("/")[:2])
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": id_.lower()}, **body}
    return Attack(id=id_, what=what, method="POST", path=path, body=whole, refused=refused)


def _patch(id_: str, what: str, path: str, body: Json, *, refused: str = "forbidden") -> Attack:
    return Attack(id=id_, what=what, method="PATCH", path=path, body=body, content_type=MERGE_PATCH, refused=refused)


def _delete(id_: str, what: str, path: str) -> Attack:
    return Attack(id=id_, what=what, method="DELETE", path=path)


def _pod(id_: str, what: str, refused: str, *, container: Json | None = None, **spec: object) -> Attack:
    """Return a pod of mallory's that breaks a rule."""
    body = copy.deepcopy(POD)
    body["metadata"]["name"] = id_.lower()
    body["spec"].update(spec)
    given = body["spec"]["containers"][0]
    for key, value in (container or {}).items():
        given[key] = {**given.get(key, {}), **value} if isinstance(value, dict) else value
    return Attack(id=id_, what=what, method="POST", path=_core(OWN, "pods"), body=body, refused=refused)


def _in_own(id_: str, what: str, rule: str, path: str, kind: str, spec: Json) -> Attack:  # noqa: PLR0917 - a row of a table
    return _make(id_, what, path, kind, {"spec": spec}, refused=rule)


_RBAC = "rbac.authorization.k8s.io/v1"
_NET = "networking.k8s.io/v1"
_ADMIT = "/apis/admissionregistration.k8s.io/v1"
_OURS = "tenantry.dev/v1alpha1"
_MALLORY = {"kind": "User", "name": "mallory@evil.example", "apiGroup": "rbac.authorization.k8s.io"}


def _role(name: str) -> Json:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [_MALLORY],
    }


API = [
    _make(
        *("API-1", "a certificate for another name", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
        "CertificateSigningRequest",
        {"spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}},
    ),
    _make(
        *("API-2", "a token of another tenant's workload", _core(VICTIM, "serviceaccounts", "default", "token")),
        "TokenRequest",
        {"apiVersion": "authentication.k8s.io/v1", "spec": {}},
    ),
    _make("API-3", "rights in another tenant", _group(_RBAC, VICTIM, "rolebindings"), "RoleBinding", _role("view")),
    _make("API-4", "all rights, at home", _group(_RBAC, OWN, "rolebindings"), "RoleBinding", _role("cluster-admin")),
    _make(
        *("API-5", "all rights, everywhere", f"/apis/{_RBAC}/clusterrolebindings"),
        "ClusterRoleBinding",
        _role("cluster-admin"),
    ),
    _read("API-6", "who else is here", "/api/v1/namespaces"),
    _read("API-7", "who the customers are", f"/apis/{_OURS}/tenants"),
    _read("API-8", "another tenant's secrets", _core(VICTIM, "secrets")),
    _read("API-9", "all Secrets", "/api/v1/secrets"),
    _read("API-10", "what a pod of another tenant prints", _core(VICTIM, "pods", "web", "log")),
    _make("API-11", "a shell in a pod of another tenant", _core(VICTIM, "pods", "web", "exec"), "PodExecOptions", {}),
    _delete("API-12", "the end of another tenant", f"/apis/{_OURS}/tenants/{VICTIM}"),
    _patch("API-13", "a larger quota", f"/apis/{_OURS}/tenants/{OWN}", {"spec": {"quota": {"hard": {"cpu": 999}}}}),
    _delete("API-14", "traces of what happened", _core(VICTIM, "events", "any")),
]

ADMISSION = [
    _delete("ADM-1", "no more rules", f"{_ADMIT}/validatingadmissionpolicies/tenantry-rules-pods"),
    _make(
        *("ADM-2", "all objects, before they are stored", f"{_ADMIT}/mutatingwebhookconfigurations"),
        *("MutatingWebhookConfiguration", {"webhooks": [{"name": "a.evil.example"}]}),
    ),
    _patch("ADM-3", "looser rules", f"/apis/{_OURS}/tenancydefaults/default", {"spec": {"rules": None}}),
    _patch(
        *("ADM-4", "looser rules at home", _group(_OURS, OWN, "tenancyrules", "tenantry")),
        {"spec": {"enforce": None}},
    ),
    _patch(
        *("ADM-5", "a namespace that counts as another tenant's", f"/api/v1/namespaces/{OWN}"),
        {"metadata": {"labels": {"tenantry.dev/tenant": VICTIM}}},
    ),
    _patch(
        *("ADM-6", "a namespace without pod security", f"/api/v1/namespaces/{OWN}"),
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
    ),
    _make(
        *("ADM-7", "a kind of one's own", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        *("CustomResourceDefinition", {"metadata": {"name": "a.evil.example"}, "spec": {}}),
    ),
    _make(
        *("ADM-8", "a Subnamespace in another tenant", _group(_OURS, VICTIM, "subnamespaces"), "Subnamespace"),
        {"spec": {"mode": "Workspace", "owners": [{"kind": "User", "name": "mallory@evil.example"}]}},
    ),
]

QUOTA = [
    _patch(
        *("QUO-1", "a larger quota", _core(OWN, "resourcequotas", "tenantry-quota")),
        {"spec": {"hard": {"pods": "999"}}},
    ),
    _patch(
        *("QUO-2", "a quota that counts nothing", _core(OWN, "resourcequotas", "tenantry-quota", "status")),
        {"status": {"used": {"pods": "0"}}},
    ),
    _delete("QUO-3", "no quota", _core(OWN, "resourcequotas", "tenantry-quota")),
    _delete("QUO-4", "no limits of containers", _core(OWN, "limitranges", "tenantry-limits")),
    _pod(
        *("QUO-5", "more than its share", "exceeded quota"),
        container={"resources": {"requests": {"cpu": "16"}, "limits": {"cpu": "16", "memory": "64Mi"}}},
    ),
    _pod("QUO-6", "priority over all other pods", "priorityClass", priorityClassName="system-cluster-critical"),
]

_PATHS: Json = {
    "paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "x", "port": {"number": 1}}}}]
}

NETWORK = [
    _delete("NET-1", "a way out", _group(_NET, OWN, "networkpolicies", "tenantry-isolation")),
    _in_own(
        *("NET-2", "a way out", "spec.egress", _group(_NET, OWN, "networkpolicies"), "NetworkPolicy"),
        {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}]}]},
    ),
    _in_own(
        *("NET-3", "a way to the metadata service", "spec.egress", _group(_NET, OWN, "networkpolicies")),
        "NetworkPolicy",
        {"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}]},
    ),
    _in_own(
        *("NET-4", "a way in for another", "spec.ingress", _group(_NET, OWN, "networkpolicies"), "NetworkPolicy"),
        {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]},
    ),
    _in_own(
        *("NET-5", "traffic meant for an address", "services.externalIPs", _core(OWN, "services"), "Service"),
        {"ports": [{"port": 443}], "externalIPs": ["192.0.2.1"]},
    ),
    _in_own(
        *("NET-6", "a port of every node", "services.types", _core(OWN, "services"), "Service"),
        {"type": "NodePort", "ports": [{"port": 443}]},
    ),
    _in_own(
        *("NET-7", "an alias of a name inside", "services.externalName", _core(OWN, "services"), "Service"),
        {"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"},
    ),
    _in_own(
        *("NET-8", "another tenant's visitors", "www.shop.example", _group(_NET, OWN, "ingresses"), "Ingress"),
        {"rules": [{"host": "www.shop.example", "http": _PATHS}]},
    ),
    _in_own(
        *("NET-9", "all visitors", "hostnames", _group(_NET, OWN, "ingresses"), "Ingress"),
        {"defaultBackend": {"service": {"name": "x", "port": {"number": 1}}}},
    ),
]

STORAGE = [
    _in_own(
        *("STO-1", "another tenant's volume", "volumeName", _core(OWN, "persistentvolumeclaims")),
        "PersistentVolumeClaim",
        {
            "volumeName": "shop-orders",
            "storageClassName": "shared",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    ),
    _in_own(
        *("STO-2", "a volume that outlives its claim", "storageClasses", _core(OWN, "persistentvolumeclaims")),
        "PersistentVolumeClaim",
        {
            "storageClassName": "keeps",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    ),
    _read("STO-3", "all volumes", "/api/v1/persistentvolumes"),
    _pod(
        *("STO-4", "the node's files", "podSecurity.hostPath"),
        volumes=[{"name": "h", "hostPath": {"path": "/"}}],
    ),
]

_ANY_POD: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}

NODE = [
    _pod(
        "NOD-1",
        "the node's kernel",
        "podSecurity.privileged",
        container={"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}},
    ),
    _pod("NOD-2", "the node's processes", "podSecurity.hostNamespaces", hostPID=True),
    _pod("NOD-3", "the node's network", "podSecurity.hostNamespaces", hostNetwork=True),
    _pod(
        *("NOD-4", "a port of the node", "podSecurity.hostPorts"),
        container={"ports": [{"containerPort": 80, "hostPort": 80}]},
    ),
    _pod(
        *("NOD-5", "rights of root", "podSecurity.capabilities"),
        container={"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}},
    ),
    _pod(
        *("NOD-6", "rights of root", "podSecurity.runAsRoot"),
        securityContext={"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
    ),
    _pod("NOD-7", "a node of its choice", "scheduling.nodeName", nodeName="node-0"),
    _pod("NOD-8", "code from anywhere", "images.allowed", container={"image": "evil.example/c:1"}),
    _read("NOD-9", "the nodes", "/api/v1/nodes"),
    _read("NOD-10", "a kubelet", "/api/v1/nodes/node-0/proxy/pods"),
    _make(
        *("NOD-11", "a node of its choice, past the scheduler", _core(OWN, "pods", "attack", "binding"), "Binding"),
        {"target": {"kind": "Node", "name": "node-0"}},
    ),
    _pod(
        *("NOD-12", "a node without other tenants", "scheduling.otherTenants"),
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_ANY_POD]}},
    ),
]

ATTACKS = [*API, *ADMISSION, *QUOTA, *NETWORK, *STORAGE, *NODE]
