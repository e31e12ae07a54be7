"""Why a cluster does not come up, as a person can act on it."""

from __future__ import annotations

from tenantry.local.paths import ClusterPaths
from tenantry.local.state import ClusterState, Phase, read_state


def crash_of(name: str, paths: ClusterPaths, state: ClusterState, component: str) -> str:
    """Return what is wrong with a component, with the end of its log where it crashed.

    Args:
        name: The cluster's.
        paths: Its files.
        state: What is known of it.
        component: Which one.
    """
    found = state.component(component)
    end = found.last_exit if found else None
    if end is None:
        return f'{component} of the cluster "{name}" is not ready; see "{paths.log(component)}"'
    lines = "\n".join(f"    {line}" for line in end.lines)
    drop = f"; if its data is damaged, `tenantry down --name {name} --purge` drops it" if component == "etcd" else ""
    return f'{component} of the cluster "{name}" crashed ({end}){drop}. The end of "{paths.log(component)}":\n{lines}'


def what_is_late(name: str, paths: ClusterPaths, timeout_seconds: float) -> str:
    """Return what a cluster was waited for in vain; arguments as `crash_of`."""
    state = read_state(paths)
    waiting = [each for each in state.components if each.phase not in (Phase.READY, Phase.STOPPED)] if state else []
    names = ", ".join(f"{each.name} ({each.phase})" for each in waiting) or "nothing that could be named"
    crashed = next((each.name for each in waiting if each.last_exit), "")
    more = f"\n{crash_of(name, paths, state, crashed)}" if state and crashed else ""
    return (
        f'the cluster "{name}" is not ready after {timeout_seconds:.0f} s: waiting for {names}; see '
        f"`tenantry status --name {name}` and `tenantry logs --name {name}`{more}"
    )
