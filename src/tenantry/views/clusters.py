"""The local clusters of this machine, and the states of their components."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.local.cluster import LocalCluster
from tenantry.local.files import is_full
from tenantry.local.health import unresponsive
from tenantry.local.state import ComponentState, Phase


class LocalClusterView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A local cluster.

    Args:
        name: Its name.
        phase: Its phase as a whole.
        server: The URL of its API server.
        kubeconfig: The path of the administrator's kubeconfig.
        data: The path of its folder.
        throwaway: It is started without fsync.
        supervisor_pid: The pid of its supervisor; 0 if it does not run.
        components: In the order of their start.
        problems: What keeps it from working beside its components, and what to do.
    """

    name: str
    phase: Phase
    server: str
    kubeconfig: str
    data: str
    throwaway: bool
    supervisor_pid: int
    components: tuple[ComponentState, ...]
    problems: tuple[str, ...] = ()


async def local_clusters(clusters: Iterable[LocalCluster]) -> list[LocalClusterView]:
    """Return the views of local clusters.

    Raises:
        LocalError: One of them does not exist.
    """
    return [await _view(each) for each in clusters]


async def _view(cluster: LocalCluster) -> LocalClusterView:
    spec, state = cluster.spec(), cluster.status()
    ready = {each.name for each in state.components if each.phase is Phase.READY}
    # A process that hangs has not ended, so the supervisor takes it for ready.
    late = await unresponsive(cluster, ready) if cluster.is_running() else frozenset[str]()
    data = str(cluster.paths.folder.resolve())
    problems: tuple[str, ...] = ()
    if is_full(cluster.paths.folder):
        problems = (f'the disk of "{data}" is full: free some space, and the components start again by themselves',)
    return LocalClusterView(
        name=cluster.name,
        phase=Phase.DEGRADED if late and state.phase is Phase.READY else state.phase,
        server=cluster.server,
        kubeconfig=str(cluster.kubeconfig_path),
        data=data,
        throwaway=spec.throwaway,
        supervisor_pid=state.supervisor_pid,
        components=tuple(
            msgspec.structs.replace(each, phase=Phase.NOT_READY) if each.name in late else each
            for each in state.components
        ),
        problems=problems,
    )
