"""Writes of a controller's own, and what they wake."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.engine.cluster import Cluster, Watch
from testkit.model import World
from testkit.worldcluster import WorldCluster


class Counting:
    """Writes a status that differs each time, and counts its reconciles."""

    name = "counting"
    kind = VirtualControlPlane

    def __init__(self) -> None:
        self.count = 0

    def watches(self) -> Sequence[Watch]:
        """Return what wakes it."""
        return [watched.control_planes(watched.own_key)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Write the count."""
        self.count += 1
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
        assert found is not None
        await cluster.writer.status(replace(found, status=replace(found.status, endpoint=str(self.count))))
        return None


def test_a_status_that_a_controller_writes_does_not_wake_it() -> None:
    """A controller that waits, or backs off, would start again at each of its own reports."""
    world, counting = World(), Counting()
    world.create(Namespace(metadata=ObjectMeta(name="acme")))
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme")))
    cluster = WorldCluster(world, [counting])
    cluster.settle()
    assert counting.count == 1
    world.patch(VirtualControlPlane.resource, "acme/web", {"metadata": {"labels": {"of": "others"}}})
    cluster.settle()
    assert counting.count == 2
