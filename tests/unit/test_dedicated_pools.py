"""What a pool of a DedicatedCluster may ask for (H04)."""

from __future__ import annotations

import pytest

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedClusterSpec, PoolSettings
from tenantry.api.nodehandover import NodeTaint, TaintEffect
from tenantry.controllers.dedicatedcluster import desired
from testkit.clusterworld import ClusterWorld


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
