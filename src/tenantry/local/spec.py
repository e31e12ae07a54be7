"""What a local cluster is to be, kept in its folder as `cluster.json`."""

from __future__ import annotations

import msgspec

from tenantry.api.errors import LocalError
from tenantry.local.authentication import Oidc
from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths


class Ports(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The loopback ports of one cluster."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int
    operator: int


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a cluster is to be.

    Args:
        name: A DNS label.
        ports: Where it listens, on 127.0.0.1.
        binaries: The folder of the programs.
        throwaway: Whether etcd may forget what it was told when the machine dies; much faster on slow disks.
        addresses: Further IP addresses that the API server's certificate is for (those of real nodes' bridges).
        oidc: Whose tokens the API server believes beside its own; None for nobody's.
    """

    name: str
    ports: Ports
    binaries: str
    throwaway: bool = False
    addresses: tuple[str, ...] = ()
    oidc: Oidc | None = None


def read_spec(paths: ClusterPaths) -> ClusterSpec | None:
    """Return the spec of the cluster in a folder, None where there is none.

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


def write_spec(paths: ClusterPaths, spec: ClusterSpec) -> None:
    """Keep the spec."""
    write_private(paths.spec, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")
