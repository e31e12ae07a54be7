"""The endpoint proxy before control planes in Pods: `tenantry install --virtual-control-planes`. Pure.

    users, pods ─► Service hosted-UID ─► Deployment hosted-proxy, a port for each control plane ─► Pod hosted-UID-0
                                             ▲ 6447, TLS with certificates of this proxy alone
                                         operators: each reports its control planes, and learns of clients that are held

The certificates are in the Secret `hosted-proxy`, which the operator writes: the manifests have no keys. Until it is
there, the Pod waits. The Pod is ready when an operator has reported all that it serves. It has no token.

Source: Kubernetes, "Deployments", "Network Policies" (endPort), "Pod Security Standards" (restricted).
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hosting import etcdserver, sidecar
from tenantry.install.rights import LABELS

NAME = "hosted-proxy"
"""The Deployment, and the Secret with what its Pod reads."""

SELECTOR = {"app.kubernetes.io/name": "tenantry", "app.kubernetes.io/component": NAME}

UID_LABEL = "hosting.tenantry.dev/uid"
"""The label of the Pods of control planes, by which the proxy may reach them."""

PROGRAM = "/endpoint-proxy"
CONTROL_PORT, PROBE_PORT = 6447, 6448
FIRST_PORT, LAST_PORT = 20000, 29999
"""Where the clients of control planes come in; below the ports of outgoing connections."""

AUTHORITY, SERVER, CLIENT = "proxy-ca", "proxy", "proxy-client"
"""The files with the authority of the proxy, which signs nothing else, and with its certificate and the operator's."""

FILES = {"ca.crt": f"{AUTHORITY}.crt", "tls.crt": f"{SERVER}.crt", "tls.key": f"{SERVER}.key"}
"""The keys of the Secret, and the names of the files of the operator."""

_USER = 65532
_MEMORY_BYTES = 512 * 2**20
"""Of the limit. A connection takes 12 kB, and a control plane without any 10 kB."""


def everything(image: str, operator: Json, *, is_in_cluster: bool) -> list[Json]:
    """Return the proxy and its NetworkPolicy.

    Args:
        image: The image of hosted control planes.
        operator: The operator as a peer of a NetworkPolicy.
        is_in_cluster: Whether the operator is one: certificates alone admit it otherwise.
    """
    return [_network(operator if is_in_cluster else None), _deployment(image)]


def peer() -> Json:
    """Return the proxy as a peer of a NetworkPolicy in its namespace."""
    return {"podSelector": {"matchLabels": SELECTOR}}


def _meta() -> Json:
    return {"name": NAME, "namespace": PROCESS_NAMESPACE, "labels": {**LABELS, **SELECTOR}}


def _network(operator: Json | None) -> Json:
    control: Json = {"ports": [{"protocol": "TCP", "port": CONTROL_PORT}]}
    if operator is not None:
        control["from"] = [operator]
    clients: Json = {"ports": [{"protocol": "TCP", "port": FIRST_PORT, "endPort": LAST_PORT}]}
    planes: Json = {"podSelector": {"matchExpressions": [{"key": UID_LABEL, "operator": "Exists"}]}}
    spec: Json = {
        "podSelector": {"matchLabels": SELECTOR},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [clients, control],
        "egress": [{"to": [planes], "ports": [{"protocol": "TCP", "port": sidecar.API_PORT}]}],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _meta(), "spec": spec}


def _deployment(image: str) -> Json:
    labels = {marks.MANAGED_BY: marks.MANAGER, **SELECTOR}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(),
        "spec": {
            # Operators report to each Pod; further ones serve only while one replaces another.
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": SELECTOR},
            "template": {"metadata": {"labels": labels}, "spec": _pod(image)},
        },
    }


def _pod(image: str) -> Json:
    # Their owner is root: the group of the Pod reads them.
    keys: Json = {"name": "keys", "secret": {"secretName": NAME, "defaultMode": 0o440}}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "proxy",
                "image": image,
                "command": [PROGRAM, "pods", f":{CONTROL_PORT}", f":{PROBE_PORT}", "/keys"],
                "env": [{"name": "GOMEMLIMIT", "value": str(int(_MEMORY_BYTES * etcdserver.SOFT_PART))}],
                "ports": [{"name": "control", "containerPort": CONTROL_PORT, "protocol": "TCP"}],
                "readinessProbe": {"tcpSocket": {"port": PROBE_PORT}, "periodSeconds": 1},
                "resources": {
                    "requests": {"cpu": "20m", "memory": "64Mi"},
                    "limits": {"memory": str(_MEMORY_BYTES)},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": [{"name": "keys", "mountPath": "/keys", "readOnly": True}],
            }
        ],
        "volumes": [keys],
    }
