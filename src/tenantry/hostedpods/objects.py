"""The objects of a hosted control plane in a Pod: pure.

    Secret hosted-UID-keys      all keys, which only the operator reads
    Secret hosted-UID           what the process reads           ─► container hosted ──sockets──┐
    Secret hosted-UID-sidecar   the certificate of the sidecar   ─► container sidecar ◄─────────┘
    audit log, if there is one                                   ─► init container audit prints it, to the end
    PersistentVolumeClaim       SQLite, or a container `store`      ▲ 6443 clients, 6445 operator
    StatefulSet, Service

A StatefulSet runs at most one Pod of a name, so that a database has one writer. The Pod has no token and needs no
egress: the operator connects to the sidecar (hosting/sidecar.py). The NetworkPolicy of the namespace is installed.

Source: Kubernetes, "Pod Security Standards" (restricted), "StatefulSets", "Secrets" (subPath mounts).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods.podsockets import PodSockets
from tenantry.hostedpods.storeway import StoreWay, is_elsewhere
from tenantry.hostedpods.versionimages import VersionImages
from tenantry.hosting import encryption, guards, serveroptions, sidecar, stores
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.hosting.stores import StoreKind
from tenantry.install import planeproxy, planestore

SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PODS = Resource("", "v1", "pods", "Pod")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")

UID_LABEL = planeproxy.UID_LABEL
HASH = "hosting.tenantry.dev/configuration"
"""The annotation of a Pod with the digest of what it was started with."""

CALLED = "hosting.tenantry.dev/name"
"""The annotation of a Service with the name of the control plane in kubeconfigs."""

URL_HOST = "hosting.tenantry.dev/host"
"""The annotation of a Service with the DNS name by which users reach it, if there is one."""

_PORT = 443
NODES = "nodes"
"""The name of the port of a Service at which machines come in."""

SIZE = "2Gi"
"""Of the volume: the database has at most 512 MiB, its log as much, and a restore writes a second one."""

STORE = "hosting.tenantry.dev/datastore"
"""The annotation of the Secret with all keys that records the datastore; without it, that is SQLite."""

OPENAPI, PREBUILT = "/openapi", "/prebuilt"
PROGRAM, SIDECAR = planestore.PROGRAM, "/hosted-sidecar"
FORWARDER = planeproxy.PROGRAM
HOME = "/plane"
PROCESS = "hosted"
"""The container of the process."""

BESIDE = "sidecar"
"""The container of the sidecar."""

SIDECAR_RESOURCES: Json = {"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"memory": "128Mi"}}
"""Of a container that keeps snapshots, and passes bytes on."""

AUDIT = serveroptions.AUDIT_FOLDER
"""The init container that prints the audit log, and the folder of that."""

SNAPSHOTS = "snapshots"
"""The folder of the snapshots in the volume."""

_RESERVE = 256 * 2**20
"""The bytes of the volume that snapshots leave to the database."""

_SCRATCH: Json = {"sizeLimit": SIZE}
"""Of the folder of a process without a database: a snapshot is there on its way."""

_SOFT_PART = 0.8
"""Of the memory limit: where Go begins to collect garbage more often."""


KEEPING = (
    *(f"-volume={HOME}", f"-folder={SNAPSHOTS}", f"-program={PROGRAM}"),
    *(f"-settings={HOME}/{hosting.SETTINGS}", f"-reserve={_RESERVE}"),
)
"""The flags of a keeper of the snapshots in the volume of a control plane."""

CONTAINER_SECURITY, POD_SECURITY = planestore.CONTAINER_SECURITY, planestore.POD_SECURITY


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all Pods have in common.

    Args:
        image: The image, see `image`.
        storage_class: The StorageClass of volumes; "" for the default one.
        service_type: "ClusterIP" or "LoadBalancer".
        has_etcd: Whether there is an etcd that they can share.
        runtime_class: The RuntimeClass of a control plane in a sandbox; "" for none.
        others: The images of other versions than the default one; see `versionimages`.
    """

    image: str
    storage_class: str = ""
    service_type: str = "ClusterIP"
    has_etcd: bool = False
    runtime_class: str = ""
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def sockets(self) -> PodSockets:
        """Where the sockets of a Pod are."""
        return PodSockets(bool(self.runtime_class))

    @property
    def images(self) -> VersionImages:
        """The images of all versions."""
        return VersionImages(default=self.image, others=self.others)


def name(uid: str) -> str:
    """Return the name of the objects of a control plane."""
    return f"hosted-{uid}"


def keys_name(uid: str) -> str:
    """Return the name of the Secret with all keys."""
    return f"{name(uid)}-keys"


def sidecar_name(uid: str) -> str:
    """Return the name of the Secret of the sidecar."""
    return f"{name(uid)}-sidecar"


def meta(uid: str, called: str) -> Json:
    """Return the metadata of an object of a control plane.

    Args:
        uid: Of the control plane.
        called: The name of the object.
    """
    return _named(called, {UID_LABEL: uid})


def _named(called: str, labels: Mapping[str, str]) -> Json:
    return {"name": called, "namespace": PROCESS_NAMESPACE, "labels": {marks.MANAGED_BY: marks.MANAGER, **labels}}


def secret(uid: str, called: str, files: Mapping[str, bytes], store: StoreKind | None = None) -> Json:
    """Return a Secret.

    Args:
        uid: Of the control plane.
        called: The name.
        files: The contents by their keys.
        store: The datastore that it records; None for none.
    """
    found = opaque(called, {UID_LABEL: uid}, files)
    if store is not None:
        found["metadata"]["annotations"] = {STORE: store.value}
    return found


def recorded(found: Json) -> StoreKind:
    """Return the datastore that a Secret with all keys records.

    Raises:
        InputError: It records none that this version has.
    """
    about: Json = found["metadata"].get("annotations") or {}
    text = about.get(STORE, StoreKind.SQLITE.value)
    try:
        return StoreKind(text)
    except ValueError as error:
        known = ", ".join(StoreKind)
        raise InputError(f"{found['metadata']['name']}: {STORE} is {text!r} and must be one of {known}") from error


def opaque(called: str, labels: Mapping[str, str], files: Mapping[str, bytes]) -> Json:
    """Return a Secret that is not of one control plane.

    Args:
        called: The name.
        labels: Beside the one that says what manages it.
        files: The contents by their keys.
    """
    data = {key: base64.b64encode(content).decode() for key, content in sorted(files.items())}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _named(called, labels), "type": "Opaque", "data": data}


def files_of(found: Json) -> dict[str, bytes]:
    """Return the contents of a Secret by their keys."""
    data: dict[str, str] = found.get("data") or {}
    return {key: base64.b64decode(content) for key, content in data.items()}


def claim(uid: str, settings: PodSettings, called: str = "", size: str = SIZE) -> Json:
    """Return the claim of a volume.

    Args:
        uid: Of the control plane.
        settings: What all Pods have in common.
        called: The name; "" for that of the volume with the database and the snapshots.
        size: How large it is.
    """
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if settings.storage_class:
        spec["storageClassName"] = settings.storage_class
    about = meta(uid, called or name(uid))
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


def service(uid: str, settings: PodSettings, plane: HostedPlane, port: int, nodes: int = 0) -> Json:
    """Return the Service by which users, and machines, reach the API server: through the endpoint proxy.

    Args:
        uid: Of the control plane.
        settings: What all Pods have in common.
        plane: The control plane.
        port: Its port at the proxy.
        nodes: The port for machines at the proxy; 0 if none join.
    """
    ports = [{"name": "https", "protocol": "TCP", "port": plane.port or _PORT, "targetPort": port}]
    if nodes:
        # The port of the API server itself, which it writes into the endpoints of the Service `kubernetes` inside.
        ports.append({"name": NODES, "protocol": "TCP", "port": sidecar.INTERNAL_PORT, "targetPort": nodes})
    spec: Json = {"type": settings.service_type, "selector": planeproxy.SELECTOR, "ports": ports}
    notes = {CALLED: plane.name} | ({URL_HOST: plane.host} if plane.host else {})
    about = {**meta(uid, name(uid)), "annotations": notes}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def called(found: Json) -> str:
    """Return the name of the control plane of a Service; "" if it was not started with a proxy before it."""
    about: Json = found["metadata"].get("annotations") or {}
    return str(about.get(CALLED, ""))


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


def url(found: Json) -> str:
    """Return the URL by which users reach a Service that has an address."""
    about: Json = found["metadata"].get("annotations") or {}
    ports: list[Json] = found.get("spec", {}).get("ports") or []
    host, port = about.get(URL_HOST) or address(found), int(ports[0]["port"]) if ports else _PORT
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}" if port == _PORT else f"https://{host}:{port}"


def url_of_nodes(found: Json) -> str:
    """Return the URL by which machines reach a Service with a port for them."""
    about: Json = found["metadata"].get("annotations") or {}
    return f"https://{at_port(about.get(URL_HOST) or address(found), sidecar.INTERNAL_PORT)}"


def ip_of_nodes(found: Json) -> str:
    """Return the address that pods of machines find in the Service `kubernetes` inside; "" if there is only a name."""
    try:
        return str(ipaddress.ip_address(address(found)))
    except ValueError:
        return ""


def at_port(address: str, port: int) -> str:
    """Return an address, or a name, and a port as URLs have them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def stateful_set(
    uid: str,
    settings: PodSettings,
    limits: HostedLimits | None,
    files: Mapping[str, bytes],
    own: Mapping[str, bytes],
    *,
    way: StoreWay | None = None,
    replicas: int = 1,
    has_audit_log: bool = False,
) -> Json:
    """Return the StatefulSet.

    Args:
        uid: Of the control plane.
        settings: What all Pods have in common.
        limits: What the process may take; None for no limits.
        files: The contents of the process's Secret. Keys of `mounts` are in its folder, others in its folder pki.
        own: The contents of the sidecar's Secret.
        way: How it reaches its datastore; None if that is SQLite.
        replicas: The number of Pods.
        has_audit_log: Whether the process writes an audit log, which an init container of its own prints.
    """
    labels = {**meta(uid, "")["labels"], **(way.labels if way is not None else {})}
    spec = _pod(uid, settings, limits, files, way)
    if has_audit_log:
        _print_audit_log(spec, settings)
    if replicas > 1:
        spec["topologySpreadConstraints"] = [_spread(uid)]
    secrets = [sorted(each.items()) for each in (files, own, *((way.own,) if way is not None and way.own else ()))]
    digest = hashlib.sha256(msgspec.json.encode([spec, *secrets], order="sorted"))
    template: Json = {"metadata": {"labels": labels, "annotations": {HASH: digest.hexdigest()[:32]}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta(uid, name(uid)),
        "spec": {
            "replicas": replicas,
            # A Pod that never becomes ready is replaced when its template changes.
            "podManagementPolicy": "Parallel",
            "serviceName": name(uid),
            "selector": {"matchLabels": {UID_LABEL: uid}},
            "template": template,
        },
    }


def _spread(uid: str) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {UID_LABEL: uid}},
    }


def runtime_class_of(found: Json | None) -> str:
    """Return the RuntimeClass of the Pods of a StatefulSet; "" if there is none, or no StatefulSet."""
    return str(found["spec"]["template"]["spec"].get("runtimeClassName", "")) if found is not None else ""


def replicas_of(found: Json | None) -> int:
    """Return the number of Pods that a StatefulSet has; 0 if there is none."""
    return int(found.get("spec", {}).get("replicas", 1)) if found is not None else 0


def digest_of(found: Json) -> str:
    """Return the digest of what a StatefulSet starts its Pod with, or of what a Pod was started with."""
    about: Json = found["spec"]["template"] if "template" in found.get("spec", {}) else found
    return str(about.get("metadata", {}).get("annotations", {}).get(HASH, ""))


MOUNTED = (
    hosting.SETTINGS,
    "egress.json",
    f"{hosting.MANAGER}.kubeconfig",
    serveroptions.AUTHENTICATION,
    serveroptions.AUDIT_POLICY,
)
"""The keys of the process's Secret that are files in its folder; all others are in its folder pki."""

_SOME = (
    *(stores.PASSWORD_FILE, f"{hosting.SCHEDULER}.kubeconfig", encryption.FILE),
    *(guards.CONFIGURATION, guards.FILE),
)
"""Further ones, which only some control planes have."""


def _mounted(files: Iterable[str]) -> tuple[str, ...]:
    # Only some have these: a mount of a key that there is not would keep the Pod from starting.
    return (*MOUNTED, *(each for each in _SOME if each in files))


def _place(key: str) -> str:
    return f"{HOME}/{guards.FOLDER}/{key}" if key == guards.FILE else f"{HOME}/{key}"


def _pod(
    uid: str, settings: PodSettings, limits: HostedLimits | None, files: Mapping[str, bytes], way: StoreWay | None
) -> Json:
    # A datastore elsewhere has all of its objects, and the Pod may go to any node.
    data: Json = {"emptyDir": _SCRATCH} if is_elsewhere(way) else {"persistentVolumeClaim": {"claimName": name(uid)}}
    keys = [{"key": key, "path": key} for key in sorted(files) if key not in _mounted(files)]
    # Their owner is root: the group of the Pod reads them.
    private = 0o440
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": POD_SECURITY,
        **({"runtimeClassName": settings.runtime_class} if settings.runtime_class else {}),
        **({"initContainers": list(way.containers)} if way is not None and way.containers else {}),
        "containers": [
            *((_forwarder(settings, way),) if way is not None and is_elsewhere(way) else ()),
            *(_process(settings, limits, _mounted(files)), _sidecar(settings, _mounted(files), way)),
        ],
        "volumes": [
            {"name": "data", **data},
            {"name": "files", "secret": {"secretName": name(uid), "defaultMode": private}},
            {"name": "pki", "secret": {"secretName": name(uid), "defaultMode": private, "items": keys}},
            {"name": "sidecar", "secret": {"secretName": sidecar_name(uid), "defaultMode": private}},
            *settings.sockets.volumes,
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            *(way.volumes if way is not None else ()),
        ],
    }


def _print_audit_log(spec: Json, settings: PodSettings) -> None:
    """Have a container print the audit log (Kubernetes, "Logging Architecture", streaming sidecar container).

    An init container that is restarted always: kubelet ends it when the process has ended, after its last events
    (Kubernetes, "Sidecar Containers", termination).
    """
    size, folder = (serveroptions.AUDIT_FILES + 2) * serveroptions.AUDIT_MEGABYTES, f"{HOME}/{AUDIT}"
    mount = {"name": AUDIT, "mountPath": folder}
    # Not in the volume: the next Pod would print it once more.
    spec["volumes"].append({"name": AUDIT, "emptyDir": {"sizeLimit": f"{size}Mi"}})
    next(each for each in spec["containers"] if each["name"] == PROCESS)["volumeMounts"].append(mount)
    command = [SIDECAR, f"-audit={folder}/{serveroptions.AUDIT_LOG}"]
    resources = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}
    mounts = [{**mount, "readOnly": True}]
    printing = _container(AUDIT, settings, command, resources=resources, volumeMounts=mounts, restartPolicy="Always")
    spec["initContainers"] = [*spec.get("initContainers", ()), printing]


def _container(called: str, settings: PodSettings, command: list[str], **more: object) -> Json:
    return {
        "name": called,
        "image": settings.image,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **more,
    }


def _process(settings: PodSettings, limits: HostedLimits | None, mounted: tuple[str, ...]) -> Json:
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
            *({"name": "files", "mountPath": _place(each), "subPath": each, "readOnly": True} for each in mounted),
            *settings.sockets.mounts(HOME),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the container's own
        ],
    )


def _sidecar(settings: PodSettings, mounted: tuple[str, ...], way: StoreWay | None) -> Json:
    # A snapshot of a datastore elsewhere takes the way of the process.
    kept = (hosting.SETTINGS, stores.PASSWORD_FILE) if stores.PASSWORD_FILE in mounted else (hosting.SETTINGS,)
    elsewhere = (
        {"name": "pki", "mountPath": f"{HOME}/pki", "readOnly": True},
        *settings.sockets.mounts(HOME),
    )
    return _container(
        BESIDE,
        settings,
        [
            SIDECAR,
            f"-api=:{sidecar.API_PORT}",
            f"-server=127.0.0.1:{sidecar.INTERNAL_PORT}",
            f"-tunnel=:{sidecar.TUNNEL_PORT}",
            "-keys=/keys",
            f"-sockets={settings.sockets.folder.rstrip('/')}",
            f"-names={','.join(sidecar.socket_name(each) for each in sidecar.SOCKETS)}",
            f"-reached={sidecar.socket_name(hosting.ACTIVITY)}",
            f"-keeper=:{sidecar.KEEPER_PORT}",
            *KEEPING,
        ],
        ports=[
            {"name": "https", "containerPort": sidecar.API_PORT, "protocol": "TCP"},
            {"name": "tunnel", "containerPort": sidecar.TUNNEL_PORT, "protocol": "TCP"},
            {"name": "keeper", "containerPort": sidecar.KEEPER_PORT, "protocol": "TCP"},
        ],
        resources=SIDECAR_RESOURCES,
        volumeMounts=[
            {"name": "sidecar", "mountPath": "/keys", "readOnly": True},
            *settings.sockets.mounts(),
            # For snapshots.
            {"name": "data", "mountPath": HOME},
            *({"name": "files", "mountPath": f"{HOME}/{each}", "subPath": each, "readOnly": True} for each in kept),
            *(() if way is None else elsewhere),
        ],
    )


def _forwarder(settings: PodSettings, way: StoreWay) -> Json:
    return _container(
        "store",
        settings,
        [FORWARDER, "datastore", f"{settings.sockets.folder}{way.socket}", way.address, *way.allowed],
        env=[{"name": "GOMAXPROCS", "value": "1"}],
        resources={"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        volumeMounts=list(settings.sockets.mounts()),
    )
