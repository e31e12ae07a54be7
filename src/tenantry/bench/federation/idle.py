"""What peers take while nothing uses them: memory and CPU."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from tenantry.bench.federation.sides import BenchFederation
from tenantry.bench.load import Progress
from tenantry.bench.planes.processes import process_cost


class FederationIdleResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        peers: How many peers there were.
        peer_form: What they consist of.
        gibibytes: Memory of all their processes, with the etcd that light peers share: proportional set sizes.
        cores: Their CPU while idle.
        operator_mebibytes: Memory of the operator of the home.
        operator_cores: CPU of the operator of the home.
        idle_seconds: The window.
    """

    peers: int
    peer_form: str
    gibibytes: float
    cores: float
    operator_mebibytes: float
    operator_cores: float
    idle_seconds: float


async def idle(bench: BenchFederation, seconds: float, progress: Progress) -> FederationIdleResult:
    """Measure the processes of the peers while nothing changes.

    Args:
        bench: The clusters.
        seconds: The window, after as many seconds of rest.
        progress: Receives a line after each step.
    """
    pids = [pid for peer, _ in bench.peers for pid in peer.processes().values()]
    pids += [pid for name, pid in bench.processes().items() if name.startswith("light@")]
    operator = bench.processes()["operator"]
    await asyncio.sleep(seconds)
    progress("resting is over; measuring")
    before = {pid: process_cost(pid).cpu_seconds for pid in (*pids, operator)}
    await asyncio.sleep(seconds)
    used = {pid: process_cost(pid).cpu_seconds - was for pid, was in before.items()}
    return FederationIdleResult(
        peers=len(bench.peers),
        peer_form=bench.form,
        gibibytes=round(sum(_kibibytes(pid) for pid in pids) / 2**20, 2),
        cores=round(sum(used[pid] for pid in pids) / seconds, 3),
        operator_mebibytes=round(_kibibytes(operator) / 2**10, 1),
        operator_cores=round(used[operator] / seconds, 3),
        idle_seconds=seconds,
    )


def _kibibytes(pid: int) -> int:
    """Return the proportional set size of a process; proc_pid_smaps(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
