"""Divides control planes among the replicas of the operator: a Lease for each shard.

    a Lease is free ─► this replica holds it ─► its shard is served ─► the Lease is lost, or another replica asks for it

A replica takes one shard at once, and further ones only after a pause, in which other replicas may take them. One that
has none while another has two or more asks for one of those. So each replica serves about as many as the others, and
the shards of a replica that ends go to those that are left.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from tenantry.api.clusterapi import TenantryControlPlane, TenantryMachine
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers.virtualcontrolplane import shards
from tenantry.controllers.virtualcontrolplane.shards import Shard
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.lease import DURATION_SECONDS, RENEW_SECONDS, Election

YIELD_SECONDS = DURATION_SECONDS + 5.0
"""How long others may take a free shard before a replica that has one takes it."""

log = logging.getLogger(__name__)

Serve = Callable[[Shard, Election], Awaitable[None]]
"""Serves a shard until its Lease is lost."""


class ShardKeeper:
    """Serves the shards whose Leases this replica holds.

    Args:
        elections: One for each shard, in their order.
        serve: See `Serve`.
        yield_seconds: See `YIELD_SECONDS`.
    """

    def __init__(self, elections: Sequence[Election], serve: Serve, yield_seconds: float = YIELD_SECONDS) -> None:
        self._elections = elections
        self._serve = serve
        self._yield = yield_seconds
        self._held: set[int] = set()
        self._next = 0.0

    @property
    def held(self) -> frozenset[int]:
        """Return the numbers of the shards that it serves."""
        return frozenset(self._held)

    async def run(self) -> None:
        """Take and serve shards until cancelled, and release them."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._take(group)
                await asyncio.sleep(RENEW_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret

    async def _take(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time
        free = [each for each in range(len(self._elections)) if each not in self._held]
        random.shuffle(free)
        for index in free:
            may_take = not self._held or now() >= self._next
            if may_take and await self._elections[index].attempt():
                self._held.add(index)
                self._next = now() + self._yield
                group.create_task(self._keep(index))
        asked = shards.to_request([each.holder for each in self._elections], self._elections[0].identity)
        if not self._held and asked is not None and now() >= self._next:
            self._next = now() + self._yield
            try:
                await self._elections[asked].request()
            except ApiError as error:
                log.warning("a shard cannot be requested", extra={"shard": asked, "error": str(error)})

    async def _keep(self, index: int) -> None:
        election = self._elections[index]
        try:
            await self._serve(Shard(index, len(self._elections)), election)
        finally:
            # Also when cancelled: the next replica would wait until the Lease expires.
            await asyncio.shield(election.release())
            self._held.discard(index)


class Bystander:
    """Stands for a controller that the leader runs: its keys are of no use here, because the leader watches.

    Args:
        name: Its name.
        kind: What it reconciles there.
    """

    def __init__(self, name: str, kind: type) -> None:
        self.name = name
        self.kind = kind

    def watches(self) -> Sequence[Watch]:
        """Return no watches."""
        return ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - it does nothing
        """Do nothing."""
        return None


def bystanders() -> list[Bystander]:
    """Return what stands for the controllers that controllers of control planes wake."""
    return [
        Bystander("tenant-elsewhere", Tenant),
        Bystander("subnamespace-elsewhere", Subnamespace),
        Bystander("cluster-elsewhere", DedicatedCluster),
        Bystander("capi-control-plane-elsewhere", TenantryControlPlane),
        Bystander("capi-machine-elsewhere", TenantryMachine),
    ]
