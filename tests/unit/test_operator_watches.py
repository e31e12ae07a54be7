"""What the operator's controllers watch together."""

from __future__ import annotations

from tenantry.controllers.operator import controllers
from tenantry.engine.cluster import HOME, Cluster
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit.clock import ManualClock


async def test_the_operators_controllers_agree_on_how_each_kind_is_cached() -> None:
    clock = ManualClock()
    client = Client(Connection(server="https://192.0.2.1", source="a test"))
    cluster = Cluster(HOME, client, clock=clock, instance="test")
    everything = controllers("uid")
    Runtime(clock=clock, metrics=Metrics()).add(cluster, everything)
    for controller in everything:
        for watch in controller.watches():
            assert watch.optional or cluster.cache_of(watch.resource) is not None


def test_controllers_have_names_of_their_own() -> None:
    names = [controller.name for controller in controllers("uid")]
    assert len(set(names)) == len(names)
