"""The shared cluster is what it says."""

from __future__ import annotations

from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster


async def test_the_version_is_the_one_that_was_built(cluster: LocalCluster, admin: Client) -> None:
    """E2 foundation: a real Kubernetes."""
    assert b"v1.36.3" in await admin.request("GET", "/version")
    done = cluster.kubectl("version")
    assert "Server Version: v1.36.3" in done.stdout
    assert "Client Version: v1.36.3" in done.stdout
