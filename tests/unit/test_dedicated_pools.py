"""What a pool of a DedicatedCluster may ask for (H04)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedClusterSpec, NodePool, PoolSettings
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.nodehandover import NodeTaint, TaintEffect
from tenantry.api.slice import SliceState
from tenantry.controllers.dedicatedcluster import desired
from testkit.clusterworld import NOW, ClusterWorld


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (PoolSettings(labels={"app": "a b!!"}), "labels must not have 'app': 'a b!!'"),
        (PoolSettings(labels={"a b": ""}), "labels must not have 'a b': ''"),
        (
            PoolSettings(taints=(NodeTaint(key="a b/!", effect=TaintEffect.NO_SCHEDULE),)),
            "taints must not have 'a b/!'",
        ),
        (PoolSettings(taints=(NodeTaint(key="a", effect=TaintEffect.NO_SCHEDULE),) * 2), "NoSchedule twice"),
    ],
    ids=["value", "key", "taint", "twice"],
)
def test_a_pool_asks_for_nothing_that_no_node_may_have(settings: PoolSettings, told: str) -> None:
    """H04: the API server inside would refuse its Nodes for ever, after they have left the host."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=1, default_pool=settings))
    (found,) = desired.problems(there.inputs())
    assert found.reason == reasons.INVALID_SPEC
    assert told in found.message
    assert desired.plan(there.inputs()).writes == ()


def test_a_cluster_keeps_a_node_no_longer_than_administrators_allow() -> None:
    """HAND-5: the longest grace period of slices bounds the return of a node, too."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=1, default_pool=PoolSettings(drain_seconds=86400)))
    there.settle()
    (found,) = there.handovers.values()
    assert found.spec.drain_seconds == there.inputs().defaults.max_grace_period_seconds < 86400


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (reasons.NODES_INSUFFICIENT, "; lower count of spec.pools[gpu], or change selector, perNode or nodeNames"),
        (reasons.QUOTA_INSUFFICIENT, "; lower count of spec.pools[gpu], or ask an administrator for more quota"),
        (reasons.PROGRESSING, ""),
    ],
)
def test_a_pool_without_nodes_says_what_to_do(reason: str, told: str) -> None:
    """H04: the message of the claim names its own fields, which the cluster does not have."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=0, pools=(NodePool(name="gpu", count=1),)))
    there.settle()
    claim = there.claims["prod-gpu"]
    pending = Condition(
        type=reasons.PENDING,
        status=ConditionStatus.TRUE,
        reason=reason,
        message="1 node is asked for, and none can be had",
        last_transition_time=NOW,
    )
    there.handovers = {}
    status = replace(claim.status, state=SliceState.PENDING, nodes=(), conditions=(pending,))
    there.claims["prod-gpu"] = replace(claim, status=status)
    message = there.condition(reasons.NODES_READY)[2]
    assert message.startswith("pool 'gpu': 0 of 1 nodes are Ready; SliceClaim 'acme/prod-gpu': 1 node is asked for")
    assert told in message
    assert ("lower" in message) is bool(told)
