"""What provisions volumes inside hosted control planes with real nodes: one process for each.

    CLUSTER/hosted/UID/storage.kubeconfig ─► storage@NAME, while the process of the control plane runs

A volume is a folder of the machine where its pod runs, and is wiped with it. Users inside can create claims without
end, which only their own control plane pays for.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.limits import ProcessLimits
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import read_spec

PREFIX = "storage@"
MODULE = "tenantry.local.real.provisioner"

_LIMITS = ProcessLimits(memory_bytes=192 * 2**20, cpu_millis=200)


def has_any(paths: ClusterPaths, plane: HostedPlane) -> bool:
    """Return whether volumes of a control plane are provisioned: it has nodes of a cluster with real nodes."""
    spec = read_spec(paths)
    return plane.has_nodes and spec is not None and spec.real is not None


def of(paths: ClusterPaths, folder: Path, name: str, server: str) -> tuple[Component, ...]:
    """Return the process for one control plane; none if nothing provisions its volumes.

    Args:
        paths: The cluster's.
        folder: The control plane's.
        name: Its component is called "storage@NAME".
        server: The component that it connects to.
    """
    if not ClusterPaths(folder).kubeconfig(hosting.STORAGE).exists():
        return ()
    command = (sys.executable, "-m", MODULE, str(paths.folder), folder.name)
    return (
        Component(
            name=f"{PREFIX}{name}",
            command=command,
            port=0,
            signal=ReadinessSignal.NOTIFY,
            after=(server,),
            limits=_LIMITS,
        ),
    )
