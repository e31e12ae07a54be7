"""Kills what a killed supervisor left behind; usually the kernel has done so already."""

from __future__ import annotations

import signal

from tenantry.local import process
from tenantry.local.paths import ClusterPaths
from tenantry.local.state import Phase, ended, read_state, write_state


async def kill_components(paths: ClusterPaths) -> None:
    """Kill the recorded components of a cluster whose supervisor is gone, and record that it has ended."""
    state = read_state(paths)
    # After a reboot, the recorded pids belong to other processes.
    if state is None or state.boot_id != process.boot_id():
        return
    for each in state.components:
        if process.kill_if_same(each.pid, each.start_ticks, signal.SIGKILL):
            await process.wait_gone(each.pid, each.start_ticks, 5.0)
    if state.phase is not Phase.STOPPED:
        write_state(paths, ended(state, Phase.STOPPED))
