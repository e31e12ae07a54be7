"""What the supervisor last saw of its components, kept in the cluster's folder as `state.json`.

A machine can die at any moment, so nothing here is believed without proof: the supervisor lives if its lock is held,
and a process is the one meant only if machine's boot, pid and start time agree.
"""

from __future__ import annotations

import enum

import msgspec

from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths


class Phase(enum.StrEnum):
    """Where a component, or the cluster as a whole, is in its life."""

    STOPPED = "Stopped"
    WAITING = "Waiting"
    STARTING = "Starting"
    READY = "Ready"
    DEGRADED = "Degraded"
    """Only of a cluster: it was ready, and something that is wanted is not ready now."""
    BACK_OFF = "BackOff"
    STOPPING = "Stopping"
    KILLED = "Killed"
    """Only of a cluster: its supervisor is gone without having stopped anything."""


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a process ended.

    Args:
        at: RFC 3339, UTC.
        code: The exit code, None where a signal ended it.
        signal: The signal's name, "" where it ended by itself.
        lines: The last ones of its log.
    """

    at: str
    code: int | None = None
    signal: str = ""
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one phrase, such as "killed by SIGKILL"."""
        return f"killed by {self.signal}" if self.signal else f"exit code {self.code}"


class ComponentState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One component.

    Args:
        name: Such as "kube-apiserver".
        phase: Where it is in its life.
        pid: Of its process, 0 where there is none.
        start_ticks: When the process started, in clock ticks since boot (/proc/PID/stat, field 22).
        port: Where it listens on 127.0.0.1.
        restarts: How often it was started again after it ended unasked, since `up`.
        last_exit: How it last ended unasked.
    """

    name: str
    phase: Phase = Phase.STOPPED
    pid: int = 0
    start_ticks: int = 0
    port: int = 0
    restarts: int = 0
    last_exit: ProcessExit | None = None


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of one cluster.

    Args:
        name: The cluster's.
        boot_id: Which boot of the machine the pids are of.
        supervisor_pid: The daemon's.
        supervisor_ticks: When that started.
        phase: Of the control plane as a whole.
        components: In the order of their start.
    """

    name: str
    boot_id: str
    supervisor_pid: int
    supervisor_ticks: int
    phase: Phase
    components: tuple[ComponentState, ...] = ()

    def component(self, name: str) -> ComponentState | None:
        """Return one component's state by its name."""
        return next((component for component in self.components if component.name == name), None)


def ended(state: ClusterState, phase: Phase) -> ClusterState:
    """Return the state without a supervisor, in a phase."""
    return msgspec.structs.replace(state, supervisor_pid=0, supervisor_ticks=0, phase=phase)


def decode_state(data: bytes) -> ClusterState | None:
    """Return the state that a file or a message holds; None where it is not whole."""
    try:
        return msgspec.json.decode(data, type=ClusterState)
    except msgspec.MsgspecError:
        return None


def read_state(paths: ClusterPaths) -> ClusterState | None:
    """Return what was last written; None where there is nothing, or nothing readable."""
    try:
        return decode_state(paths.state.read_bytes())
    except OSError:
        return None


def write_state(paths: ClusterPaths, state: ClusterState) -> None:
    """Write the state, whole or not at all."""
    write_private(paths.state, msgspec.json.encode(state))
