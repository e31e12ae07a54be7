"""The etcd that control planes in Pods share: `tenantry install --virtual-control-planes --hosted-etcd`. Pure.

    control plane ─► its forwarder ─► Service hosted-etcd, 2379     a prefix, a user and a role each
                                          ▼
    StatefulSet hosted-etcd ─► container etcd ◄── Unix socket ── container keeper ◄── 2381, the operator
                                   ▼                                 ▼                admits and removes users
                               /data/etcd                        /data/backup.db, and room for new values

The certificates are in the Secret `hosted-etcd`, which the operator writes: the manifests have no keys. Until it is
there, the Pod waits.

Source: Kubernetes, "StatefulSets", "Network Policies", "Pod Security Standards" (restricted).
"""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hosting import etcdserver, stores
from tenantry.install.rights import LABELS

NAME = "hosted-etcd"
"""The StatefulSet, its Service, and the Secret with what its Pod reads."""

SELECTOR = {"app.kubernetes.io/name": "tenantry", "app.kubernetes.io/component": NAME}
CLIENTS = {"hosting.tenantry.dev/datastore": stores.StoreKind.SHARED_ETCD.value}
"""The label of Pods that reach the etcd."""

CLIENT_PORT, KEEPER_PORT, PROBE_PORT = 2379, 2381, 2382

PROGRAM, ETCD = "/hosted", "/hosted-etcd"
ACCESS = "root.json"
"""The key of the Secret with the way of the keeper to the etcd."""

KEEPER_AUTHORITY, KEEPER, KEEPER_CLIENT = "keeper-ca", "keeper", "keeper-client"
"""The files with the authority of the keeper, which signs nothing else, and with its certificate and the operator's."""

SERVER_FILES = {"server.crt": "server.crt", "server.key": "server.key", "etcd-ca.crt": "etcd-ca.crt"}
ROOT_FILES = {
    ACCESS: ACCESS,
    **{name: f"pki/{name}" for name in ("root.crt", "root.key", "etcd-ca.crt")},
}
KEEPER_FILES = {
    f"{KEEPER_AUTHORITY}.crt": "ca.crt",
    f"{KEEPER}.crt": "tls.crt",
    f"{KEEPER}.key": "tls.key",
}
"""The keys of the Secret by the paths that the containers read them at."""

SOCKETS = "/sockets/"
_DATA = "/data"
_WRITTEN = {"data": _DATA, "sockets": SOCKETS.rstrip("/")}
_USER = 65532
CONTAINER_SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
POD_SECURITY: Json = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "fsGroup": _USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The Pod Security Standard `restricted`, as all Pods of this namespace keep it."""

_VOLUME_BYTES = 28 * 2**30
"""Of the file at its largest, the copy, the next copy or the file that replaces it, and the log."""


def everything(image: str, storage_class: str, operator: Json, *, is_in_cluster: bool) -> list[Json]:
    """Return the etcd, its Service and its NetworkPolicies.

    Args:
        image: The image of hosted control planes.
        storage_class: The StorageClass of its volume; "" for the default one.
        operator: The operator as a peer of a NetworkPolicy.
        is_in_cluster: Whether the operator is one: certificates alone admit it otherwise.
    """
    ports = [{"name": "etcd", "protocol": "TCP", "port": CLIENT_PORT, "targetPort": CLIENT_PORT}]
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": _meta(NAME)}
    service["spec"] = {"selector": SELECTOR, "ports": ports}
    return [*_network(operator if is_in_cluster else None), service, _stateful_set(image, storage_class)]


def _meta(name: str) -> Json:
    return {"name": name, "namespace": PROCESS_NAMESPACE, "labels": {**LABELS, **SELECTOR}}


def _network(operator: Json | None) -> list[Json]:
    to_keeper: Json = {"ports": [{"protocol": "TCP", "port": KEEPER_PORT}]}
    if operator is not None:
        to_keeper["from"] = [operator]
    client_port = [{"protocol": "TCP", "port": CLIENT_PORT}]
    etcd: Json = {
        "podSelector": {"matchLabels": SELECTOR},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": CLIENTS}}], "ports": client_port}, to_keeper],
    }
    clients: Json = {
        "podSelector": {"matchLabels": CLIENTS},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"podSelector": {"matchLabels": SELECTOR}}], "ports": client_port}],
    }
    version = "networking.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": "NetworkPolicy", "metadata": _meta(name), "spec": spec}
        for name, spec in ((NAME, etcd), (f"{NAME}-clients", clients))
    ]


def _stateful_set(image: str, storage_class: str) -> Json:
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{_VOLUME_BYTES // 2**30}Gi"}}}
    claim: Json = {**size, "storageClassName": storage_class} if storage_class else size
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _meta(NAME),
        "spec": {
            "replicas": 1,
            # A Pod that never becomes ready is replaced when its template changes.
            "podManagementPolicy": "Parallel",
            "serviceName": NAME,
            "selector": {"matchLabels": SELECTOR},
            "template": {"metadata": {"labels": {marks.MANAGED_BY: marks.MANAGER, **SELECTOR}}, "spec": _pod(image)},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


def _pod(image: str) -> Json:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": POD_SECURITY,
        "containers": [_etcd(image), _keeper(image)],
        "volumes": [
            files("server", NAME, SERVER_FILES),
            files("root", NAME, ROOT_FILES),
            files("keeper", NAME, KEEPER_FILES),
            {"name": "sockets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }


def files(name: str, secret: str, paths: Mapping[str, str]) -> Json:
    """Return a volume with files of a Secret.

    Args:
        name: Of the volume.
        secret: The name of the Secret.
        paths: Where its keys are in the volume.
    """
    items = [{"key": key, "path": path} for key, path in sorted(paths.items())]
    # Their owner is root: the group of the Pod reads them.
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}


def container(
    name: str,
    image: str,
    command: list[str],
    *,
    written: dict[str, str],
    read: dict[str, str],
    memory: tuple[int, int],
    cpu_millis: int = 50,
) -> Json:
    """Return a container of an etcd, or of what keeps it.

    Args:
        name: Its name.
        image: The image of hosted control planes.
        command: Its command.
        written: The names of volumes that it writes, and where they are.
        read: The same of volumes that it only reads.
        memory: The request and the limit, in bytes.
        cpu_millis: The request.
    """
    request, limit = memory
    return {
        "name": name,
        "image": image,
        "command": command,
        "env": [{"name": "GOMEMLIMIT", "value": str(int(limit * etcdserver.SOFT_PART))}],
        "resources": {"requests": {"cpu": f"{cpu_millis}m", "memory": str(request)}, "limits": {"memory": str(limit)}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            *({"name": volume, "mountPath": path} for volume, path in written.items()),
            *({"name": volume, "mountPath": path, "readOnly": True} for volume, path in read.items()),
        ],
    }


def _etcd(image: str) -> Json:
    urls = [f"unixs://{SOCKETS}{stores.ETCD_SOCKET}", f"https://0.0.0.0:{CLIENT_PORT}"]
    flags = etcdserver.flags(urls, f"{_DATA}/etcd", "/pki", etcdserver.SHARED_BYTES)
    memory = (256 * 2**20, etcdserver.SHARED_MEMORY_BYTES)
    ports = [{"name": "etcd", "containerPort": CLIENT_PORT, "protocol": "TCP"}]
    return {
        **container("etcd", image, [ETCD, *flags], written=_WRITTEN, read={"server": "/pki"}, memory=memory),
        "ports": ports,
        "workingDir": SOCKETS.rstrip("/"),
    }


def _keeper(image: str) -> Json:
    command = [
        *(PROGRAM, "etcd", f"/keeper/{ACCESS}", "keep", f":{KEEPER_PORT}", f":{PROBE_PORT}", "/keys"),
        f"{_DATA}/backup.db",
    ]
    read = {"root": "/keeper", "keeper": "/keys"}
    return {
        **container("keeper", image, command, written=_WRITTEN, read=read, memory=(64 * 2**20, 256 * 2**20)),
        "ports": [{"name": "keeper", "containerPort": KEEPER_PORT, "protocol": "TCP"}],
        # The Pod is ready when the etcd answers.
        "readinessProbe": {"httpGet": {"path": "/ready", "port": PROBE_PORT}, "periodSeconds": 2, "timeoutSeconds": 6},
    }
