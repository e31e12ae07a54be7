"""The configuration of the programs of a node; pure. Paths are as the node sees them: `init` mounts its folders there.

Source: containerd, docs/cri/config.md; Kubernetes, kubelet.config.k8s.io/v1beta1 and kubeproxy.config.k8s.io/v1alpha1.
"""

from __future__ import annotations

import json

import msgspec

from tenantry.api.model import Json
from tenantry.api.planenetwork import DEFAULT_DOMAIN
from tenantry.local.real import volumes
from tenantry.local.real.network import DNS_ADDRESS, NodeAddresses

PAUSE = "tenantry.local/pause:1"
"""The image of the container that holds a pod's namespaces."""
HOME = "/run/tenantry"
"""The folder of a node's configuration and programs, in its own mount namespace."""
BINARIES = f"{HOME}/bin"
KUBE = f"{HOME}/kube"
"""The folder of kubelet and kube-proxy of another version than that of all nodes."""
CONFIGURATION = f"{HOME}/node"
SCRIPTS = f"{CONFIGURATION}/scripts"
"""Our own CNI plugins, which are scripts."""
SOCKET = "/run/containerd/containerd.sock"
AGENT = "netpol-agent"
"""What puts NetworkPolicies in force on each node."""
POD_INTERFACES = "veth*"
"""Where a node's pods are, as nft reads it."""
TUNNEL = "node-tunnel"
"""The agent of a node from outside, which keeps its tunnel to the control plane open."""
CLEANER = "node-agent"
"""The agent that removes what one tenant left on a node before the next one gets it."""
SERVICES_PORT = 10253
"""The port on which the agent of a joined node serves kube-proxy; each node has a loopback interface of its own."""
AUTHORITY = "ca.crt"
"""The file in CONFIGURATION with the authorities of the clients of the kubelet."""
SERVERS_AUTHORITY = "servers-ca.crt"
SERVERS = f"{CONFIGURATION}/{SERVERS_AUTHORITY}"
"""The file with the authorities of the API server, on a machine that serves a control plane."""
JOINED = "/var/lib/kubelet/kubeconfig"
"""The kubeconfig that the kubelet of a joined node writes when it has its certificate."""
PINNED = "--label=io.cri-containerd.pinned=pinned"
"""Marks the node's own images, which no registry has: neither the kubelet nor the cleaner removes them."""
COVERED = ("/run", "/var/lib")
"""The folders that each node has for itself, in place of the machine's."""
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""From a file below /proc/sys to the value that a kubelet wants there.

A kubelet writes these values, and they would hold for the whole machine, also after the node has ended. Therefore each
node has files of its own there: the kubelet finds what it wants, and the machine keeps its values.

Source: k8s.io/kubernetes, pkg/kubelet/cm, `setupKernelTunables`.
"""
FOLDERS = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "log": "/var/log",
    "volumes": volumes.PLACE,
    "node": CONFIGURATION,
}
"""From a folder below the node's folder to where the node sees it."""

# The kernel may not support these, or they would write outside of the node's folders.
_PLUGINS_OFF = (
    *("io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper"),
    *("io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs"),
    *("io.containerd.snapshotter.v1.blockfile", "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"),
    *("io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"),
)


def coredns_image(fingerprint: str) -> str:
    """Return the reference of the image of CoreDNS with a build fingerprint."""
    return f"tenantry.local/coredns:{fingerprint}"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node.

    Args:
        name: Its name in the cluster.
        number: From 1 to network.MAX_NODES; its addresses follow from it.
        block: The cluster's addresses.
        cluster: The `network.identity` of the cluster whose machine it is; its cgroups have this name.
        memory_reserved_mib: The part of the machine's memory that the node may not use.
        token: The token with which its kubelet requests a certificate; "" if it is given one.
        plane: The uid of the hosted control plane that it serves; "" for the cluster itself.
        bridge: The name of the bridge that it is plugged into; "" for that of the cluster.
        dns: The address of the cluster's DNS.
        is_outside: It was contributed to the control plane, whose gate reaches it through a tunnel only.
        domain: The DNS domain of the cluster.
        kube: The folder of kubelet and kube-proxy, if they are not those of all nodes.
    """

    name: str
    number: int
    block: int
    cluster: str
    memory_reserved_mib: int = 0
    token: str = ""
    plane: str = ""
    bridge: str = ""
    dns: str = DNS_ADDRESS
    is_outside: bool = False
    domain: str = DEFAULT_DOMAIN
    kube: str = ""

    def kubeconfig(self, program: str) -> str:
        """Return the path of a program's kubeconfig; on a joined node, programs use the node's identity."""
        return JOINED if self.token else f"{CONFIGURATION}/{program}.kubeconfig"

    @property
    def has_own_view(self) -> bool:
        """Return whether it reads only its own view of the cluster: that of a contributor shows no other tenants."""
        return bool(self.token) and not self.plane

    @property
    def addresses(self) -> NodeAddresses:
        """The cluster's addresses."""
        return NodeAddresses(self.block)


_SERVICES = "services.kubeconfig"
_SERVING = {"tlsCertFile": f"{CONFIGURATION}/kubelet.crt", "tlsPrivateKeyFile": f"{CONFIGURATION}/kubelet.key"}
_JOINED_SERVING = {"serverTLSBootstrap": True, "rotateCertificates": True}


def texts(settings: NodeSettings) -> dict[str, str]:
    """Return the configuration files of a node by name, except certificates and kubeconfigs."""
    services = {_SERVICES: json.dumps(_services(), indent=2)} if settings.has_own_view else {}
    return {
        **services,
        "containerd.toml": _containerd(),
        "runsc.toml": f'binary_name = "{BINARIES}/runsc"\n[runsc_config]\nplatform = "systrap"\n',
        "cni/10-pods.conflist": json.dumps(_cni(settings), indent=2),
        "kubelet.json": json.dumps(_kubelet(settings), indent=2),
        "kube-proxy.json": json.dumps(_proxy(settings), indent=2),
    }


def _containerd() -> str:
    off = ", ".join(f"'{name}'" for name in _PLUGINS_OFF)
    cri = "plugins.'io.containerd.cri.v1"
    return f"""version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []
disabled_plugins = [{off}]
required_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images']
[grpc]
address = '{SOCKET}'
[{cri}.images']
snapshotter = 'overlayfs'
[{cri}.images'.pinned_images]
sandbox = '{PAUSE}'
[{cri}.runtime']
disable_apparmor = true
restrict_oom_score_adj = true
[{cri}.runtime'.cni]
bin_dirs = ['{BINARIES}', '{SCRIPTS}']
conf_dir = '{CONFIGURATION}/cni'
[{cri}.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{cri}.runtime'.containerd.runtimes.runc.options]
BinaryName = '{BINARIES}/runc'
[{cri}.runtime'.containerd.runtimes.runsc]
runtime_type = 'io.containerd.runsc.v1'
[{cri}.runtime'.containerd.runtimes.runsc.options]
TypeUrl = 'io.containerd.runsc.v1.options'
ConfigPath = '{CONFIGURATION}/runsc.toml'
"""


def _cni(settings: NodeSettings) -> Json:
    pods = settings.addresses.pods_of(settings.number)
    # Each pod has a veth pair of its own, not one bridge with all others: so the agent can compare the source of each
    # packet with the one address of its interface (tenantry.world.netpol.compile), and no pod can answer for another.
    cable = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            # Addresses are kept no longer than the node lives, because its pods end with it.
            "dataDir": "/run/cni",
        },
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            cable,
            {"type": "shaping", "capabilities": {"bandwidth": True}},
            {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"},
        ],
    }


def _kubelet(settings: NodeSettings) -> Json:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIGURATION}/{AUTHORITY}"},
        },
        "authorization": {"mode": "Webhook"},
        **(_JOINED_SERVING if settings.token else _SERVING),
        "clusterDNS": [settings.dns],
        "clusterDomain": settings.domain,
        # Nodes cannot reach the machine's own DNS servers.
        "resolvConf": "",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "enforceNodeAllocatable": ["pods"],
        "volumePluginDir": "/var/lib/kubelet/plugins",
        # The node shares the machine's disk: the kubelet must not remove images because the machine is full.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # A fork bomb in a pod must not exhaust the processes of the machine.
        "podPidsLimit": 4096,
        "systemReserved": {"memory": f"{settings.memory_reserved_mib}Mi"},
        "serializeImagePulls": False,
        # A pod needs its own credentials for an image that another pod pulled; `up` declares it in TenancyDefaults.
        "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
        "nodeStatusUpdateFrequency": "5s",
        # The kubelet would end if it may not lower its OOM score (no CAP_SYS_RESOURCE).
        "oomScoreAdj": 0,
    }


def _proxy(settings: NodeSettings) -> Json:
    own = f"{CONFIGURATION}/{_SERVICES}" if settings.has_own_view else settings.kubeconfig("kube-proxy")
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": own},
        "mode": "nftables",
        "clusterCIDR": settings.addresses.pods,
        "detectLocalMode": "ClusterCIDR",
        "oomScoreAdj": 0,
        # These settings belong to the machine: a node must not change them.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        "nodePortAddresses": [settings.addresses.nodes],
    }


def _services() -> Json:
    """Return the kubeconfig of the kube-proxy of a joined node, which reads only the node's own view."""
    server = {"server": f"http://127.0.0.1:{SERVICES_PORT}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": AGENT, "cluster": server}],
        "contexts": [{"name": AGENT, "context": {"cluster": AGENT, "user": ""}}],
        "current-context": AGENT,
    }
