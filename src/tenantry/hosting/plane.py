"""What a hosted control plane is started with: certificates, flags, and the way of its outgoing connections. Pure.

    HostedPlane ─► certificates of its own authorities
                ─► settings.json ─► go/hosted: kube-apiserver, controllers, datastore (stores.py)
                ─► egress.json   ─► the gate (gate.py): every outgoing connection of the API server
                ─► admission     ─► the admission step (admission.py): requests that this process answers first
                ─► forwarded     ─► reads of an API group that this process answers (forwarding.py)

Names of files are relative to the folder of the control plane, which is the working directory of the process; only the
OpenAPI documents are elsewhere.

Sources: Kubernetes, reference of the command line tools; "Set up Konnectivity service" (egress selectors).
"""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
from collections.abc import Sequence

import msgspec

from tenantry.api.clusterguards import ClusterGuard
from tenantry.api.planecredentials import RotationPhase
from tenantry.api.planehosting import PlaneHosting
from tenantry.hosting import encryption, guards, planecontrollers, serveroptions, simulation, stores
from tenantry.hosting.certificates import KUBELET_CLIENT_USER, SERVER_NAMES, CertificateUse, LeafCertificate
from tenantry.hosting.encryption import PlaneKeys
from tenantry.hosting.noderuntime import DNS_USER, STORAGE_USER
from tenantry.hosting.serveroptions import ServerOptions
from tenantry.hosting.stores import HostedStore

SIMULATOR = "simulator"
"""The identity of the program that simulates nodes, where the place has one: a member of system:masters, too."""

STORAGE = "storage"
"""The identity of what provisions volumes on real nodes, where the place has some."""

MASTERS = "system:masters"
"""The group whose rights nothing inside can take."""

OPERATOR = "operator"
"""The identity of Tenantry inside, a member of system:masters: it must keep its rights whatever is deleted inside."""

OWNER = "owner"
"""The identity of the users inside; a binding gives it its rights, so that they can end."""

USERS_CA = "users-ca"
"""The authority of the users' certificate, and of those that are requested inside: both end when it is replaced."""

NODES_CA = "ca"
"""The authority of the certificates of nodes: that of the API server, as in other clusters.

Kubelets and the API server then need no further authority, and a rotation of it includes them.
"""

SIGNED_HOURS = 720
"""The longest life of a certificate that is requested inside, in hours: a machine that has left keeps its key."""

_SIGNING = (*(f"--cluster-signing-cert-file=pki/{USERS_CA}.crt", f"--cluster-signing-key-file=pki/{USERS_CA}.key"),)

TRUSTED = "trusted.crt"
"""The file with the authorities of the API server: the current one, and former ones until their overlap is over."""

CLIENTS = "clients.crt"
"""The file with the authorities of the API server's clients."""

FORMER_CLIENTS = "clients-before.crt"
"""The file with those of them that are being replaced, whose clients the process reports."""

FRONT_PROXY = "front-proxy-trusted.crt"
"""The file with the authorities of the API server as the client of aggregated APIs."""

MOST_TOKEN_HOURS = 24
"""The longest life of a ServiceAccount's token."""

OVERLAP = dt.timedelta(hours=MOST_TOKEN_HOURS + 1)
"""How long a former authority of the API server is trusted, and a former key of tokens verifies them."""

IN_OVERLAP = ("server",)
"""Certificates of a former authority that are used until its overlap is over: pods that run trust only that one."""

SETTINGS = "settings.json"
GATE = "gate.sock"
"""The socket of the gate; error messages of the API server quote this name."""

ADMISSION = "admission.sock"
"""The socket of the admission step."""

FORWARDED = "forwarded.sock"
"""The socket of the API group that this process answers."""

ACTIVITY = "activity.sock"
"""The socket on which the process reports when its clients were active last."""

_LOOPBACK = "127.0.0.1"
ADVERTISED = "192.0.2.1"
"""The address that the API server names to programs inside: of TEST-NET-1 (RFC 5737), which leads to nothing.

Programs refuse an API server that advertises loopback.
"""

ADVERTISED_6 = "2001:db8::1"
"""The same in IPv6: an address for documentation (RFC 3849)."""

_IPV4 = 4
_OFF = ("ListFromCacheSnapshot=false", "UnknownVersionInteroperabilityProxy=false")
MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
_OF_NODES = {
    SCHEDULER: LeafCertificate(ca="ca", user=f"system:{SCHEDULER}"),
    SIMULATOR: LeafCertificate(ca="ca", user=simulation.USER, group=MASTERS),
    STORAGE: LeafCertificate(ca="ca", user=STORAGE_USER),
}

LEASE_SECONDS = 8
"""How long the controllers of a process that has ended are missed, if another one runs."""

_ELECTED = (
    *("--leader-elect=true", f"--leader-elect-lease-duration={LEASE_SECONDS}s"),
    *("--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=2s"),
)
# The first process alone keeps the endpoints of the Service `kubernetes`: each would write the port of its own.
_FURTHER = ("--endpoint-reconciler-type=none",)


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


class ForwardedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of an API group that this process answers.

    Args:
        name: The plural, as in "pods".
        kind: As in "PodMetrics".
        namespaced: Whether its objects are in namespaces.
    """

    name: str
    kind: str
    namespaced: bool = False


class ForwardedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """An API group whose reads this process answers, while there is an APIService without a Service for it.

    Args:
        group: As in "metrics.k8s.io".
        version: As in "v1beta1".
        resources: Its kinds, at least one.
    """

    group: str
    version: str
    resources: tuple[ForwardedResource, ...]


class HostedLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the process of a hosted control plane may take.

    Args:
        memory_bytes: The most memory.
        cpu_millis: Its part of the CPU beside other control planes, in thousandths of a CPU.
    """

    memory_bytes: int
    cpu_millis: int


class CredentialGenerations(msgspec.Struct, frozen=True, kw_only=True):
    """How often the credentials of a control plane were replaced; any other number replaces them once more.

    Args:
        users: The credentials of the users, and the certificates that were requested inside.
        authorities: All other authorities, and the key of ServiceAccounts' tokens.
        phase: Preparing: the next authorities are trusted, too. Issuing: those of before are. Empty: none of both.
        encryption: The key with which it stores; see `HostedPlane.encryption`.
    """

    users: int = 0
    authorities: int = 0
    encryption: int = 0
    phase: RotationPhase = RotationPhase.NONE


class PlaneOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a group that is an administrator inside.

    Args:
        kind: User or Group.
        name: As the API server knows it.
    """

    kind: str
    name: str


class HostedPlane(msgspec.Struct, frozen=True, kw_only=True):
    """One hosted control plane.

    Args:
        uid: Of the object that it is for; its data is kept under this name.
        name: Its name for people, unique where it runs.
        issuer: The issuer of its ServiceAccounts' tokens, a URL that no other control plane has.
        former_issuers: Issuers whose tokens are accepted, too.
        owner: The user name of the identity `OWNER`.
        names: Further DNS names and IP addresses of its API server.
        service_range: The addresses of its Services; for two families, the primary one, a comma and the other one.
        pod_range: The addresses of its pods, of which its controllers give each node a part; "" if others do.
        domain: The DNS domain of its Services.
        host: The DNS name by which users reach it; "" for its address.
        port: The port at which they do; 0 for any.
        owners: Further users and groups that are its administrators, as RBAC names them.
        admission: The requests that the admission step answers. While it does not, the API server refuses them.
        forwarded: The API group whose reads this process answers; None for none.
        limits: What its process may take; None for no limits.
        store: Where its objects are.
        version: The minor version of Kubernetes, as in "1.36"; "" for the default.
        emulates: The minor version before it that its process behaves as; "" for its own.
        replicas: How many processes it has. More than one share a datastore that is not a file.
        credentials: Which of its credentials are valid.
        options: Settings of its API server.
        has_nodes: Whether nodes join it, so that it has a scheduler and the controllers `OF_NODES`.
        advertised: The address at which real nodes and their pods reach the port of its process; "" if none do.
        hosting: Where its process has to run.
        is_sandboxed: Whether its Pods need a sandbox.
        runtime_class: The RuntimeClass of this sandbox; "" if the host has none.
        guards: Those in force; none with a version that `guards.obstacle` names.
        encryption: The keys of what it stores; None to store it as it is.
    """

    uid: str
    name: str
    issuer: str
    owner: str
    former_issuers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    service_range: str = "10.96.0.0/16"
    pod_range: str = ""
    domain: str = "cluster.local"
    host: str = ""
    port: int = 0
    owners: tuple[PlaneOwner, ...] = ()
    admission: tuple[AdmissionRule, ...] = ()
    forwarded: ForwardedGroup | None = None
    limits: HostedLimits | None = None
    store: HostedStore = HostedStore()
    version: str = ""
    emulates: str = ""
    replicas: int = 1
    credentials: CredentialGenerations = CredentialGenerations()
    options: ServerOptions = ServerOptions()
    has_nodes: bool = False
    advertised: str = ""
    hosting: PlaneHosting = PlaneHosting.AUTO
    is_sandboxed: bool = False
    runtime_class: str = ""
    guards: tuple[ClusterGuard, ...] = ()
    encryption: PlaneKeys | None = None


def leaves(plane: HostedPlane) -> dict[str, LeafCertificate]:
    """Return every certificate of a control plane by its file name. Two authorities sign requests inside, too."""
    # Kubernetes gives the first address to the Service of the API server, in its primary family.
    first = str(_primary(plane)[1])
    names = dict.fromkeys((*SERVER_NAMES, f"kubernetes.default.svc.{plane.domain}"))
    server = (*names, _LOOPBACK, first, *plane.names, *((plane.host,) if plane.host not in ("", *names) else ()))
    return {
        "server": LeafCertificate(ca="ca", user="kube-apiserver", use=CertificateUse.SERVER, names=server),
        OPERATOR: LeafCertificate(ca="ca", user="tenantry:operator", group=MASTERS),
        OWNER: LeafCertificate(ca=USERS_CA, user=plane.owner),
        MANAGER: LeafCertificate(ca="ca", user=f"system:{MANAGER}"),
        # Issued again with the addresses of the nodes, as soon as there are some.
        "kubelet": kubelet(()),
        "kubelet-client": LeafCertificate(ca="ca", user=KUBELET_CLIENT_USER),
        "front-proxy-client": LeafCertificate(ca="front-proxy-ca", user="front-proxy-client"),
        **(_OF_NODES if plane.has_nodes else {}),
    }


def in_files(plane: HostedPlane) -> tuple[str, ...]:
    """Return the identities of the parts of the process, each of which reads a kubeconfig NAME.kubeconfig."""
    return (MANAGER, SCHEDULER) if plane.has_nodes else (MANAGER,)


def _primary(plane: HostedPlane) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(plane.service_range.partition(",")[0])


def generations(plane: HostedPlane) -> dict[str, int]:
    """Return the wanted generation of each authority, and of the key of tokens, by file name."""
    wanted = plane.credentials
    authorities = {leaf.ca: wanted.authorities for leaf in leaves(plane).values()}
    return {**authorities, "service-account": wanted.authorities, USERS_CA: wanted.users}


def kubelet(addresses: Sequence[str]) -> LeafCertificate:
    """Return the certificate with which the gate answers at the addresses of nodes, in place of their kubelets."""
    names = ("localhost", *sorted(addresses))
    return LeafCertificate(ca="kubelet-ca", user="kubelet", use=CertificateUse.SERVER, names=names)


def settings(
    plane: HostedPlane,
    port: int,
    openapi: str,
    former_keys: Sequence[str] = (),
    *,
    sockets: str = "",
    is_further: bool = False,
    prebuilt: str = "",
    folder_of_keys: str = "",
) -> bytes:
    """Return the file that the process reads.

    Args:
        plane: The control plane.
        port: The port of its API server on 127.0.0.1.
        openapi: The folder with the OpenAPI documents of built-in kinds, which all control planes share.
        former_keys: The names of further files in the folder pki with keys that verify tokens.
        sockets: What the paths of sockets begin with, "" or a folder with a slash.
        is_further: Whether another process of the same control plane is the first.
        prebuilt: As for `stores.settings`; all control planes share the file.
        folder_of_keys: What the path of `encryption.FILE` begins with, "" or a folder with a slash.
    """
    keys = [f"--service-account-key-file=pki/{name}" for name in former_keys]
    if plane.encryption is not None:
        keys.append(f"--encryption-provider-config={folder_of_keys}{encryption.FILE}")
    found: dict[str, object] = {
        "uid": plane.uid,
        "datastore": stores.settings(plane.store, plane.uid, plane.replicas, prebuilt, sockets=sockets),
        "apiServer": [*_apiserver(plane, port), *keys, *(_FURTHER if is_further else ())],
        "controllers": _manager(plane),
        "openAPI": openapi,
        "activity": {"socket": f"{sockets}{ACTIVITY}", "ignoredUsers": _ignored(plane), **_reported(plane)},
    }
    if plane.has_nodes:
        found["scheduler"] = _scheduler(plane)
    if plane.encryption is not None and plane.encryption.is_mixed:
        # Everything is stored under the first key before the API server serves.
        found["encrypted"] = f"{folder_of_keys}{encryption.FILE}"
    if plane.guards:
        found["guarded"] = True
    if plane.admission:
        found["admission"] = {
            "socket": f"{sockets}{ADMISSION}",
            "rules": [_rule(each) for each in plane.admission if not each.is_advice],
            "advice": [_rule(each) for each in plane.admission if each.is_advice],
        }
    if plane.forwarded is not None:
        found["forwarded"] = [{"socket": f"{sockets}{FORWARDED}", **msgspec.structs.asdict(plane.forwarded)}]
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def _reported(plane: HostedPlane) -> dict[str, str]:
    """Return the file with authorities whose clients the process reports."""
    is_issuing = plane.credentials.phase is RotationPhase.ISSUING
    return {"formerAuthorities": f"pki/{FORMER_CLIENTS}"} if is_issuing else {}


def _ignored(plane: HostedPlane) -> list[str]:
    """Return the users that are no clients."""
    names = (OPERATOR, SCHEDULER, SIMULATOR, STORAGE) if plane.has_nodes else (OPERATOR,)
    known = leaves(plane)
    # Nodes are known by their group (go/hosted/internal/activity).
    return [*(known[name].user for name in names), *((DNS_USER,) if plane.has_nodes else ())]


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
        # Of the primary family of Services, without which the API server does not start.
        f"--advertise-address={plane.advertised or (ADVERTISED if _primary(plane).version == _IPV4 else ADVERTISED_6)}",
        "--endpoint-reconciler-type=lease",
        f"--client-ca-file=pki/{CLIENTS}",
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        # The API server may otherwise extend a token of an hour to a year.
        *(f"--service-account-issuer={each}" for each in (plane.issuer, *plane.former_issuers)),
        "--service-account-extend-token-expiration=false",
        # By default, it has the address above, which leads to nothing.
        f"--service-account-jwks-uri={plane.issuer.rstrip('/')}/openid/v1/jwks",
        f"--service-account-max-token-expiration={MOST_TOKEN_HOURS}h",
        *(f"--service-cluster-ip-range={plane.service_range}", "--allow-privileged", "--profiling=false"),
        *("--kubelet-client-certificate=pki/kubelet-client.crt", "--kubelet-client-key=pki/kubelet-client.key"),
        # The API server resolves other names of nodes itself.
        *(f"--kubelet-certificate-authority=pki/{_kubelets(plane)}", "--kubelet-preferred-address-types=InternalIP"),
        *(("--enable-bootstrap-token-auth",) if plane.has_nodes else ()),
        f"--requestheader-client-ca-file=pki/{FRONT_PROXY}",
        *("--requestheader-allowed-names=front-proxy-client", "--requestheader-extra-headers-prefix=X-Remote-Extra-"),
        *("--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User"),
        *("--proxy-client-cert-file=pki/front-proxy-client.crt", "--proxy-client-key-file=pki/front-proxy-client.key"),
        # Webhooks and aggregated APIs are reached at the pods of their Services, which the gate knows.
        *("--egress-selector-config-file=egress.json", "--enable-aggregator-routing=true"),
        # The cache of watches wakes once a second for each kind. Here, a few clients watch a few objects.
        "--watch-cache=false",
        # Snapshots in memory answer pages of lists until the API server sees a compaction. The datastore compacts by
        # itself, without the key that the API server watches: continue tokens would not expire.
        # API servers of several versions would tell each other every ten seconds what they serve.
        # The controllers and the scheduler have the same ones.
        f"--feature-gates={_features(plane)}",
        # Its controllers and its scheduler follow.
        *((f"--emulated-version=kube={plane.emulates}",) if plane.emulates else ()),
        *(*guards.flags(plane.guards), *serveroptions.flags(plane.options)),
    ]


def _features(plane: HostedPlane) -> str:
    wanted = (f"{each}=true" for each in plane.options.feature_gates)
    return f"{','.join((*_OFF, *wanted))}{guards.gate(plane.guards)}"


def _manager(plane: HostedPlane) -> list[str]:
    chosen = planecontrollers.of(has_nodes=plane.has_nodes, gives_ranges=_allocates(plane))
    return [
        *(
            f"--kubeconfig={MANAGER}.kubeconfig",
            f"--controllers={','.join(chosen)}",
        ),
        *("--use-service-account-credentials", "--secure-port=0", "--profiling=false"),
        *(("--leader-elect=false",) if plane.replicas == 1 else _ELECTED),
        *("--service-account-private-key-file=pki/service-account.key", f"--root-ca-file=pki/{TRUSTED}"),
        *(_signing() if plane.has_nodes else _SIGNING),
        f"--service-cluster-ip-range={plane.service_range}",
        *(("--allocate-node-cidrs=true", f"--cluster-cidr={plane.pod_range}") if _allocates(plane) else ()),
        *("--kube-api-qps=200", "--kube-api-burst=400"),
    ]


def _allocates(plane: HostedPlane) -> bool:
    return plane.has_nodes and bool(plane.pod_range)


def _kubelets(plane: HostedPlane) -> str:
    """Return the file with the authorities of the servers that kubelets are; without nodes, the gate plays them."""
    return TRUSTED if plane.has_nodes else "kubelet-ca.crt"


def _signing() -> list[str]:
    """Return the authority of each signer: certificates of nodes must not end when those of the users are replaced."""
    signers = {
        "kubelet-client": NODES_CA,
        "kubelet-serving": NODES_CA,
        "kube-apiserver-client": USERS_CA,
        "legacy-unknown": USERS_CA,
    }
    files = [
        f"--cluster-signing-{signer}-{flag}-file=pki/{authority}.{kind}"
        for signer, authority in signers.items()
        for flag, kind in (("cert", "crt"), ("key", "key"))
    ]
    return [*files, f"--cluster-signing-duration={SIGNED_HOURS}h"]


def _scheduler(plane: HostedPlane) -> list[str]:
    return [
        *(f"--kubeconfig={SCHEDULER}.kubeconfig", "--secure-port=0", "--profiling=false"),
        *(("--leader-elect=false",) if plane.replicas == 1 else _ELECTED),
        *("--kube-api-qps=200", "--kube-api-burst=400"),
    ]
