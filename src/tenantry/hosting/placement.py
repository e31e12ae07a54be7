"""Where hosted control planes run: on this machine, or in pods. The controllers know only this protocol."""

from __future__ import annotations

import socket
import ssl
from typing import Protocol

import msgspec

from tenantry.hosting.plane import HostedPlane
from tenantry.kube.kubeconfig import Connection


class RunningPlane(msgspec.Struct, frozen=True, kw_only=True):
    """A hosted control plane that is ready for requests.

    Args:
        connection: How Tenantry reaches it, as a member of system:masters.
        server: The URL of its API server for users.
        kubeconfig: The kubeconfig of the identity `plane.OWNER`.
    """

    connection: Connection
    server: str
    kubeconfig: str


class Placement(Protocol):
    """Runs hosted control planes in one place."""

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """Start a control plane unless it runs, and return it once it is ready.

        Raises:
            TenantryError: It cannot be started, or is not ready in time: why, and what to do.
        """
        ...

    async def remove(self, uid: str) -> None:
        """End a control plane and delete its data and its keys; one that is gone needs nothing.

        Raises:
            TenantryError: Something of it is left.
        """
        ...

    async def gate_socket(self, uid: str) -> socket.socket:
        """Return a listening socket for the gate of a control plane that was started."""
        ...

    async def kubelet_tls(self, uid: str, address: str) -> ssl.SSLContext:
        """Return the context in which the gate answers at the address of a node, in place of its kubelet."""
        ...
