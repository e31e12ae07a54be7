"""Certificates of users, issued by a real control plane to a caller that is interrupted."""

from __future__ import annotations

import asyncio

import pytest
from cli_command import Cli

from tenantry.api.model import Resource
from tenantry.api.signing import SigningRequest
from tenantry.cli import certificates
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client


class _InterruptedAtDelete(Client):
    """A client whose caller is interrupted when the client first begins to delete."""

    caller: asyncio.Task[object] | None = None

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: int = 0,
        propagation: str = "Background",
    ) -> None:
        if self.caller is not None:
            self.caller.cancel()
            self.caller = None
        await super().delete(resource, namespace, name, uid=uid, version=version, propagation=propagation)


@pytest.mark.asyncio(loop_scope="session")
async def test_an_interruption_leaves_no_request(cli: Cli) -> None:
    """E01: Ctrl-C while the request is deleted ends the caller when the request is gone."""
    async with _InterruptedAtDelete(kubeconfig.load([cli.admin_kubeconfig])) as client:
        client.caller = caller = asyncio.ensure_future(certificates.issue(client, "none", "interrupted", seconds=600))
        with pytest.raises(asyncio.CancelledError):
            await caller
        left = await client.list(SigningRequest, selectors={"tenantry.dev/tenant": "none"})
        assert left == []
