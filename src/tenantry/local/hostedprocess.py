"""The file with how the supervisor runs a hosted control plane, and which of them may be processes of this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.hosting.plane import HostedLimits, HostedPlane, PlaneHosting

PROCESS = "process.json"
STOPPED = "stopped.json"
"""The same file of a control plane that the supervisor must not run."""


class HostedProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the supervisor runs one hosted control plane.

    Args:
        name: Its component is called "hosted@NAME".
        program: The path of the program.
        port: The port on 127.0.0.1 that kubeconfigs and pods name; the endpoint proxy listens there.
        internal: The port of its API server on 127.0.0.1; 0 if that is `port`, as in earlier versions.
        limits: As in `HostedPlane`, of each process.
        others: The internal ports of the second and further processes, whose components are "hosted@NAME.2" and so on.
        operator: Where the endpoint proxy leads the operator to any of several processes; 0 for nowhere.
        nodes: Where the endpoint proxy leads machines to any of several processes; 0 for nowhere.
        simulator: The port of what simulates its nodes; 0 if it has none.
    """

    name: str
    program: str
    port: int
    internal: int = 0
    limits: HostedLimits | None = None
    others: tuple[int, ...] = ()
    operator: int = 0
    nodes: int = 0
    simulator: int = 0

    @property
    def of_any(self) -> int:
        """Return the port of machines while there are several processes; 0 for one."""
        return self.nodes if self.others else 0


def check_process(plane: HostedPlane) -> None:
    """Check that a control plane may be a process of this machine.

    Raises:
        InputError: It may not: the field, and what to do.
    """
    if plane.hosting is PlaneHosting.PODS:
        raise InputError(
            "spec.hosting is Pods, and this host runs control planes as processes: set it to Auto, or run the operator"
            " in a cluster with `tenantry install --virtual-control-planes`"
        )
    if plane.is_sandboxed:
        raise InputError(
            "spec.runtime is Sandboxed, and this host runs control planes as processes, which no sandbox holds: set it"
            " to Shared, or run the operator in a cluster with `tenantry install --virtual-control-planes`"
        )


def known(folder: Path) -> HostedProcess | None:
    """Return how a control plane runs, or ran until it was stopped; None if it has not been started yet.

    Args:
        folder: Its folder.

    Raises:
        LocalError: The file cannot be read.
    """
    return read(folder / PROCESS) or read(folder / STOPPED)


def read(file: Path) -> HostedProcess | None:
    """Return what one of the two files has; None if there is none.

    Raises:
        LocalError: It cannot be read.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=HostedProcess)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(
            f'"{file}" cannot be read ({error}): delete it, and the control plane gets a new port'
        ) from error
