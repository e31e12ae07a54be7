"""A kind that the API server does not list keeps a cluster from being in step only if a controller awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine.cluster import CRDS, HOME, Cluster, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.observed import observe
from tenantry.engine.runtime import Runtime
from tenantry.engine.tasks import in_background
from tenantry.kube import wire
from tenantry.kube.transport import Exchange
from testkit.clock import ManualClock
from testkit.model import World
from testkit.worldclient import WorldClient

GADGETS = Resource("offered.example.com", "v1", "gadgets", "Gadget")
DEFINITION: dict[str, Any] = {
    "metadata": {"name": GADGETS.full_name},
    "spec": {"group": GADGETS.group, "scope": "Namespaced", "versions": [{"name": "v1", "served": True}]},
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}

WATCHED = (CRDS, Namespace.resource)
"""The kinds that are listed."""


class RefusingClient(WorldClient):
    """A client that may not list one kind, and whose watches report nothing.

    Args:
        world: It answers the other lists.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world, lambda: "none")
        self.refused = asyncio.Event()
        self.listed = asyncio.Event()
        self._watches = 0

    async def pages(self, resource: Resource, item: type[Any], **options: Any) -> AsyncIterator[wire.Page[Any]]:  # noqa: ANN401 - see `Client.pages`
        """See `Client.pages`."""
        if resource == GADGETS:
            self.refused.set()
            raise Forbidden("gadgets is forbidden", status=403)
        async for page in super().pages(resource, item, **options):
            yield page

    def open(self, method: str, path: str, **_: object) -> Exchange:  # noqa: ARG002 - any
        """Begin a watch; see `Client.open`."""
        self._watches += 1
        if self._watches == len(WATCHED):
            self.listed.set()
        return cast("Exchange", _silence())


@asynccontextmanager
async def _silence() -> AsyncGenerator[None]:
    await asyncio.Event().wait()
    yield


class Needing:
    """A controller of namespaces and of gadgets."""

    name = "needing"
    kind = Namespace

    def __init__(self, *, awaited: bool) -> None:
        self._awaited = awaited

    def watches(self) -> Sequence[Watch]:
        """Return what it listens to."""
        namespaces = Watch(resource=Namespace.resource, decode=partial(observe, Namespace.resource), keys=lambda _: ())
        gadgets = Watch(
            resource=GADGETS,
            decode=partial(observe, GADGETS),
            keys=lambda _: (),
            optional=True,
            awaited=self._awaited,
        )
        return [namespaces, gadgets]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_kind_that_is_not_listed_stops_those_that_await_it(*, awaited: bool) -> None:
    """VCP-23: a kind that is offered without its rights stopped the mirrors of all control planes."""
    world = World()
    world.put_in(CRDS, DEFINITION)
    world.put_in(Namespace.resource, {"metadata": {"name": "a"}})
    client = RefusingClient(world)
    cluster = Cluster(HOME, client, clock=ManualClock(), instance="test")
    Runtime(clock=ManualClock(), metrics=Metrics()).add(cluster, [Needing(awaited=awaited)])
    synced = asyncio.Event()
    async with asyncio.timeout(10), in_background(cluster.run(synced.set)):
        # In this order: the cluster sees the lists before the test does.
        await client.listed.wait()
        await client.refused.wait()
        if not awaited:
            await synced.wait()
        assert not cluster.is_listed(GADGETS)
        assert cluster.is_synced is not awaited
