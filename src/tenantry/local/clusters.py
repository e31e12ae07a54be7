"""The local clusters of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tenantry.api.errors import InputError
from tenantry.local.cluster import LocalCluster
from tenantry.local.paths import home


def list_clusters() -> Sequence[LocalCluster]:
    """Return every cluster of a home, by name, stopped ones included."""
    folder = home() / "clusters"
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    found: list[LocalCluster] = []
    for name in names:
        with contextlib.suppress(InputError):
            cluster = LocalCluster(name)
            if cluster.exists():
                found.append(cluster)
    return found


def local_cluster_at(server: str) -> LocalCluster | None:
    """Return the running local cluster whose API server has this URL, however a kubeconfig names it; None for none."""
    running = (each for each in list_clusters() if each.is_running())
    return next((each for each in running if each.server == server), None)
