"""How control planes are divided among replicas of the operator (pure)."""

from __future__ import annotations

import uuid

import pytest

from tenantry.controllers.virtualcontrolplane.shards import Shard, to_request


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_each_control_plane_is_in_exactly_one_shard(count: int) -> None:
    """H01: no control plane has two mirrors, or none; the shards are about equal."""
    shards = [Shard(index, count) for index in range(count)]
    uids = [str(uuid.UUID(int=number)) for number in range(4000)]
    assert all(sum(each.has(uid) for each in shards) == 1 for uid in uids)
    sizes = [sum(each.has(uid) for uid in uids) for each in shards]
    assert min(sizes) > 0.7 * len(uids) / count


@pytest.mark.parametrize(
    ("holders", "asked"),
    [
        (["a", "a"], 1),
        (["a", "b", "b"], 2),
        (["b", "a", "b", "a", "a"], 4),
        (["a", "b"], None),
        (["a", "own", "a"], None),
        (["", ""], None),
        ([], None),
    ],
)
def test_a_replica_without_a_shard_asks_the_one_that_has_most(holders: list[str], asked: int | None) -> None:
    """H01: replicas share the work, and a replica that has one shard keeps it."""
    assert to_request(holders, "own") == asked
