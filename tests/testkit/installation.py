"""Installs Tenantry in a test's cluster as `tenantry up` does."""

from __future__ import annotations

from pathlib import Path

from tenantry.install import apply, manifests
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client


async def install(path: Path) -> None:
    """Install Tenantry in the cluster of a kubeconfig."""
    async with Client(kubeconfig.load([path])) as client:
        objects = manifests.foundation(manifests.LOCAL_USER)
        await apply.apply(client, objects)
        await apply.in_force(client)
