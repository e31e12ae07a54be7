"""The version of Kubernetes that a hosted control plane reports."""

from __future__ import annotations

import msgspec

from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


async def read(connection: Connection) -> str:
    """Return the version that an API server reports, as in "1.36.3".

    Raises:
        TenantryError: It does not answer.
    """
    async with Client(connection, max_connections=1) as client:
        return msgspec.json.decode(await client.request("GET", "/version"), type=_Answer).git_version.removeprefix("v")
