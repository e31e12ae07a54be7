"""The machines of real nodes: what stops them, wipes them, and starts them in another cluster.

Controllers know only this protocol.

    clean    the processes end; identity, images, containers and files are wiped       the host has lost the machine
    join     it starts on the network of a control plane, with a token for its own name
    remake   it ends, is wiped, and starts for the host                                nothing of the tenant is left

Each call can be repeated at any time, also by another process after a crash: it continues with what is missing.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class MachinePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine is in the network of a control plane.

    Args:
        addresses: Its IP addresses.
        pod_range: The range of its pods, as CIDR.
    """

    addresses: tuple[str, ...]
    pod_range: str


class MachineJoin(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine joins a control plane.

    Args:
        server: The URL of the endpoint for nodes.
        ca: The authorities of the API server, as PEM.
        token: The bootstrap token.
        version: The minor version that its kubelet is to have, as in "1.36"; "" for any.
    """

    server: str
    ca: str
    token: str
    version: str = ""


class Machines(Protocol):
    """Moves machines between the host and control planes in one place."""

    async def has(self, node: str) -> bool:
        """Return whether the machine of a node of the host can be moved here.

        Raises:
            TenantryError: This cannot be known now.
        """
        ...

    async def clean(self, node: str, plane: str) -> MachinePlace:
        """End all processes of a machine and wipe it, and return where it will be in a control plane.

        Args:
            node: The name of the node.
            plane: The uid of the control plane.

        Raises:
            TenantryError: It may still run, or something is left: why, and what to do.
        """
        ...

    async def join(self, node: str, plane: str, join: MachineJoin) -> None:
        """Start a machine that is wiped in a control plane; one that has joined it needs nothing.

        Raises:
            TenantryError: It is not wiped for this control plane, or cannot be started: why, and what to do.
        """
        ...

    async def remake(self, node: str) -> None:
        """End and wipe a machine, and start it for the host; return when its kubelet runs.

        Raises:
            TenantryError: It may still serve a control plane, or does not start: why, and what to do.
        """
        ...
