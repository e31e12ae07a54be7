"""The spec of a local cluster, stored in its folder as `cluster.json`."""

from __future__ import annotations

import enum

import msgspec

from tenantry.api.errors import LocalError
from tenantry.local.authentication import Oidc
from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.real.network import NodeAddresses
from tenantry.local.real.settings import NodeSettings


class Ports(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The loopback ports of one cluster."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int
    operator: int
    tunnel: int = 0
    """Where peers open tunnels; 0 for nowhere."""
    webhook: int = 0
    """Where the operator serves mutations to an API server without mutating policies."""


class RealNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One real node: its name, and the number from which its addresses follow.

    Args:
        name: Its name.
        number: From 1 on.
        token: The bootstrap token that it joined with; "" if its certificate is issued on this machine.
    """

    name: str
    number: int
    token: str = ""


class RealNodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The real nodes of a cluster.

    Args:
        block: The second number of their addresses, 10.BLOCK.0.0/16.
        binaries: The folder of the programs of nodes.
        memory_reserved_mib: The part of the machine's memory that each leaves to the others.
        nodes: The nodes.
    """

    block: int
    binaries: str
    memory_reserved_mib: int
    nodes: tuple[RealNode, ...] = ()

    def node(self, name: str, cluster: str) -> NodeSettings | None:
        """Return the settings of a node, None if there is none of this name."""
        found = next((each for each in self.nodes if each.name == name), None)
        if found is None:
            return None
        return NodeSettings(
            name=name,
            number=found.number,
            block=self.block,
            cluster=cluster,
            memory_reserved_mib=self.memory_reserved_mib,
            token=found.token,
        )

    def addressed(self) -> tuple[tuple[str, str], ...]:
        """Return name and IP address of each whose certificate is issued on this machine."""
        addresses = NodeAddresses(self.block)
        return tuple((each.name, addresses.node(each.number)) for each in self.nodes if not each.token)


class PeerForm(enum.StrEnum):
    """What a peer of a local cluster consists of."""

    WHOLE = "Whole"
    """A local cluster with a supervisor and an etcd of its own, and with nodes."""
    LIGHT = "Light"
    """An API server and few controllers; see `lightpeers`."""


class StartedPeer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster that was started as the peer of another one.

    Args:
        name: Its name.
        form: What it consists of.
        has_operator: Whether an operator runs in it.
    """

    name: str
    form: PeerForm
    has_operator: bool


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The spec of a cluster.

    Args:
        name: A DNS label.
        ports: Its ports on 127.0.0.1.
        binaries: The folder of the programs.
        throwaway: Whether etcd may lose data when the machine crashes; much faster on slow disks.
        addresses: Further IP addresses that the API server's certificate is for (those of real nodes' bridges).
        oidc: The OIDC provider that the API server trusts; None for none.
        real: Its real nodes; None if it has none.
        peers: The clusters that were started as its peers, and that stop with it.
        supervised_by: The cluster whose supervisor runs this light peer; "" for a supervisor of its own.
        kubernetes: Its minor version of Kubernetes, as in "1.36"; "" for the default.
    """

    name: str
    ports: Ports
    binaries: str
    throwaway: bool = False
    addresses: tuple[str, ...] = ()
    oidc: Oidc | None = None
    real: RealNodes | None = None
    peers: tuple[StartedPeer, ...] = ()
    supervised_by: str = ""
    kubernetes: str = ""

    @property
    def server_addresses(self) -> tuple[str, ...]:
        """Further IP addresses of the API server, the one at the bridge of its real nodes included."""
        return (*self.addresses, NodeAddresses(self.real.block).bridge) if self.real else self.addresses

    @property
    def real_names(self) -> tuple[str, ...]:
        """The names of its real nodes."""
        return tuple(each.name for each in self.real.nodes) if self.real else ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The folders of the programs that it runs."""
        return (self.binaries, self.real.binaries) if self.real else (self.binaries,)


def read_spec(paths: ClusterPaths) -> ClusterSpec | None:
    """Return the spec of the cluster in a folder, None if there is none.

    Raises:
        LocalError: The file is there and cannot be read.
    """
    try:
        return msgspec.json.decode(paths.spec.read_bytes(), type=ClusterSpec)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(
            f'"{paths.spec}" cannot be read ({error}); `tenantry down --purge` drops this cluster and its data'
        ) from error


def supervised_at(paths: ClusterPaths) -> ClusterPaths:
    """Return the files of the cluster whose supervisor runs a cluster; its own unless it is a light peer."""
    spec = read_spec(paths)
    return ClusterPaths(paths.folder.parent / spec.supervised_by) if spec is not None and spec.supervised_by else paths


def write_spec(paths: ClusterPaths, spec: ClusterSpec) -> None:
    """Keep the spec."""
    write_private(paths.spec, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")
