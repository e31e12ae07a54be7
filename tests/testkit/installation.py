"""Tenantry put into a cluster of a test's, as `tenantry up` does it."""

from __future__ import annotations

from pathlib import Path

from tenantry.install import apply, manifests
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client


async def install(path: Path) -> None:
    """Put Tenantry into the cluster of a kubeconfig."""
    async with Client(kubeconfig.load([path])) as client:
        objects = manifests.foundation(manifests.LOCAL_USER)
        await apply.apply(client, objects)
        await apply.in_force(client)
