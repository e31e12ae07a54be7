"""What a cluster with real nodes has in it: the runtimes that pods may ask for, and DNS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenantry.api.model import Resource
from tenantry.local.bootstrap import connected
from tenantry.local.paths import ClusterPaths

_CLASS = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
RUNTIMES = {"runc": "runc", "gvisor": "runsc"}
"""From the name of a RuntimeClass to its handler."""


async def apply(kubeconfig: Path, paths: ClusterPaths) -> None:
    """Put the RuntimeClasses into a cluster."""
    del paths
    async with connected(kubeconfig) as client:
        for name, handler in RUNTIMES.items():
            await client.apply(_CLASS, "", name, _class(name, handler))


def _class(name: str, handler: str) -> dict[str, Any]:
    return {
        "apiVersion": _CLASS.api_version,
        "kind": _CLASS.kind,
        "metadata": {"name": name},
        "handler": handler,
    }
