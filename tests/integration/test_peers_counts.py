"""Numbers of objects at a peer: those in the quota of a home are divided over its tenants (L05).

On clusters of its own: what other tests leave there takes shares, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Json
from tenantry.api.offloading import NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import PeerCluster
from tenantry.api.tenant import Tenant
from testkit.api import until
from testkit.peerings import Peering, federated, offloading, peering


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node, connected."""
    async with peering(tenantry_home, "counts", "--nodes", "1") as found:
        await found.connect()
        yield found


@pytest.mark.long
async def test_counts_in_the_quota_of_a_home_are_divided_over_its_tenants(both: Peering) -> None:
    """PEER-43: one tenant of the home does not use the objects of the others up."""
    key, whole = "count/secrets", 40
    await both.peer.patch(
        PeerCluster.resource, both.home_name, {"spec": {"guest": {"quota": {"hard": {key: str(whole)}}}}}
    )
    core = both.tenant

    async def limits(there: str) -> int:
        found = [each["spec"]["hard"].get(key) for each in await both.peer.list(ResourceQuota.resource, there)]
        return int(next((each for each in found if each is not None), "-1"))

    async def is_limited() -> bool:
        return await limits(core) >= 0

    await until(is_limited, "the peer divides the count")
    chosen = await both.offload("chosen", cpu="1", memory="1Gi", pods="5", **{key: "12"})
    given = await both.offload("given")
    assert await limits(chosen) == 12
    assert 0 < await limits(given) < whole - 12
    # More than is left is refused, and no other tenant has less for it.
    await both.home.create(Tenant.resource, federated("greedy", both.peer_name))
    await both.home.ready("greedy")
    wanted = offloading("greedy", both.peer_name, cpu="1", memory="1Gi", pods="5", **{key: str(whole)})
    await both.home.create(NamespaceOffloading.resource, wanted, "greedy")

    async def told() -> bool:
        status: Json = (await both.home.get(NamespaceMap.resource, both.peer_name)).get("status") or {}
        return key in status.get("current", {}).get("greedy", {}).get("message", "")

    await until(told, "the peer has not so many left")
    assert await limits(chosen) == 12
    every = [each["spec"]["hard"].get(key) for each in await both.peer.list(ResourceQuota.resource)]
    assert sum(int(each) for each in every if each is not None) <= whole
