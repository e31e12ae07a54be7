"""What simulates the nodes of hosted control planes on this machine: kwok, one process for each.

    CLUSTER/hosted/UID/process.json, with a port ─► simulator@NAME, while its process runs

A cluster with real nodes has none: real nodes join its control planes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tenantry.hosting import plane as hosting
from tenantry.local import components
from tenantry.local.components import Component
from tenantry.local.limits import ProcessLimits
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import read_spec

PREFIX = "simulator@"

# Users inside can create simulated nodes and pods without end, which only their own control plane pays for.
_LIMITS = ProcessLimits(memory_bytes=256 * 2**20, cpu_millis=200)
_ENVIRONMENT = {"GOGC": "20", "GOMEMLIMIT": str(200 * 2**20)}


def has_any(paths: ClusterPaths) -> bool:
    """Return whether nodes of the control planes of a cluster are simulated."""
    spec = read_spec(paths)
    return spec is not None and spec.real is None


def of(paths: ClusterPaths, folder: Path, name: str, port: int, server: str) -> tuple[Component, ...]:
    """Return the program for one control plane; none while the cluster is removed.

    Args:
        paths: The cluster's.
        folder: The control plane's.
        name: Its component is called "simulator@NAME".
        port: Its own port, on 127.0.0.1.
        server: The component that it connects to.
    """
    spec = read_spec(paths)
    if spec is None:
        return ()
    own = components.simulator(spec.binaries, ClusterPaths(folder).kubeconfig(hosting.SIMULATOR), port)
    return (replace(own, name=f"{PREFIX}{name}", after=(server,), limits=_LIMITS, environment=_ENVIRONMENT),)
