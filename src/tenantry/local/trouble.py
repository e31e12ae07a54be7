"""Messages about why a cluster does not start, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tenantry.local.deadline import ProgressDeadline
from tenantry.local.files import tail
from tenantry.local.paths import ClusterPaths
from tenantry.local.state import ClusterState, Phase, read_state

_LINES = 5
_LINE_LENGTH = 300
_LOG_LINES = 2000
_CONTAINERD = re.compile(r'time="[^"]*" level=(warning|error|fatal|panic) ')
# klog's errors of kubelet and kube-proxy, and reports of a node's first process about its programs.
_OTHERS = re.compile(r"[EF]\d{4} |\S+ ended with exit code |the node does not start")
_STAMP = re.compile(r'^time="[^"]*" |^[EF]\d{4} \S+ +\d+ ')


def crash_of(name: str, paths: ClusterPaths, state: ClusterState, component: str) -> str:
    """Return what is wrong with a component; after a crash, with the end of its log.

    Args:
        name: The cluster's.
        paths: Its files.
        state: Its last known state.
        component: The component's name.
    """
    found = state.component(component)
    end = found.last_exit if found else None
    if end is None:
        return f'{component} of the cluster "{name}" is not ready; see "{paths.log(component)}"'
    lines = "\n".join(f"    {line}" for line in end.lines)
    drop = f"; if its data is damaged, `tenantry down --cluster {name} --purge` drops it" if component == "etcd" else ""
    word = "crashed" if end.code != 0 else "ended"
    return f'{component} of the cluster "{name}" {word} ({end}){drop}. The end of "{paths.log(component)}":\n{lines}'


def what_is_late(
    name: str, paths: ClusterPaths, timeout_seconds: float, deadline: ProgressDeadline | None = None
) -> str:
    """Return what `up` was waiting for when it gave up.

    Args:
        name: The cluster's.
        paths: Its files.
        timeout_seconds: The time without progress.
        deadline: What was seen while waiting.
    """
    state = (deadline.seen if deadline else None) or read_state(paths)
    waiting = [each for each in state.components if each.phase not in (Phase.READY, Phase.STOPPED)] if state else []
    late: Mapping[str, str] = deadline.late_nodes if deadline else {}
    found = [*(f"{each.name} ({each.phase})" for each in waiting), *(f"{each} (not Ready)" for each in sorted(late))]
    crashed = next((each.name for each in waiting if each.last_exit), "")
    more = f"\n{crash_of(name, paths, state, crashed)}" if state and crashed else ""
    more += "".join(f"\n{not_ready(each, said, paths)}" for each, said in sorted(late.items()))
    if not found:
        found = [f"an answer ({deadline.problem})" if deadline and deadline.problem else "an unknown component"]
    return (
        f'the cluster "{name}" is not ready after {timeout_seconds:.0f} s: waiting for {", ".join(found)}; see '
        f"`tenantry status --local --cluster {name}` and `tenantry logs --cluster {name}`{more}"
    )


def not_ready(node: str, said: str, paths: ClusterPaths) -> str:
    """Return why a real node is not Ready: its own message, and the last errors of its programs.

    Args:
        node: Its name.
        said: The message of its condition Ready.
        paths: The cluster's.
    """
    log = paths.log(node)
    lines = tail(log, _LOG_LINES, limit_bytes=2**20)
    told = [*_last(lines, _CONTAINERD), *_last(lines, _OTHERS)]
    text = "".join(f"\n    {line}" for line in told)
    return f'the node "{node}" is not Ready: {said}. The last errors of its programs in "{log}":{text or " nothing"}'


def _last(lines: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the last lines that match a pattern, each text once."""
    found: dict[str, str] = {}
    for line in lines:
        if pattern.match(line):
            text = _STAMP.sub("", line)
            found.pop(text, None)
            found[text] = line[:_LINE_LENGTH]
    return list(found.values())[-_LINES:]
