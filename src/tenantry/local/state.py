"""The last known state of a cluster's components, stored in its folder as `state.json`.

The machine can crash at any moment, so readers verify it: the supervisor runs if its lock is held, and a process is
the recorded one only if the machine's boot, the pid and the start time agree.
"""

from __future__ import annotations

import enum

import msgspec

from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths


class Phase(enum.StrEnum):
    """The phase of a component, or of the cluster as a whole."""

    STOPPED = "Stopped"
    WAITING = "Waiting"
    STARTING = "Starting"
    READY = "Ready"
    DEGRADED = "Degraded"
    """Only of a cluster: it was ready, and a component that should run is not ready now."""
    BACK_OFF = "BackOff"
    NOT_READY = "NotReady"
    """Only of a component in `tenantry status`: it was ready, and its health endpoint does not confirm that now."""
    STOPPING = "Stopping"
    KILLED = "Killed"
    """Only of a cluster: its supervisor ended without stopping anything."""


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a process ended.

    Args:
        at: RFC 3339, UTC.
        code: The exit code; None if a signal ended it.
        signal: The signal's name; "" if it ended by itself.
        lines: The last lines of its log.
    """

    at: str
    code: int | None = None
    signal: str = ""
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one phrase, such as "killed by SIGKILL"."""
        if self.signal:
            return f"killed by {self.signal}"
        return f"exit code {self.code}" if self.code else "ended by itself without an error"


class ComponentState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One component.

    Args:
        name: Such as "kube-apiserver".
        phase: Its phase.
        pid: The pid of its process; 0 if it has none.
        start_ticks: When the process started, in clock ticks since boot (/proc/PID/stat, field 22).
        port: Its port on 127.0.0.1.
        restarts: The number of restarts after crashes since `up`.
        last_exit: Its last crash.
        unlimited: Why the limits of its process are not enforced; "" if they are, or if it has none.
    """

    name: str
    phase: Phase = Phase.STOPPED
    pid: int = 0
    start_ticks: int = 0
    port: int = 0
    restarts: int = 0
    last_exit: ProcessExit | None = None
    unlimited: str = ""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a cluster.

    Args:
        name: The cluster's.
        boot_id: The boot of the machine that the pids belong to.
        supervisor_pid: The pid of the supervisor.
        supervisor_ticks: When the supervisor started, in clock ticks since boot.
        phase: The phase of the cluster as a whole.
        components: Its components, in the order of their start.
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
    """Return the state with this phase and without a supervisor."""
    return msgspec.structs.replace(state, supervisor_pid=0, supervisor_ticks=0, phase=phase)


def decode_state(data: bytes) -> ClusterState | None:
    """Decode a state from a file or a message; None if it is incomplete."""
    try:
        return msgspec.json.decode(data, type=ClusterState)
    except msgspec.MsgspecError:
        return None


def read_state(paths: ClusterPaths) -> ClusterState | None:
    """Return the state that was last written; None if there is none that can be read."""
    try:
        return decode_state(paths.state.read_bytes())
    except OSError:
        return None


def write_state(paths: ClusterPaths, state: ClusterState) -> None:
    """Write the state, atomically."""
    write_private(paths.state, msgspec.json.encode(state))
