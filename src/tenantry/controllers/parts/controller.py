"""Reconciles slices that have parts of nodes: the key is the slice's name, whatever is left of it.

    give      nodes are chosen, one claim after the other, and each gives its part in one write of labels and resources
              that names the version at which the node was seen: no node gives more than it has
    open      its namespaces' pods are bound to it at admission
    release   namespaces first, then nobody comes any more, then its pods leave, and the parts last

What others do beside is theirs: nobody has to leave for a part.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.errors import Conflict
from tenantry.api.kubernetes import Namespace
from tenantry.api.node import Node
from tenantry.api.slice import Sharing, SliceClaim
from tenantry.controllers import watched
from tenantry.controllers.parts import desired, writes
from tenantry.controllers.parts.gather import BY_PART, gather, part_of_namespace, parts_of_node
from tenantry.controllers.parts.pods import of_others, pods_on
from tenantry.controllers.parts.release import PartRelease
from tenantry.controllers.parts.status import bound, pending, reserved
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import preconditions
from tenantry.controllers.slices.charge import Charges, give_up
from tenantry.controllers.slices.claimindex import ClaimIndex, claim_namespace
from tenantry.controllers.slices.claimqueue import ClaimQueue
from tenantry.controllers.slices.gather import BY_SLICE, SliceInputs, slice_of_claim, users_of
from tenantry.controllers.slices.status import SliceProgress
from tenantry.controllers.slices.writes import tell
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.world.parts import Size, choose, size_of, why_not
from tenantry.world.slices.selection import Choice

LOOK_AGAIN_SECONDS = 5.0
"""When to look again at what no watch tells of: pods of others that have left a node."""

Json = dict[str, Any]
Indexes = dict[str, Callable[[Any], Iterable[str]]]


class PartController:
    """Reconciles slices that have parts of nodes.

    Args:
        verdicts: What the quota controller says of claims.
    """

    name = "parts"
    kind = SliceClaim

    def __init__(self, verdicts: Verdicts) -> None:
        self._charges = Charges(verdicts)
        # Claims are served one after the other: each sees what the one before it has got.
        self._giving = asyncio.Lock()
        # Slices that wait for room.
        self._waiting = ClaimQueue()
        self._claims = ClaimIndex(part_of_namespace)
        self._releasing = PartRelease()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        claims = watched.decoder(SliceClaim)
        by_place: Indexes = {BY_SLICE: slice_of_claim, watched.BY_NAMESPACE: claim_namespace}
        namespaces = watched.watch(Namespace.resource, self._claims.by_namespace)
        indexes = {**(namespaces.indexes or {}), BY_PART: part_of_namespace}
        return [
            Watch(resource=SliceClaim.resource, decode=claims, keys=self._of_claim, indexes=by_place),
            watched.slices(watched.own_key),
            watched.nodes(self._of_node, indexes={BY_PART: parts_of_node}),
            msgspec.structs.replace(namespaces, indexes=indexes),
            watched.subnamespaces(self._claims.by_subnamespace),
            watched.tenants(self._claims.by_tenant),
            watched.defaults(lambda _: list(self._claims)),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one slice one stage further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        now = cluster.clock.now()
        inputs = gather(cluster, key, now)
        if not inputs.is_part and not inputs.nodes and not inputs.labelled:
            self._forget(cluster, key)
            return None
        self._claims.note(inputs)
        go_on = self._release if preconditions.ends(inputs) else self._keep
        progress, again = await go_on(cluster, inputs, now)
        await tell(cluster, gather(cluster, key, now), progress, rfc3339(now))
        turns = [seconds for seconds in (again, inputs.lease.next_seconds) if seconds is not None]
        return min(turns, default=None)

    # -- keeping ----------------------------------------------------------------------------------

    async def _keep(
        self, cluster: Cluster, inputs: SliceInputs, now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        problem = preconditions.unmet(inputs)
        if problem is not None and not inputs.nodes:
            await give_up(cluster, inputs)
            return problem, LOOK_AGAIN_SECONDS
        async with self._giving:
            choice, waits = await self._give(cluster, gather(cluster, inputs.name, now))
        inputs = gather(cluster, inputs.name, now)
        if not choice.short:
            self._waiting.discard(inputs.name)
            if waits is not None and not preconditions.was_held(inputs) and not inputs.nodes:
                return waits, None
        else:
            self._waiting.add(inputs)
            if not preconditions.was_held(inputs):
                # Whatever it got of what it needs altogether stands in the way of others only.
                await self._releasing.take_back(cluster, inputs, inputs.nodes)
                await give_up(cluster, gather(cluster, inputs.name, now))
                return pending(choice.short), LOOK_AGAIN_SECONDS
        wrong = preconditions.degraded(inputs.nodes, choice.short or (waits.message if waits is not None else ""))
        again = LOOK_AGAIN_SECONDS if choice.short else None
        users = users_of(cluster, inputs, now)
        wanted = {each.name for each in users}
        await writes.label(cluster, [each for each in inputs.labelled if each.name not in wanted], None)
        if not users:
            return reserved(inputs, wrong), again
        names = {each.name for each in inputs.labelled}
        await writes.label(cluster, [each for each in users if each.name not in names], inputs.name)
        return bound(inputs, users, wrong), again

    async def _give(self, cluster: Cluster, inputs: SliceInputs) -> tuple[Choice, SliceProgress | None]:
        """Choose what parts are missing, and have nodes give them, once they are paid for.

        Returns:
            What was chosen, and what stands in the way of taking it.
        """
        claim, tenant = inputs.claim, inputs.tenant
        if claim is None or tenant is None:
            return Choice(nodes=(), refused={}), None
        size = size_of(claim.spec.per_node)
        choice, others = await _choose(cluster, inputs)
        if choice.short and not inputs.nodes:
            return choice, None
        waits = await self._charges.settle(cluster, inputs, desired.charged(claim))
        nodes = cluster.cache(Node.resource)

        def give(node: Node) -> Json:
            patch = desired.give(node, inputs.name, size)
            if patch and inputs.name not in parts_of_node(node):
                why = why_not(desired.facts(node, others.get(node.metadata.name, Size())), claim.spec, size)
                if why:
                    raise Conflict(f"node {node.metadata.name!r} does not do any more: {why}")
            return patch

        chosen = [node for name in choice.nodes if (node := nodes.get(name)) is not None] if waits is None else []
        # What somebody changed by hand is put back.
        for node in (*chosen, *inputs.nodes):
            await writes.change(cluster, node, give)
        return choice, waits

    # -- giving back ------------------------------------------------------------------------------

    async def _release(
        self, cluster: Cluster, inputs: SliceInputs, now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        """Take the parts back, and tell those that wait for some."""
        self._waiting.discard(inputs.name)
        progress, again = await self._releasing.go_on(cluster, inputs, now)
        if progress is not None:
            return progress, again
        for waiting in self._waiting:
            cluster.wake(type(self), waiting)
        return preconditions.idle(inputs), None

    def _forget(self, cluster: Cluster, key: str) -> None:
        self._waiting.discard(key)
        self._claims.forget(key)
        self._releasing.forget(key)
        cluster.forget(self.name, key)

    # -- who is concerned -------------------------------------------------------------------------

    def _of_claim(self, change: Change[SliceClaim]) -> Iterable[str]:
        """Return the slice of a claim, and those beside it: which of several a namespace uses may be another now."""
        found = [each for each in (change.before, change.after) if each is not None]
        own = {name for each in found for name in slice_of_claim(each) if each.spec.sharing is Sharing.PART}
        claims = {each.metadata.namespace for each in found}
        return own | set(self._claims.claimed_in(claims))

    def _of_node(self, change: Change[Node]) -> Iterable[str]:
        """Return the slices of a node that is another now, and those that wait for one."""
        before, after = change.before, change.after
        old = desired.facts(before) if before is not None else None
        new = desired.facts(after) if after is not None else None
        if old == new:
            return ()  # a heartbeat
        held = {name for each in (before, after) if each is not None for name in parts_of_node(each)}
        return [*held, *self._waiting]


async def _choose(cluster: Cluster, inputs: SliceInputs) -> tuple[Choice, dict[str, Size]]:
    """Return the nodes that a claim lacks, and what pods of others have on those that were looked at.

    Only nodes that would be taken are looked at: to list the pods of all would cost more than all else.
    """
    if inputs.claim is None:
        return Choice(nodes=(), refused={}), {}
    others: dict[str, Size] = {}
    nodes: list[Node] = list(cluster.cache(Node.resource))
    while True:
        facts = (desired.facts(node, others.get(node.metadata.name, Size())) for node in nodes)
        choice = choose(inputs.claim.spec, facts, inputs.name)
        unseen = [name for name in choice.nodes if name not in others]
        if not unseen:
            return choice, others
        found = await asyncio.gather(*(pods_on(cluster, name) for name in unseen))
        others |= {name: of_others(pods) for name, pods in zip(unseen, found, strict=True)}
