"""The local clusters of this machine, and the states of their components."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.local.cluster import LocalCluster
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
    """

    name: str
    phase: Phase
    server: str
    kubeconfig: str
    data: str
    throwaway: bool
    supervisor_pid: int
    components: tuple[ComponentState, ...]


def local_clusters(clusters: Iterable[LocalCluster]) -> list[LocalClusterView]:
    """Return the views of local clusters.

    Raises:
        LocalError: One of them does not exist.
    """
    return [_view(each) for each in clusters]


def _view(cluster: LocalCluster) -> LocalClusterView:
    spec, state = cluster.spec(), cluster.status()
    return LocalClusterView(
        name=cluster.name,
        phase=state.phase,
        server=cluster.server,
        kubeconfig=str(cluster.kubeconfig_path),
        data=str(cluster.paths.folder.resolve()),
        throwaway=spec.throwaway,
        supervisor_pid=state.supervisor_pid,
        components=state.components,
    )
