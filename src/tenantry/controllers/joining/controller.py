"""Brings nodes of the host into one control plane, and out of it: a controller of the control plane. The glue.

NodeHandover, Node on the host ─┐
Node inside, its pods ──────────┴─► writes inside ─► status of the NodeHandover
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import NotFound
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.controllers import watched
from tenantry.controllers.joining.desired import JoinInputs, decide, orphaned
from tenantry.controllers.slices import pods
from tenantry.controllers.slices.pods import BY_NODE, Pod, PodFacts
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import DirectWrite, Plan


class JoinController:
    """Reconciles the Nodes inside of one control plane; the keys are their names.

    Args:
        uid: The uid of the VirtualControlPlane.
        home: The host: its caches have the NodeHandovers and the Nodes.
    """

    name = "joining"
    kind = Node

    def __init__(self, uid: str, home: Cluster) -> None:
        self._uid = uid
        self._home = home

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first node on that leaves."""
        on_host = (watched.node_handovers(self._of_handover), watched.nodes(self._of_host))
        return [
            *(msgspec.structs.replace(each, cluster=self._home) for each in on_host),
            watched.nodes(watched.own_key),
        ]

    def _pods(self) -> Watch:
        return Watch(resource=Pod.resource, decode=pods.observe, keys=self._of_pod, indexes={BY_NODE: pods.leaving_of})

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        found = change.after or change.before
        return [found.metadata.name] if found is not None and found.spec.plane.uid == self._uid else ()

    def _of_host(self, change: Change[Node]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or self._handover(found.metadata.name) is None:
            return ()
        return [found.metadata.name] if change.before is None or change.after is None else ()

    def _of_pod(self, change: Change[PodFacts]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or not found.node:
            return ()
        handover = self._handover(found.node)
        return [found.node] if handover is not None and handover.metadata.deletion_timestamp else ()

    def _handover(self, name: str) -> NodeHandover | None:
        found: NodeHandover | None = self._home.cache(NodeHandover.resource).get(name)
        return found if found is not None and found.spec.plane.uid == self._uid else None

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one node a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One of both API servers failed; the queue tries again.
        """
        # A NodeHandover that is not known yet is not gone.
        await self._home.listed(NodeHandover.resource, Node.resource)
        found, inside = self._handover(key), cluster.cache(Node.resource).get(key)
        if found is None:
            await self._write(cluster, orphaned(inside) if inside is not None else ())
            return None
        leaving: list[PodFacts] = []
        if found.metadata.deletion_timestamp:
            # Users inside create as many pods as they like: no memory is spent on them before.
            there: Cache[PodFacts] = await cluster.require(self.name, self._pods())
            leaving = list(there.by_index(BY_NODE, key))
        inputs = JoinInputs(
            handover=found,
            below=self._home.cache(Node.resource).get(key),
            inside=inside,
            pods=leaving,
            now=cluster.clock.now(),
        )
        decision = decide(inputs)
        await self._write(cluster, decision.writes)
        if decision.status != found.status:
            with suppress(NotFound):
                # Not quiet: the host's side, and what counts nodes, follow the stage.
                await self._home.writer.own(request.replace(replace(found, status=decision.status), "status"))
        return decision.again_seconds

    async def _write(self, cluster: Cluster, writes: tuple[DirectWrite, ...]) -> None:
        outcome = await cluster.writer.apply(Plan(writes=writes))
        if outcome.error is not None:
            raise outcome.error
