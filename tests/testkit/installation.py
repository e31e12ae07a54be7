"""Installs Tenantry in a test's cluster as `tenantry up` does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.install import apply, installed, manifests
from tenantry.install.fallback import MutationForm
from tenantry.install.repairs import REPAIRS
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client


async def install(path: Path) -> None:
    """Install Tenantry in the cluster of a kubeconfig."""
    async with Client(kubeconfig.load([path])) as client:
        form = await installed.form(client)
        await apply.apply(client, manifests.foundation(manifests.LOCAL_USER, form))
        if form is MutationForm.POLICIES:
            await apply.in_force(client)


@asynccontextmanager
async def without_repairs(client: Client) -> AsyncGenerator[None]:
    """Let installed objects be changed while the context is open; then the operator restores them again."""
    await apply.end_rights(client)
    try:
        yield
    finally:
        made = manifests.foundation(manifests.LOCAL_USER)
        switch = [each for each in made if (each["kind"], each["metadata"]["name"]) == ("ClusterRoleBinding", REPAIRS)]
        await apply.apply(client, switch)
