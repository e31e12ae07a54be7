"""The command line of each component of a local cluster; pure.

Source: Kubernetes, reference of the command line tools; PLATFORM.md for what was measured.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tenantry.api.errors import InputError
from tenantry.hosting import simulation, versions
from tenantry.hosting.versions import MUTATING_POLICIES
from tenantry.local.limits import ProcessLimits
from tenantry.local.paths import ClusterPaths
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import ClusterSpec

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
OPERATOR = "operator"
NAMES = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, OPERATOR)
NODE_MODULE = "tenantry.local.real.node"
STORAGE = "local-storage"
"""Runs only in clusters with real nodes."""
MACHINE_PREFIX = "machine@"
"""Begins the name of the component of a real node that serves a hosted control plane."""
ENDPOINT_PROXY = "endpoint-proxy"
"""Runs only beside hosted control planes."""
CONTROL_PLANE = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)

# It saves a tenth of etcd's CPU under load, for 20 MiB more. The API server has Go's default, as in other clusters: a
# lazy collector would keep three bytes for each byte that the policies of Tenantry take, instead of two [measured].
_LAZY_COLLECTOR = {"GOGC": "200"}
# With --watch-cache=false, an idle API server takes 125 instead of 219 MiB (137 with GOGC=30, 116 with 12); its start
# takes 1.5 s more of CPU [measured].
_EAGER_COLLECTOR = {"GOGC": "20"}
# An etcd keeps its last 10,000 writes in memory, and 5,000 more for members that are behind: one alone needs none.
_SHARED_ETCD = ("--snapshot-count=1000", "--snapshot-catchup-entries=100")

# No endpoint may name loopback, so the reconciler of the "kubernetes" Service has nothing to write.
_WITHOUT_ENDPOINT = (f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none")


class ReadinessSignal(enum.StrEnum):
    """How a component reports that it is ready."""

    NOTIFY = "notify"
    """By sd_notify(3)."""
    NOTIFY_HTTPS = "notify+https"
    """By sd_notify(3) that it listens; then by its health endpoint, once its start-up hooks have run."""
    HTTPS = "https"
    HTTP = "http"


@dataclass(frozen=True, kw_only=True)
class Component:
    """How to run one component.

    Args:
        name: One of NAMES, or the name of a real node.
        command: The program and its arguments.
        port: Its port on 127.0.0.1; 0 if it has none.
        signal: How it reports that it is ready.
        health: The path of its health endpoint.
        after: The components that must be ready before it starts.
        stop_seconds: Its grace period after SIGTERM.
        on_request: Whether it starts only on request, because it needs objects in the cluster.
        authority: The certificate of the authority of its health endpoint; None for the cluster's.
        environment: Environment variables in addition to the supervisor's.
        limits: What its process may take; None for all that the machine has.
        folder: Its working directory; None for the cluster's folder.
    """

    name: str
    command: tuple[str, ...]
    port: int
    signal: ReadinessSignal
    health: str = ""
    after: tuple[str, ...] = ()
    stop_seconds: float = 5.0
    on_request: bool = False
    authority: Path | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])
    limits: ProcessLimits | None = None
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Datastore:
    """The etcd that holds an API server's objects.

    Args:
        port: Its client port on 127.0.0.1.
        pki: The folder with its authority and with the certificate of API servers.
        prefix: Of all keys; API servers with different prefixes share no object.
    """

    port: int
    pki: Path
    prefix: str = "/registry"


def components(
    spec: ClusterSpec, paths: ClusterPaths, python: str, away: Mapping[str, bool] | None = None
) -> tuple[Component, ...]:
    """Return all components, in the order of their start.

    Args:
        spec: The cluster.
        paths: Its files.
        python: The interpreter for the operator.
        away: As for `real_nodes`.
    """
    return (
        _etcd(spec, paths),
        _apiserver(spec, paths),
        _controller_manager(spec, paths),
        _scheduler(spec, paths),
        _kwok(spec, paths),
        operator(spec, paths, python),
        *real_nodes(spec, paths, python, away),
    )


def real_nodes(
    spec: ClusterSpec, paths: ClusterPaths, python: str, away: Mapping[str, bool] | None = None
) -> tuple[Component, ...]:
    """Return the components that are real nodes, and the provisioner of their volumes.

    Args:
        spec: The cluster.
        paths: Its files.
        python: The interpreter for them.
        away: From the name of a machine that does not serve this cluster to whether it runs, for a control plane.
    """
    away = away or {}
    known = spec.real.nodes if spec.real else ()
    nodes = tuple(found for each in known if (found := _machine(paths, each.name, python, away)) is not None)
    storage = Component(
        name=STORAGE,
        command=(python, "-m", "tenantry.local.real.provisioner", str(paths.folder)),
        port=0,
        signal=ReadinessSignal.NOTIFY,
        after=(APISERVER,),
    )
    return (*nodes, storage) if known else ()


def _machine(paths: ClusterPaths, name: str, python: str, away: Mapping[str, bool]) -> Component | None:
    """Return the machine of a real node where it serves now; None while it is wiped."""
    if not away.get(name, True):
        return None
    is_away = name in away
    return Component(
        name=f"{MACHINE_PREFIX}{name}" if is_away else name,
        command=(python, "-m", NODE_MODULE, str(paths.folder), name),
        port=0,
        signal=ReadinessSignal.NOTIFY,
        # That of a tenant may sleep, and its nodes run on.
        after=() if is_away else (APISERVER,),
        # Its processes end at once, but the kernel may take a while to remove their namespaces.
        stop_seconds=20.0,
    )


def check_name(name: str, names: Collection[str] = NAMES) -> str:
    """Return the name if a component has it.

    Raises:
        InputError: No component has it; lists the names.
    """
    if name not in names:
        raise InputError(f'there is no component "{name}"; there are {", ".join(names)}')
    return name


def _program(spec: ClusterSpec, name: str) -> str:
    return str(Path(spec.binaries) / name)


def _tls(paths: ClusterPaths, name: str) -> tuple[str, str]:
    return f"--tls-cert-file={paths.pki / name}.crt", f"--tls-private-key-file={paths.pki / name}.key"


def shared_etcd(binaries: str, paths: ClusterPaths, client_port: int, peer_port: int, *, throwaway: bool) -> Component:
    """Return an etcd for many light API servers, which keeps little in memory; arguments as `etcd`."""
    alone = etcd(binaries, paths, client_port, peer_port, throwaway=throwaway)
    return replace(alone, command=(*alone.command, *_SHARED_ETCD), environment={"GOGC": "30"})


def etcd(binaries: str, paths: ClusterPaths, client_port: int, peer_port: int, *, throwaway: bool) -> Component:
    """Return an etcd of one member.

    Args:
        binaries: The folder of the programs.
        paths: The folder with its data, its certificates and its log.
        client_port: The port for API servers, on 127.0.0.1.
        peer_port: The port for other members, on 127.0.0.1.
        throwaway: Whether it may lose its data when the machine crashes.
    """
    client = f"https://{LOOPBACK}:{client_port}"
    peer = f"https://{LOOPBACK}:{peer_port}"
    pki = paths.pki
    # Access to etcd is access to everything in the cluster, and other users of this machine can open its port: it
    # accepts only client certificates of its own authority.
    certificates = [
        f"--{prefix}{flag}={pki / file}"
        for prefix in ("", "peer-")
        for flag, file in (
            ("cert-file", "etcd-server.crt"),
            ("key-file", "etcd-server.key"),
            ("trusted-ca-file", "etcd-ca.crt"),
        )
    ]
    return Component(
        name=ETCD,
        command=(
            *(str(Path(binaries) / "controlplane"), ETCD, "--name=local", f"--data-dir={paths.etcd}"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            *(f"--initial-cluster=local={peer}", "--client-cert-auth", "--peer-client-cert-auth", *certificates),
            # One member elects itself at once; the usual 1 s is for networks.
            *("--heartbeat-interval=50", "--election-timeout=250", "--log-level=warn", "--logger=zap"),
            # A week of watches would otherwise fill the disk; the API server compacts, this is for its absence.
            *("--auto-compaction-retention=1h", "--quota-backend-bytes=8589934592"),
            *(("--unsafe-no-fsync",) if throwaway else ()),
        ),
        port=client_port,
        signal=ReadinessSignal.NOTIFY,
        environment=_LAZY_COLLECTOR,
    )


def _etcd(spec: ClusterSpec, paths: ClusterPaths) -> Component:
    return etcd(spec.binaries, paths, spec.ports.etcd, spec.ports.etcd_peer, throwaway=spec.throwaway)


def apiserver(
    binaries: str, paths: ClusterPaths, port: int, datastore: Datastore, *flags: str, environment: Mapping[str, str]
) -> Component:
    """Return a kube-apiserver that needs nothing but its etcd.

    Args:
        binaries: The folder of the programs.
        paths: The folder with its certificates, its authentication configuration and its log.
        port: The port that it listens on, on 127.0.0.1.
        datastore: The etcd that holds its objects.
        flags: Further flags.
        environment: Environment variables for it.
    """
    pki = paths.pki
    return Component(
        name=APISERVER,
        command=(
            *(str(Path(binaries) / "controlplane"), APISERVER),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={port}", *_tls(paths, "server")),
            *(f"--etcd-servers=https://{LOOPBACK}:{datastore.port}", f"--etcd-prefix={datastore.prefix}"),
            f"--etcd-cafile={datastore.pki / 'etcd-ca.crt'}",
            f"--etcd-certfile={datastore.pki / 'apiserver-etcd-client.crt'}",
            f"--etcd-keyfile={datastore.pki / 'apiserver-etcd-client.key'}",
            *(f"--client-ca-file={pki / 'ca.crt'}", f"--authentication-config={paths.authentication}"),
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
            "--enable-bootstrap-token-auth",
            f"--service-account-key-file={pki / 'service-account.pub'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={SERVICE_RANGE}"),
            *("--allow-privileged", "--profiling=false"),
            *flags,
        ),
        port=port,
        signal=ReadinessSignal.NOTIFY_HTTPS,
        health="/readyz",
        # It does not end while watches are open, even after SIGTERM [measured]; ending it by force loses nothing.
        stop_seconds=2.0,
        environment=dict(environment),
    )


def light_apiserver(
    binaries: str,
    paths: ClusterPaths,
    port: int,
    datastore: Datastore,
    *,
    watch_cache: bool,
    max_watch_seconds: int | None = None,
) -> Component:
    """Return a kube-apiserver of about 120 MB, for clusters that consist of nothing else; arguments as `apiserver`.

    Args:
        binaries: The folder of the programs.
        paths: The folder of its files.
        port: The port that it listens on, on 127.0.0.1.
        datastore: The etcd that it shares with others, and its own prefix there.
        watch_cache: Whether it caches what is watched; needed only for many watches of one server.
        max_watch_seconds: The longest time for which a watch stays open; None for the default of the program.
    """
    bound = () if max_watch_seconds is None else (f"--max-watch-seconds={max_watch_seconds}",)
    flags = (*_WITHOUT_ENDPOINT, f"--watch-cache={str(watch_cache).lower()}", *bound)
    return apiserver(binaries, paths, port, datastore, *flags, environment=_EAGER_COLLECTOR)


def _apiserver(spec: ClusterSpec, paths: ClusterPaths) -> Component:
    pki = paths.pki
    flags = (
        *_advertised(spec),
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        *("--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User"),
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
    )
    datastore = Datastore(port=spec.ports.etcd, pki=pki)
    return apiserver(spec.binaries, paths, spec.ports.apiserver, datastore, *flags, environment={})


def _advertised(spec: ClusterSpec) -> tuple[str, ...]:
    if spec.real is None:
        return _WITHOUT_ENDPOINT
    # This machine has no kube-proxy: webhooks are reached at their pods and not at the address of their Service.
    return f"--advertise-address={NodeAddresses(spec.real.block).bridge}", "--enable-aggregator-routing=true"


def slim_controller_manager(spec: ClusterSpec, paths: ClusterPaths, names: Sequence[str]) -> Component:
    """Return a kube-controller-manager that runs these controllers only, with a small heap."""
    return replace(_controller_manager(spec, paths, names), environment=_EAGER_COLLECTOR)


# tokencleaner, off by default, deletes expired bootstrap tokens of joining nodes.
def _controller_manager(
    spec: ClusterSpec, paths: ClusterPaths, names: Sequence[str] = ("*", "tokencleaner")
) -> Component:
    own = paths.kubeconfig(CONTROLLER_MANAGER)
    pki = paths.pki
    return Component(
        name=CONTROLLER_MANAGER,
        command=(
            *(_program(spec, "controlplane"), CONTROLLER_MANAGER, f"--kubeconfig={own}"),
            *(f"--authentication-kubeconfig={own}", f"--authorization-kubeconfig={own}"),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={spec.ports.controller_manager}", *_tls(paths, "server")),
            f"--controllers={','.join(names)}",
            # An identity for each controller, so that policies can tell them apart.
            *("--use-service-account-credentials", "--leader-elect=false", "--profiling=false"),
            f"--service-account-private-key-file={pki / 'service-account.key'}",
            *(f"--root-ca-file={pki / 'ca.crt'}", f"--service-cluster-ip-range={SERVICE_RANGE}"),
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            # The defaults (20 and 30) make a quota take seconds once there are hundreds [measured].
            *("--kube-api-qps=1000", "--kube-api-burst=2000"),
            *("--concurrent-namespace-syncs=50", "--concurrent-gc-syncs=40", "--concurrent-resource-quota-syncs=20"),
        ),
        port=spec.ports.controller_manager,
        signal=ReadinessSignal.HTTPS,
        health="/healthz",
        after=(APISERVER,),
        # Its garbage collector and its quotas look for new kinds only at their start, and every 30 s after that: `up`
        # starts it when Tenantry's kinds are there.
        on_request=True,
    )


def _scheduler(spec: ClusterSpec, paths: ClusterPaths) -> Component:
    own = paths.kubeconfig(SCHEDULER)
    return Component(
        name=SCHEDULER,
        command=(
            *(_program(spec, "controlplane"), SCHEDULER, f"--kubeconfig={own}"),
            *(f"--authentication-kubeconfig={own}", f"--authorization-kubeconfig={own}"),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={spec.ports.scheduler}", *_tls(paths, "server")),
            *("--leader-elect=false", "--profiling=false", "--kube-api-qps=1000", "--kube-api-burst=2000"),
        ),
        port=spec.ports.scheduler,
        signal=ReadinessSignal.HTTPS,
        health="/readyz",
        after=(APISERVER,),
    )


def _kwok(spec: ClusterSpec, paths: ClusterPaths) -> Component:
    own = simulator(spec.binaries, paths.kubeconfig(KWOK), spec.ports.kwok)
    return replace(own, name=KWOK, after=(APISERVER,), on_request=True)


def simulator(binaries: str, kubeconfig: Path, port: int) -> Component:
    """Return the program that simulates the nodes of one API server.

    Args:
        binaries: The folder of the programs.
        kubeconfig: Of the API server.
        port: Its own port, on 127.0.0.1.
    """
    return Component(
        name=KWOK,
        command=(
            *(str(Path(binaries) / "kwok"), f"--kubeconfig={kubeconfig}"),
            f"--config={Path(binaries) / 'kwok-stages.yaml'}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={simulation.MARK}={simulation.MARKED}",
            *("--node-lease-duration-seconds=40", f"--server-address={LOOPBACK}:{port}"),
        ),
        port=port,
        signal=ReadinessSignal.HTTP,
        health="/healthz",
    )


def operator(spec: ClusterSpec, paths: ClusterPaths, python: str) -> Component:
    """Return the operator; that of a light peer runs no control planes, which need a supervisor of their own."""
    return Component(
        name=OPERATOR,
        command=(
            *(python, "-m", "tenantry", "operator", f"--kubeconfig={paths.kubeconfig(OPERATOR)}"),
            f"--metrics-address={LOOPBACK}:{spec.ports.operator}",
            *((f"--tunnel-address={LOOPBACK}:{spec.ports.tunnel}",) if spec.ports.tunnel else ()),
            *((f"--webhook-address={LOOPBACK}:{spec.ports.webhook}",) if _has_webhook(spec) else ()),
            *(() if spec.supervised_by else (f"--hosted-in={paths.folder}",)),
        ),
        port=spec.ports.operator,
        signal=ReadinessSignal.HTTP,
        health="/healthz",
        after=(APISERVER,),
        on_request=True,
    )


def _has_webhook(spec: ClusterSpec) -> bool:
    """Return whether the API server has no mutating policies."""
    return bool(spec.kubernetes and spec.ports.webhook) and versions.is_before(spec.kubernetes, MUTATING_POLICIES)
