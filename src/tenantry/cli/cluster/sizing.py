"""The number of nodes of a cluster that the operator creates for a Tenant with one of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterSpec
from tenantry.api.errors import TenantryError
from tenantry.api.model import ObjectMeta
from tenantry.cli import kinds

if TYPE_CHECKING:
    from tenantry.kube.client import Client

CREATED_SECONDS = 60.0


def of_tenant(tenant: str, nodes: int) -> DedicatedCluster:
    """Return the cluster of a tenant with a number of nodes, as a file has it beside the Tenant."""
    return DedicatedCluster(metadata=ObjectMeta(name=tenant, namespace=tenant), spec=DedicatedClusterSpec(nodes=nodes))


async def resize_new(client: Client, tenant: str, nodes: int) -> None:
    """Wait until the operator has created the cluster of a tenant, and set the number of its nodes.

    Raises:
        TenantryError: It is not created in time; the message has the command that sets the number later.
    """
    from tenantry.cli.following import follow, only

    key = f"{tenant}/{tenant}"
    try:
        async with (
            asyncio.timeout(CREATED_SECONDS),
            aclosing(follow(client, DedicatedCluster, selectors=only((tenant,)), namespace=tenant)) as found,
        ):
            async for each in found:
                if key in each:
                    break
    except TimeoutError:
        told = kinds.told(DedicatedCluster, tenant, tenant)
        raise TenantryError(
            f"{told} is not created after {CREATED_SECONDS:.0f} s, so that it gets one node:"
            f" `tenantry describe tenant {tenant}` has the reason, and"
            f" `tenantry cluster scale {tenant} --nodes {nodes}` sets the number later"
        ) from None
    await client.merge_patch(DedicatedCluster.resource, tenant, tenant, {"spec": {"nodes": nodes}})
