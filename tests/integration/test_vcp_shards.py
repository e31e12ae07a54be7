"""Replicas of the operator divide control planes by Leases on a real API server."""

from __future__ import annotations

import uuid

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.controllers.sharding import ShardKeeper
from tenantry.controllers.virtualcontrolplane.shards import Shard, lease_name
from tenantry.engine.clock import SystemClock
from tenantry.engine.lease import Election
from tenantry.engine.tasks import in_background
from tenantry.kube.client import Client
from testkit.api import SECONDS, Api, until


def replica(admin: Client, namespace: str, identity: str, serving: dict[int, str]) -> ShardKeeper:
    """Return a replica, which records the shards that it serves; two must never serve the same."""
    elections = [
        Election(admin, SystemClock(), namespace=namespace, identity=identity, name=lease_name(index))
        for index in range(2)
    ]

    async def serve(shard: Shard, election: Election) -> None:
        assert shard.index not in serving
        serving[shard.index] = identity
        try:
            await election.hold()
        finally:
            del serving[shard.index]

    return ShardKeeper(elections, serve, yield_seconds=0.5)


@pytest.mark.long
async def test_replicas_share_the_shards_and_take_those_of_one_that_ends(admin: Client) -> None:
    """H01: the first takes all after a pause, the second asks for one, and the end of one gives the other all."""
    name = f"shards-{uuid.uuid4().hex[:8]}"
    await Api(admin).create(Namespace.resource, {"metadata": {"name": name}})
    serving: dict[int, str] = {}

    async def become(*holders: str) -> None:
        async def so() -> bool:
            return sorted(serving.values()) == sorted(holders)

        await until(so, f"{holders} serve", seconds=SECONDS, seen=lambda: serving)

    first, second = (replica(admin, name, each, serving) for each in ("first", "second"))
    async with in_background(first.run()):
        await become("first", "first")
        async with in_background(second.run()):
            await become("first", "second")
            assert (len(first.held), len(second.held)) == (1, 1)
        await become("first", "first")
