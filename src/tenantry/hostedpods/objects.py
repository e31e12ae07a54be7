"""The objects of a hosted control plane in a Pod: pure.

    Secret hosted-UID-keys      all keys, which only the operator reads
    Secret hosted-UID           what the process reads           ─► container hosted ──sockets──┐
    Secret hosted-UID-sidecar   the certificate of the sidecar   ─► container sidecar ◄─────────┘
    PersistentVolumeClaim       SQLite                              ▲ 6443 clients, 6445 operator
    StatefulSet, Service

A StatefulSet runs at most one Pod of a name, so that a database has one writer. The Pod has no token and needs no
egress: the operator connects to the sidecar (hosting/sidecar.py). The NetworkPolicy of the namespace is installed.

Source: Kubernetes, "Pod Security Standards" (restricted), "StatefulSets", "Secrets" (subPath mounts).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import versionimages
from tenantry.hostedpods.versionimages import VersionImages
from tenantry.hosting import plane as hosting
from tenantry.hosting import serveroptions, sidecar, versions
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.hosting.stores import StoreKind
from tenantry.hosting.versions import HostedVersion

SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PODS = Resource("", "v1", "pods", "Pod")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")

UID_LABEL = "hosting.tenantry.dev/uid"
HASH = "hosting.tenantry.dev/configuration"
"""The annotation of a Pod with the digest of what it was started with."""

SIZE = "2Gi"
"""Of the volume: the database has at most 512 MiB, its log as much, and a restore writes a second one."""

OPENAPI, PREBUILT = "/openapi", "/prebuilt"
PROGRAM, SIDECAR = "/hosted", "/hosted-sidecar"
SOCKETS = "sockets/"
HOME = "/plane"
PROCESS = "hosted"
"""The container of the process."""

BESIDE = "sidecar"
"""The container of the sidecar."""

SNAPSHOTS = "snapshots"
"""The folder of the snapshots in the volume."""

_RESERVE = 256 * 2**20
"""The bytes of the volume that snapshots leave to the database."""

_USER = 65532
_SOFT_PART = 0.8
"""Of the memory limit: where Go begins to collect garbage more often."""


KEEPING = (
    *(f"-volume={HOME}", f"-folder={SNAPSHOTS}", f"-program={PROGRAM}"),
    *(f"-settings={HOME}/{hosting.SETTINGS}", f"-reserve={_RESERVE}"),
)
"""The flags of a keeper of the snapshots in the volume of a control plane."""

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


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all Pods have in common.

    Args:
        image: The image, see `image`.
        storage_class: The StorageClass of volumes; "" for the default one.
        service_type: "ClusterIP" or "LoadBalancer".
        others: The images of other versions than the default one; see `versionimages`.
    """

    image: str
    storage_class: str = ""
    service_type: str = "ClusterIP"
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def images(self) -> VersionImages:
        """The images of all versions."""
        return VersionImages(default=self.image, others=self.others)


def check(plane: HostedPlane, known: Sequence[HostedVersion] = (versionimages.DEFAULT,)) -> None:
    """Check that a control plane can run in a Pod.

    Args:
        plane: The control plane.
        known: The versions that have an image.

    Raises:
        InputError: It cannot: the field, and what it must be.
    """
    if plane.store.kind is not StoreKind.SQLITE:
        raise InputError("spec.datastore.kind must be SQLite where control planes run in Pods")
    if plane.replicas > 1:
        raise InputError("spec.replicas must be 1 where control planes run in Pods")
    versions.find(known, plane.version)


def name(uid: str) -> str:
    """Return the name of the objects of a control plane."""
    return f"hosted-{uid}"


def keys_name(uid: str) -> str:
    """Return the name of the Secret with all keys."""
    return f"{name(uid)}-keys"


def sidecar_name(uid: str) -> str:
    """Return the name of the Secret of the sidecar."""
    return f"{name(uid)}-sidecar"


def _meta(uid: str, called: str) -> Json:
    labels = {marks.MANAGED_BY: marks.MANAGER, UID_LABEL: uid}
    return {"name": called, "namespace": PROCESS_NAMESPACE, "labels": labels}


def secret(uid: str, called: str, files: Mapping[str, bytes]) -> Json:
    """Return a Secret.

    Args:
        uid: Of the control plane.
        called: The name.
        files: The contents by their keys.
    """
    data = {key: base64.b64encode(content).decode() for key, content in sorted(files.items())}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _meta(uid, called), "type": "Opaque", "data": data}


def files_of(found: Json) -> dict[str, bytes]:
    """Return the contents of a Secret by their keys."""
    data: dict[str, str] = found.get("data") or {}
    return {key: base64.b64decode(content) for key, content in data.items()}


def claim(uid: str, settings: PodSettings) -> Json:
    """Return the claim of the volume with the database."""
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": SIZE}}}
    if settings.storage_class:
        spec["storageClassName"] = settings.storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(uid, name(uid)), "spec": spec}


def service(uid: str, settings: PodSettings) -> Json:
    """Return the Service by which users reach the API server."""
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": sidecar.API_PORT}]
    spec: Json = {"type": settings.service_type, "selector": {UID_LABEL: uid}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(uid, name(uid)), "spec": spec}


def address(found: Json) -> str:
    """Return the name or the address by which users reach a Service; "" while it has none.

    Args:
        found: The Service.
    """
    spec: Json = found.get("spec", {})
    if spec.get("type") != "LoadBalancer":
        return str(spec.get("clusterIP", ""))
    balancer: Json = found.get("status", {}).get("loadBalancer", {})
    given: list[Json] = balancer.get("ingress") or []
    return str(given[0].get("ip") or given[0].get("hostname") or "") if given else ""


def stateful_set(
    uid: str, settings: PodSettings, limits: HostedLimits | None, files: Mapping[str, bytes], own: Mapping[str, bytes]
) -> Json:
    """Return the StatefulSet.

    Args:
        uid: Of the control plane.
        settings: What all Pods have in common.
        limits: What the process may take; None for no limits.
        files: The contents of the process's Secret. Keys of `mounts` are in its folder, others in its folder pki.
        own: The contents of the sidecar's Secret.
    """
    labels = _meta(uid, "")["labels"]
    spec = _pod(uid, settings, limits, files)
    digest = hashlib.sha256(msgspec.json.encode([spec, sorted(files.items()), sorted(own.items())], order="sorted"))
    template: Json = {"metadata": {"labels": labels, "annotations": {HASH: digest.hexdigest()[:32]}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _meta(uid, name(uid)),
        "spec": {
            "replicas": 1,
            # A Pod that never becomes ready is replaced when its template changes.
            "podManagementPolicy": "Parallel",
            "serviceName": name(uid),
            "selector": {"matchLabels": {UID_LABEL: uid}},
            "template": template,
        },
    }


def digest_of(found: Json) -> str:
    """Return the digest of what a StatefulSet starts its Pod with, or of what a Pod was started with."""
    about: Json = found["spec"]["template"] if "template" in found.get("spec", {}) else found
    return str(about.get("metadata", {}).get("annotations", {}).get(HASH, ""))


MOUNTED = (
    hosting.SETTINGS,
    "egress.json",
    "kube-controller-manager.kubeconfig",
    serveroptions.AUTHENTICATION,
    serveroptions.AUDIT_POLICY,
)
"""The keys of the process's Secret that are files in its folder; all others are in its folder pki."""


def _pod(uid: str, settings: PodSettings, limits: HostedLimits | None, files: Mapping[str, bytes]) -> Json:
    keys = [{"key": key, "path": key} for key in sorted(files) if key not in MOUNTED]
    # Their owner is root: the group of the Pod reads them.
    private = 0o440
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": POD_SECURITY,
        "containers": [_process(settings, limits), _sidecar(settings)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": name(uid)}},
            {"name": "files", "secret": {"secretName": name(uid), "defaultMode": private}},
            {"name": "pki", "secret": {"secretName": name(uid), "defaultMode": private, "items": keys}},
            {"name": "sidecar", "secret": {"secretName": sidecar_name(uid), "defaultMode": private}},
            {"name": "sockets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _container(called: str, settings: PodSettings, command: list[str], **more: object) -> Json:
    return {
        "name": called,
        "image": settings.image,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **more,
    }


def _process(settings: PodSettings, limits: HostedLimits | None) -> Json:
    # A small heap from the start: one that grows first stays scattered. Freed memory goes back at once.
    environment = {"GOGC": "20", "GODEBUG": "madvdontneed=1"}
    resources: Json = {}
    if limits is not None:
        environment["GOMEMLIMIT"] = str(int(limits.memory_bytes * _SOFT_PART))
        memory = str(limits.memory_bytes)
        # Without objects of users, the process takes most of its limit: a node must have room for it.
        resources = {"requests": {"cpu": f"{limits.cpu_millis}m", "memory": memory}, "limits": {"memory": memory}}
    probe: Json = {"scheme": "HTTPS", "port": sidecar.API_PORT}
    return _container(
        PROCESS,
        settings,
        [PROGRAM, f"{HOME}/{hosting.SETTINGS}"],
        env=[{"name": key, "value": value} for key, value in sorted(environment.items())],
        resources=resources,
        workingDir=HOME,
        readinessProbe={"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 1, "timeoutSeconds": 5},
        livenessProbe={
            "httpGet": {**probe, "path": "/livez"},
            "initialDelaySeconds": 60,
            "periodSeconds": 20,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
        volumeMounts=[
            {"name": "data", "mountPath": HOME},
            {"name": "pki", "mountPath": f"{HOME}/pki", "readOnly": True},
            *({"name": "files", "mountPath": f"{HOME}/{each}", "subPath": each, "readOnly": True} for each in MOUNTED),
            {"name": "sockets", "mountPath": f"{HOME}/{SOCKETS.rstrip('/')}"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the container's own
        ],
    )


def _sidecar(settings: PodSettings) -> Json:
    return _container(
        BESIDE,
        settings,
        [
            SIDECAR,
            f"-api=:{sidecar.API_PORT}",
            f"-server=127.0.0.1:{sidecar.INTERNAL_PORT}",
            f"-tunnel=:{sidecar.TUNNEL_PORT}",
            "-keys=/keys",
            "-sockets=/sockets",
            f"-names={','.join(sidecar.socket_name(each) for each in sidecar.SOCKETS)}",
            f"-keeper=:{sidecar.KEEPER_PORT}",
            *KEEPING,
        ],
        ports=[
            {"name": "https", "containerPort": sidecar.API_PORT, "protocol": "TCP"},
            {"name": "tunnel", "containerPort": sidecar.TUNNEL_PORT, "protocol": "TCP"},
            {"name": "keeper", "containerPort": sidecar.KEEPER_PORT, "protocol": "TCP"},
        ],
        resources={"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"memory": "128Mi"}},
        volumeMounts=[
            {"name": "sidecar", "mountPath": "/keys", "readOnly": True},
            {"name": "sockets", "mountPath": "/sockets"},
            # For snapshots.
            {"name": "data", "mountPath": HOME},
            {"name": "files", "mountPath": f"{HOME}/{hosting.SETTINGS}", "subPath": hosting.SETTINGS, "readOnly": True},
        ],
    )


class SeenPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod of a control plane, as far as its start depends on it.

    Args:
        digest: See `HASH`.
        address: Its IP address; "" for none yet.
        is_ready: Whether its API server is ready, and it does not end.
        ends: Whether it is being deleted.
        problem: Why it does not start; "" if nothing is known.
    """

    digest: str
    address: str
    is_ready: bool
    ends: bool
    problem: str = ""


def seen(found: Json) -> SeenPod:
    """Return what a Pod is."""
    meta: Json = found.get("metadata", {})
    status: Json = found.get("status", {})
    conditions: dict[str, Json] = {each["type"]: each for each in status.get("conditions") or ()}
    ends = "deletionTimestamp" in meta
    return SeenPod(
        digest=digest_of(found),
        address=str(status.get("podIP", "")),
        is_ready=conditions.get("Ready", {}).get("status") == "True" and not ends,
        ends=ends,
        problem=_problem(found),
    )


def _problem(found: Json) -> str:
    status: Json = found.get("status", {})
    states: list[Json] = status.get("containerStatuses") or []
    for each in states:
        waiting: Json | None = each.get("state", {}).get("waiting")
        if waiting is not None and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            ended: Json = each.get("lastState", {}).get("terminated") or {}
            told = waiting.get("message") or ended.get("message") or ""
            return f"container {each.get('name')}: {waiting['reason']}: {told}".rstrip(": ")
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"{each.get('reason')}: {each.get('message')}"
    return ""
