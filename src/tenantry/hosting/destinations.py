"""The destinations that the gate can give to a connection: pure data.

The rule that selects one for a host and a port belongs to the user of this package, and is an argument of the gate.
"""

from __future__ import annotations

import ipaddress

import msgspec


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is not admitted.

    Args:
        reason: One line for the user of the hosted API server, which ends up in its error messages.
    """

    reason: str


class Direct(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection.

    Args:
        address: An IP address. A name would be resolved after the decision, to any address that its owner likes.
        port: The TCP port.

    Raises:
        ValueError: The address is not an IP address.
    """

    address: str
    port: int

    def __post_init__(self) -> None:
        """Check the address."""
        ipaddress.ip_address(self.address)


class Kubelet(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet of a node, which the gate itself plays.

    Args:
        node: The name of the node, as the hosted API server knows it.
    """

    node: str


class Tunnelled(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection that the agent of a node makes, through the tunnel that it has opened.

    Args:
        node: The name of the node.
        address: An IP address of the node, or of a pod there.
        port: The TCP port.

    Raises:
        ValueError: The address is not an IP address.
    """

    node: str
    address: str
    port: int

    def __post_init__(self) -> None:
        """Check the address."""
        ipaddress.ip_address(self.address)


class TunnelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The service at which the agents of nodes open their tunnels, which the gate itself plays."""


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """A host outside of the cluster: the gate resolves it, checks every address, and dials what it has checked.

    Args:
        host: An IP address or a DNS name.
        port: The TCP port.
    """

    host: str
    port: int


Destination = Refused | Direct | Kubelet | Outside | Tunnelled | TunnelEntry


class HostPath(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the host's API server.

    Args:
        path: The path, escaped.
        query: Parameters, not escaped, in order.
        is_upgrade: The request switches to another protocol; otherwise its body is the answer.
    """

    path: str
    query: tuple[tuple[str, str], ...] = ()
    is_upgrade: bool = False
