"""The networks of hosted control planes that real nodes join: a bridge and a block of addresses each.

    CLUSTER/hosted/UID/bridge.json   its block, so that it has the same addresses after each start

The host and each of these control planes have one of the blocks 10.112.0.0/16 to 10.127.0.0/16, on the whole machine.
Nothing is forwarded between bridges. From the bridge, only the ports that were admitted lead to this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tenantry.api.errors import LocalError
from tenantry.api.planenetwork import DEFAULT_DOMAIN
from tenantry.local.files import make_private_folder, write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import network
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import read_spec

_FILE = "bridge.json"


class ClusterNames(msgspec.Struct, frozen=True, kw_only=True):
    """What kubelets know of the names of a cluster.

    Args:
        dns: The address of its DNS.
        domain: The DNS domain of its Services.
    """

    dns: str
    domain: str = DEFAULT_DOMAIN


class PlaneBridge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The bridge of a control plane.

    Args:
        block: The second number of its addresses.
        port: The port of the process of the control plane, which nodes reach; 0 until it is known.
        of_any: The port on loopback that leads to any of several processes, and has the connections to `port`; 0 for
            none.
        dns: The address of the DNS of its cluster.
        domain: The DNS domain of its cluster.
        pod_range: The range that its pods must have; "" if another block may be chosen for it.
    """

    block: int
    port: int = 0
    dns: str = network.DNS_ADDRESS
    domain: str = DEFAULT_DOMAIN
    pod_range: str = ""
    of_any: int = 0

    @property
    def addresses(self) -> NodeAddresses:
        """Return its addresses."""
        return NodeAddresses(self.block)


def name(folder: Path) -> str:
    """Return the name of the bridge of a control plane, from its folder."""
    return network.identity(folder)


def find(folder: Path) -> PlaneBridge | None:
    """Return the bridge of a control plane; None if it has none.

    Raises:
        LocalError: Its file cannot be read.
    """
    file = folder / _FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=PlaneBridge)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(f'"{file}" cannot be read ({error}): delete it, and the nodes have to return') from error


def ensure(
    paths: ClusterPaths, folder: Path, names: ClusterNames | None = None, pod_range: str = ""
) -> PlaneBridge | None:
    """Return the bridge of a control plane, laid if it is not there; None if the cluster has no real nodes.

    Args:
        paths: The cluster's.
        folder: The folder of the control plane, which may not exist yet.
        names: The names of its cluster; None for those that are recorded.
        pod_range: The range that its pods must have; "" for the one that is recorded.

    Raises:
        LocalError: No block is free, or the kernel refuses.
    """
    spec = read_spec(paths)
    if spec is None or spec.real is None:
        return None
    found = find(folder)
    if found is not None and names is not None and names != ClusterNames(dns=found.dns, domain=found.domain):
        found = msgspec.structs.replace(found, dns=names.dns, domain=names.domain)
        write_private(folder / _FILE, msgspec.json.encode(found))
    if found is not None and network.is_laid(name(folder)):
        return found
    make_private_folder(folder.parent)
    make_private_folder(folder)
    if found is None:
        known = names or ClusterNames(dns=network.DNS_ADDRESS)
        found = PlaneBridge(block=0, dns=known.dns, domain=known.domain, pod_range=pod_range)
    return _lay(folder, found)


def _lay(folder: Path, found: PlaneBridge) -> PlaneBridge:
    block = network.lay(name(folder), found.port, found.block or None, found.pod_range)
    laid = msgspec.structs.replace(found, block=block)
    write_private(folder / _FILE, msgspec.json.encode(laid))
    if laid.of_any:
        network.lead(name(folder), laid.port, laid.of_any)
    return laid


def admit(folder: Path, port: int, of_any: int = 0) -> PlaneBridge | None:
    """Let nodes reach the process of a control plane at the bridge; None if it has no bridge.

    Args:
        folder: The folder of the control plane.
        port: The port of its process on loopback.
        of_any: As in `PlaneBridge`.

    Raises:
        LocalError: The kernel refuses.
    """
    found = find(folder)
    if found is None or not network.is_laid(name(folder)):
        return None
    if found.port != port:
        if found.port:
            network.dismiss(name(folder), found.port)
        found = msgspec.structs.replace(found, port=port)
        write_private(folder / _FILE, msgspec.json.encode(found))
    network.admit(name(folder), port)
    if found.of_any != of_any:
        network.lead(name(folder), port, of_any)
        if not of_any:
            network.dismiss(name(folder), found.of_any)
        found = msgspec.structs.replace(found, of_any=of_any)
        write_private(folder / _FILE, msgspec.json.encode(found))
    return found


def lay_again(paths: ClusterPaths) -> None:
    """Lay the bridges of all control planes of a cluster that starts.

    Raises:
        LocalError: No block is free, or the kernel refuses.
    """
    for folder in _folders(paths.folder):
        if (found := find(folder)) is not None:
            _lay(folder, found)


def remove(folder: Path) -> None:
    """Remove the bridge of a control plane, and what is plugged in; one that has none needs nothing."""
    network.remove(name(folder))
    (folder / _FILE).unlink(missing_ok=True)


def remove_all(cluster: Path) -> None:
    """Remove the bridges of all control planes of a cluster that does not run, and keep their addresses."""
    for folder in _folders(cluster):
        network.remove(name(folder))


def _folders(cluster: Path) -> Iterator[Path]:
    return (file.parent for file in sorted((cluster / "hosted").glob(f"*/{_FILE}")))
