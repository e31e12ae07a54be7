"""What a hosted control plane is started with: certificates, flags, and the way of its outgoing connections. Pure.

    HostedPlane ─► certificates of its own authorities
                ─► settings.json ─► go/hosted: kube-apiserver, controllers, datastore (stores.py)
                ─► egress.json   ─► the gate (gate.py): every outgoing connection of the API server
                ─► admission     ─► the admission step (admission.py): requests that this process answers first

Names of files are relative to the folder of the control plane, which is the working directory of the process; only the
OpenAPI documents are elsewhere.

Sources: Kubernetes, reference of the command line tools; "Set up Konnectivity service" (egress selectors).
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Sequence

import msgspec

from tenantry.hosting import stores
from tenantry.hosting.certificates import KUBELET_CLIENT_USER, SERVER_NAMES, CertificateUse, LeafCertificate
from tenantry.hosting.stores import HostedStore

CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "service-cidr-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
)
"""The controllers that need no nodes, and that Kubernetes' conformance tests need."""

OPERATOR = "operator"
"""The identity of Tenantry inside, a member of system:masters: it must keep its rights whatever is deleted inside."""

OWNER = "owner"
"""The identity of the users inside; a binding gives it its rights, so that they can end."""

SETTINGS = "settings.json"
GATE = "gate.sock"
"""The socket of the gate; error messages of the API server quote this name."""

ADMISSION = "admission.sock"
"""The socket of the admission step."""

ACTIVITY = "activity.sock"
"""The socket on which the process reports when its clients were active last."""

_LOOPBACK = "127.0.0.1"
ADVERTISED = "192.0.2.1"
"""The address that the API server names to programs inside: of TEST-NET-1 (RFC 5737), which leads to nothing.

Programs refuse an API server that advertises loopback.
"""

_MANAGER = "kube-controller-manager"


class AdmissionOperation(enum.StrEnum):
    """What a request does (Kubernetes: "Dynamic Admission Control", request operations)."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"


class AdmissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that the admission step answers; those to subresources never are.

    Args:
        group: The API group of the resource; "" for the core group.
        resource: The plural, as in "services".
        operations: At least one.
        is_advice: Whether the step only warns, and the request is served whatever it answers. Requests of users whose
            names begin with `system:` get no advice.
    """

    group: str = ""
    resource: str
    operations: tuple[AdmissionOperation, ...] = (AdmissionOperation.CREATE, AdmissionOperation.UPDATE)
    is_advice: bool = False


class HostedLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the process of a hosted control plane may take.

    Args:
        memory_bytes: The most memory.
        cpu_millis: Its part of the CPU beside other control planes, in thousandths of a CPU.
    """

    memory_bytes: int
    cpu_millis: int


class HostedPlane(msgspec.Struct, frozen=True, kw_only=True):
    """One hosted control plane.

    Args:
        uid: Of the object that it is for; its data is kept under this name.
        name: Its name for people, unique where it runs.
        issuer: The issuer of its ServiceAccounts' tokens, a URL that no other control plane has.
        owner: The user name of the identity `OWNER`.
        names: Further DNS names and IP addresses of its API server.
        service_range: The addresses of its Services.
        admission: The requests that the admission step answers. While it does not, the API server refuses them.
        limits: What its process may take; None for no limits.
        store: Where its objects are.
    """

    uid: str
    name: str
    issuer: str
    owner: str
    names: tuple[str, ...] = ()
    service_range: str = "10.96.0.0/16"
    admission: tuple[AdmissionRule, ...] = ()
    limits: HostedLimits | None = None
    store: HostedStore = HostedStore()


def leaves(plane: HostedPlane) -> dict[str, LeafCertificate]:
    """Return every certificate of a control plane by its file name; its authorities sign nothing else."""
    first = str(next(ipaddress.ip_network(plane.service_range).hosts()))
    server = (*SERVER_NAMES, _LOOPBACK, first, *plane.names)
    return {
        "server": LeafCertificate(ca="ca", user="kube-apiserver", use=CertificateUse.SERVER, names=server),
        OPERATOR: LeafCertificate(ca="ca", user="tenantry:operator", group="system:masters"),
        OWNER: LeafCertificate(ca="ca", user=plane.owner),
        _MANAGER: LeafCertificate(ca="ca", user=f"system:{_MANAGER}"),
        # Issued again with the addresses of the nodes, as soon as there are some.
        "kubelet": kubelet(()),
        "kubelet-client": LeafCertificate(ca="ca", user=KUBELET_CLIENT_USER),
        "front-proxy-client": LeafCertificate(ca="front-proxy-ca", user="front-proxy-client"),
    }


def kubelet(addresses: Sequence[str]) -> LeafCertificate:
    """Return the certificate with which the gate answers at the addresses of nodes, in place of their kubelets."""
    names = ("localhost", *sorted(addresses))
    return LeafCertificate(ca="kubelet-ca", user="kubelet", use=CertificateUse.SERVER, names=names)


def settings(plane: HostedPlane, port: int, openapi: str, sockets: str = "") -> bytes:
    """Return the file that the process reads.

    Args:
        plane: The control plane.
        port: The port of its API server on 127.0.0.1.
        openapi: The folder with the OpenAPI documents of built-in kinds, which all control planes share.
        sockets: What the paths of sockets begin with, "" or a folder with a slash.
    """
    found: dict[str, object] = {
        "uid": plane.uid,
        "datastore": stores.settings(plane.store, plane.uid),
        "apiServer": _apiserver(plane, port),
        "controllers": _manager(plane),
        "openAPI": openapi,
        "activity": {"socket": f"{sockets}{ACTIVITY}", "ignoredUsers": [leaves(plane)[OPERATOR].user]},
    }
    if plane.admission:
        found["admission"] = {
            "socket": f"{sockets}{ADMISSION}",
            "rules": [_rule(each) for each in plane.admission if not each.is_advice],
            "advice": [_rule(each) for each in plane.admission if each.is_advice],
        }
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def _rule(rule: AdmissionRule) -> dict[str, object]:
    return {"group": rule.group, "resource": rule.resource, "operations": rule.operations}


def egress(sockets: str = "") -> bytes:
    """Return the EgressSelectorConfiguration: all connections, webhooks by URL included, go through the gate.

    Args:
        sockets: As for `settings`.
    """
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": f"{sockets}{GATE}"}}}
    found = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": name, "connection": connection} for name in ("cluster", "controlplane")],
    }
    return msgspec.json.encode(found)


def _apiserver(plane: HostedPlane, port: int) -> list[str]:
    return [
        *(f"--bind-address={_LOOPBACK}", f"--secure-port={port}"),
        *("--tls-cert-file=pki/server.crt", "--tls-private-key-file=pki/server.key"),
        *(f"--advertise-address={ADVERTISED}", "--endpoint-reconciler-type=lease"),
        "--client-ca-file=pki/ca.crt",
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        # The API server may otherwise extend a token of an hour to a year.
        *(f"--service-account-issuer={plane.issuer}", "--service-account-extend-token-expiration=false"),
        "--service-account-max-token-expiration=24h",
        *(f"--service-cluster-ip-range={plane.service_range}", "--allow-privileged", "--profiling=false"),
        *("--kubelet-client-certificate=pki/kubelet-client.crt", "--kubelet-client-key=pki/kubelet-client.key"),
        # The API server resolves other names of nodes itself.
        *("--kubelet-certificate-authority=pki/kubelet-ca.crt", "--kubelet-preferred-address-types=InternalIP"),
        "--requestheader-client-ca-file=pki/front-proxy-ca.crt",
        *("--requestheader-allowed-names=front-proxy-client", "--requestheader-extra-headers-prefix=X-Remote-Extra-"),
        *("--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User"),
        *("--proxy-client-cert-file=pki/front-proxy-client.crt", "--proxy-client-key-file=pki/front-proxy-client.key"),
        # Webhooks and aggregated APIs are reached at the pods of their Services, which the gate knows.
        *("--egress-selector-config-file=egress.json", "--enable-aggregator-routing=true"),
        # Snapshots in memory answer pages of lists until the API server sees a compaction. The datastore compacts by
        # itself, without the key that the API server watches: continue tokens would not expire.
        "--feature-gates=ListFromCacheSnapshot=false",
    ]


def _manager(plane: HostedPlane) -> list[str]:
    return [
        *(f"--kubeconfig={_MANAGER}.kubeconfig", f"--controllers={','.join(CONTROLLERS)}"),
        *("--use-service-account-credentials", "--leader-elect=false", "--secure-port=0", "--profiling=false"),
        *("--service-account-private-key-file=pki/service-account.key", "--root-ca-file=pki/ca.crt"),
        *("--cluster-signing-cert-file=pki/ca.crt", "--cluster-signing-key-file=pki/ca.key"),
        f"--service-cluster-ip-range={plane.service_range}",
        *("--kube-api-qps=200", "--kube-api-burst=400"),
    ]
