"""What processes take, by proc(5)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from tenantry.api.errors import LocalError


class ProcessCost(msgspec.Struct, frozen=True):
    """What one process takes.

    Args:
        private_megabytes: Anonymous memory, in 10^6 bytes: all but the files that it maps, its program above all, whose
            pages all processes of the program share.
        cpu_seconds: CPU time since its start.
    """

    private_megabytes: float
    cpu_seconds: float


class StockServer(msgspec.Struct, frozen=True):
    """An API server as Kubernetes builds it, without controllers and datastore, beside which control planes start.

    Args:
        restart: Restarts it, waits until it is ready, and returns its process.
    """

    restart: Callable[[], Awaitable[int]]

    async def start_cost(self) -> ProcessCost:
        """Restart it, and return what it has taken when it is ready."""
        return process_cost(await self.restart())


class Processes(msgspec.Struct, frozen=True):
    """Finds the processes of a local cluster.

    Args:
        pids: Returns the processes that run by the name of their component.
        plane: The name of the component of a control plane is this and `NAMESPACE.NAME`.
        shared: The components that serve all control planes.
    """

    pids: Callable[[], dict[str, int]]
    plane: str
    shared: Sequence[str]

    def of_planes(self, names: Sequence[str]) -> list[ProcessCost]:
        """Return what control planes take, by `NAMESPACE.NAME`.

        Raises:
            LocalError: One does not run.
        """
        pids = self.pids()
        missing = [name for name in names if f"{self.plane}{name}" not in pids]
        if missing:
            raise LocalError(f"{len(missing)} of {len(names)} control planes do not run, {missing[0]!r} among them")
        return [process_cost(pids[f"{self.plane}{name}"]) for name in names]

    def of_shared(self) -> dict[str, ProcessCost]:
        """Return what the components that serve all control planes take; those that do not run are left out."""
        pids = self.pids()
        return {name: process_cost(pids[name]) for name in self.shared if name in pids}


def process_cost(pid: int) -> ProcessCost:
    """Return what a process takes; proc_pid_smaps(5), proc_pid_stat(5).

    Raises:
        OSError: There is no such process.
    """
    kilobytes = next(
        int(line.split()[1])
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Anonymous:")
    )
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessCost(kilobytes * 1024 / 1e6, ticks / os.sysconf("SC_CLK_TCK"))


def cpu_a_minute(before: Sequence[ProcessCost], after: Sequence[ProcessCost], seconds: float) -> list[float]:
    """Return the CPU seconds that each process used in a minute of a window."""
    pairs = zip(before, after, strict=True)
    return [(late.cpu_seconds - early.cpu_seconds) / seconds * 60 for early, late in pairs]
