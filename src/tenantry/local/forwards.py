"""Forwarders of hosted control planes on this machine: each leads one Unix socket to one datastore elsewhere.

CLUSTER/hosted/UID/forward.json ─► forward@NAME: `endpoint-proxy datastore SOCKET HOST:PORT`, while its process runs

The process of a control plane has no network. TLS is between this process and the datastore, so that the forwarder
sees no password.
"""

from __future__ import annotations

import msgspec

from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.paths import ClusterPaths

PREFIX = "forward@"
PROCESS = "forward.json"
STOPPED = "forward-stopped.json"
"""The same file of a forwarder that the supervisor must not run."""


class ForwardProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the supervisor runs one forwarder.

    Args:
        name: Its component is called "forward@NAME".
        program: The path of the program.
        socket: The name of the socket in its folder.
        address: The datastore, as "HOST:PORT".
        allowed: CIDRs of addresses that are refused otherwise, such as loopback.
    """

    name: str
    program: str
    socket: str
    address: str
    allowed: tuple[str, ...] = ()


def forwards(paths: ClusterPaths) -> tuple[Component, ...]:
    """Return the forwarders of a cluster as components.

    Args:
        paths: The cluster's.
    """
    found: list[Component] = []
    for file in sorted(paths.folder.glob(f"hosted/*/{PROCESS}")):
        try:
            process = msgspec.json.decode(file.read_bytes(), type=ForwardProcess)
        except (OSError, msgspec.MsgspecError):
            continue  # it is being removed
        found.append(
            Component(
                name=f"{PREFIX}{process.name}",
                command=(process.program, "datastore", process.socket, process.address, *process.allowed),
                port=0,
                signal=ReadinessSignal.NOTIFY,
                environment={"GOMAXPROCS": "1"},
                folder=file.parent,
            )
        )
    return tuple(found)
