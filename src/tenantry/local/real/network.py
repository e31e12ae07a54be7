"""The network between nodes, and between them and the API server of their cluster.

Each cluster has a /16 of its own, 10.BLOCK.0.0/16, that no route of this machine uses:

    10.BLOCK.NODE.0/24       pods of the node of this number
    10.BLOCK.128.1/24        the bridge, which is this machine to the nodes
    10.BLOCK.128.10+NODE     the node

The API server stays on loopback. Connections over the bridge to its port are redirected there, and so are those to the
ports of hosted control planes, which a set of the rules has. A map leads the port of the first of several processes to
the one that leads to any of them. Nodes reach no other server of this machine, whether it
listens on loopback or on all addresses, and nothing outside of it, because this machine does not forward.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.api.model import Json
from tenantry.local import paths
from tenantry.local.locks import holding

MAX_NODES = 50
DNS_ADDRESS = "10.96.0.10"
_SECONDS = 20.0
_BLOCKS = range(112, 128)
_NODES = 128
_FIRST_NODE = 10
_SERVERS = "servers"
_OF_ANY = "ofany"
Network = ipaddress.IPv4Network


@dataclass(frozen=True)
class NodeAddresses:
    """The addresses of one cluster's nodes.

    Args:
        block: The second number of all addresses.
    """

    block: int

    @property
    def bridge(self) -> str:
        """Return the address of this machine, and of the API server, for nodes."""
        return f"10.{self.block}.{_NODES}.1"

    @property
    def nodes(self) -> str:
        """Return the range of the nodes."""
        return f"10.{self.block}.{_NODES}.0/24"

    @property
    def whole(self) -> str:
        """Return the range of all its addresses."""
        return f"10.{self.block}.0.0/16"

    @property
    def pods(self) -> str:
        """Return the range of all pods."""
        return f"10.{self.block}.0.0/17"

    def node(self, number: int) -> str:
        """Return the address of a node."""
        return f"10.{self.block}.{_NODES}.{_FIRST_NODE + number}"

    def pods_of(self, number: int) -> str:
        """Return the range of the pods of a node."""
        return f"10.{self.block}.{number}.0/24"


def identity(folder: Path) -> str:
    """Return the name of a cluster's links and cgroups, from the folder of its files."""
    return "tnt" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]


def link(name: str, number: int) -> str:
    """Return the name of this machine's end of a node's veth pair; at most 15 characters fit."""
    return f"{name}n{number}"


def block_of(pod_range: str) -> int:
    """Return the block whose pods have a range.

    Raises:
        LocalError: There is none.
    """
    for block in _BLOCKS:
        if NodeAddresses(block).pods == pod_range:
            return block
    first, last = NodeAddresses(_BLOCKS[0]).pods, NodeAddresses(_BLOCKS[-1]).pods
    raise LocalError(
        f"spec.network.podRange must be {first}, the next one and so on to {last} with real nodes of this machine, not"
        f" {pod_range}: leave the field out, and one that is free is chosen; the field does not change, so create"
        " another object"
    )


def choose(before: int | None, taken: Iterable[Network], pod_range: str = "") -> int:
    """Return the block of a cluster: the one that it had, if it is still free.

    Args:
        before: The block that it had.
        taken: All ranges that this machine routes already.
        pod_range: The range that its pods must have; "" for any.

    Raises:
        LocalError: No block is free, or the one with this range of pods is not.
    """
    used = [each for each in taken if each.prefixlen]
    blocks = (block_of(pod_range),) if pod_range else (*(() if before is None else (before,)), *_BLOCKS)
    for block in blocks:
        clash = next((each for each in used if Network(NodeAddresses(block).whole).overlaps(each)), None)
        if clash is None:
            return block
        if pod_range:
            raise LocalError(
                f"spec.network.podRange {pod_range} overlaps {clash}, which this machine routes already, as to another"
                " cluster with real nodes: see `ip route`; choose another range, or end that cluster"
            )
    raise LocalError(
        f"no range of 10.{_BLOCKS[0]}.0.0/16 to 10.{_BLOCKS[-1]}.0.0/16 is free for nodes: this machine has room for "
        f"{len(_BLOCKS)} clusters with real nodes, those of tenants included; see `ip route`, and stop or delete one"
    )


def is_laid(name: str) -> bool:
    """Return whether the bridge of a cluster is there."""
    return Path(f"/sys/class/net/{name}").exists()


def lay(name: str, port: int, before: int | None, pod_range: str = "") -> int:
    """Create the bridge of a cluster, replacing an existing one; return the block of its addresses.

    Args:
        name: Its `identity`.
        port: The API server's port on loopback; 0 to admit none yet.
        before: The block that it had.
        pod_range: As for `choose`.

    Raises:
        LocalError: The kernel refuses a command, or no addresses are free.
    """
    lock = paths.cache() / "network.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    # Two clusters that start at the same time would choose the same block.
    with holding(lock, on_wait=lambda: None):
        remove(name)
        addresses = NodeAddresses(choose(before, _routed(), pod_range))
        _run("ip", "link", "add", name, "type", "bridge")
        _run("ip", "addr", "add", f"{addresses.bridge}/24", "dev", name)
        # For packets that these rules redirect to loopback; the setting ends with the bridge.
        Path(f"/proc/sys/net/ipv4/conf/{name}/route_localnet").write_text("1")
        refuse_ipv6(name)
        _run("nft", "-f", "-", text=rules(name, addresses, port))
        _run("ip", "link", "set", name, "up")
        routes = (f"route add {addresses.pods_of(n)} via {addresses.node(n)}\n" for n in range(1, MAX_NODES + 1))
        _run("ip", "-batch", "-", text="".join(routes))
    return addresses.block


def refuse_ipv6(name: str, settings: Path = Path("/proc/sys/net/ipv6/conf")) -> None:
    """Take IPv6 from a bridge, which would otherwise have a link-local address that no rule filters.

    Args:
        name: The bridge.
        settings: The folder of the kernel's settings; without IPv6, it has none of the bridge.
    """
    setting = settings / name / "disable_ipv6"
    if setting.exists():
        setting.write_text("1")


def rules(name: str, addresses: NodeAddresses, port: int) -> str:
    """Return the nft(8) commands that create the rules of a cluster's bridge.

    Args:
        name: Its `identity`.
        addresses: Its addresses.
        port: The API server's port on loopback; 0 to admit none yet.
    """
    elements = f"elements = {{ {port} }}" if port else ""
    return f"""
table ip {name} {{
    set {_SERVERS} {{
        type inet_service
        {elements}
    }}
    map {_OF_ANY} {{
        type inet_service : inet_service
    }}
    chain loopback {{
        type filter hook prerouting priority raw; policy accept;
        iifname "{name}" ip daddr 127.0.0.0/8 drop
    }}
    chain turn {{
        type nat hook prerouting priority dstnat; policy accept;
        iifname "{name}" ip daddr {addresses.bridge} meta l4proto tcp dnat to 127.0.0.1 : tcp dport map @{_OF_ANY}
        iifname "{name}" ip daddr {addresses.bridge} tcp dport @{_SERVERS} dnat to 127.0.0.1
    }}
    chain others {{
        type filter hook input priority filter; policy accept;
        iifname != "{name}" accept
        ct state established,related accept
        ct status dnat tcp dport @{_SERVERS} accept
        ip protocol icmp accept
        drop
    }}
    chain through {{
        type filter hook forward priority filter; policy accept;
        iifname "{name}" oifname != "{name}" drop
    }}
}}
"""


def admit(name: str, port: int) -> None:
    """Let nodes and their pods reach a server of this machine at the bridge's address; once more changes nothing.

    Args:
        name: The cluster's `identity`.
        port: The server's port on loopback.

    Raises:
        LocalError: The kernel refuses, as if the cluster has no bridge.
    """
    _run("nft", "-f", "-", text=_element("add", name, port))


def dismiss(name: str, port: int) -> None:
    """End what `admit` has begun; a port that was not admitted, or a cluster without a bridge, needs nothing.

    Raises:
        LocalError: The kernel refuses.
    """
    if is_laid(name):
        # One transaction: nft rejects the deletion of an element that is not there.
        _run("nft", "-f", "-", text=_element("add", name, port) + _element("delete", name, port))


def lead(name: str, port: int, of_any: int) -> None:
    """Lead connections of nodes to a port that was admitted to another port of loopback, and to no other one any more.

    Args:
        name: The cluster's `identity`.
        port: The port at the bridge's address.
        of_any: The port on loopback; 0 for the same one.

    Raises:
        LocalError: The kernel refuses.
    """
    # One transaction. The rule of the input chain sees the port that a connection is led to.
    lines = [f"flush map ip {name} {_OF_ANY}\n"]
    if of_any:
        lines += [_element("add", name, of_any), f"add element ip {name} {_OF_ANY} {{ {port} : {of_any} }}\n"]
    _run("nft", "-f", "-", text="".join(lines))


def _element(verb: str, name: str, port: int) -> str:
    return f"{verb} element ip {name} {_SERVERS} {{ {port} }}\n"


def remove(name: str) -> None:
    """Remove the bridge of a cluster, its veth pairs, routes and rules, if they exist."""
    links = [each.name for each in Path("/sys/class/net").iterdir() if each.name.startswith(name)]
    for cable in links:
        # The kernel removes namespaces, and veth pairs with them, some time after their last process ended.
        if cable != name:
            _unplug(cable)
    if name not in links:
        return
    listed: list[Json] = json.loads(_run("nft", "-j", "list", "tables"))["nftables"]
    if any(each.get("table", {}).get("name") == name for each in listed):
        _run("nft", "delete", "table", "ip", name)
    # Last, so that no rules stay behind without their bridge.
    _run("ip", "link", "del", name)


def plug(name: str, number: int, pid: int) -> None:
    """Create a veth pair from the bridge to `eth0` in the network namespace of a process."""
    cable = link(name, number)
    _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run("ip", "link", "set", cable, "master", name, "up")


def unplug(name: str, number: int) -> None:
    """Remove the veth pair of a node, unless the kernel has done so with its namespace."""
    _unplug(link(name, number))


def _unplug(cable: str) -> None:
    if Path(f"/sys/class/net/{cable}").exists():
        # The kernel may do the same at this moment, and `ip` then finds no link.
        with contextlib.suppress(LocalError):
            _run("ip", "link", "del", cable)


def configure(addresses: NodeAddresses, number: int) -> None:
    """Give `eth0` in this process's namespace the addresses and routes of a node."""
    others = (n for n in range(1, MAX_NODES + 1) if n != number)
    lines = (
        "link set lo up",
        f"addr add {addresses.node(number)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {addresses.bridge}",
        *(f"route add {addresses.pods_of(n)} via {addresses.node(n)}" for n in others),
    )
    _run("ip", "-batch", "-", text="\n".join(lines) + "\n")
    for path in ("ip_forward", "conf/all/forwarding"):
        Path(f"/proc/sys/net/ipv4/{path}").write_text("1")


def load(commands: str) -> None:
    """Execute nft(8) commands in this process's namespace, as one transaction.

    Raises:
        LocalError: nft rejects them.
    """
    _run("nft", "-f", "-", text=commands)


def _routed() -> list[Network]:
    listed: list[Json] = json.loads(_run("ip", "-4", "-j", "route", "show", "table", "all") or "[]")
    found: list[Network] = []
    for each in listed:
        text = str(each.get("dst", "default"))
        if text != "default":
            found.append(Network(text, strict=False))
    return found


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        problem = done.stderr.strip() or f"exit code {done.returncode}"
        raise LocalError(f"`{' '.join(command)}` failed: {problem}")
    return done.stdout
