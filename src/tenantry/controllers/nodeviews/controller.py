"""Keeps the views of contributed nodes current: the glue.

The views are computed for a cluster of their own in the runtime, whose caches keep other parts of pods and Services
than those of other controllers. Without a contributed node it watches one object, the register of contributions.

A change of any pod can change any view, so there is one key. A comparison of all views is followed by a pause that is
`REST` times as long: views take at most a fifth of the operator's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView
from tenantry.api.policyparameters import PolicyParameters
from tenantry.controllers import watched
from tenantry.controllers.nodeviews import desired
from tenantry.controllers.nodeviews.gather import DECODERS, MADE, OURS, REGISTERED, contributed, gather
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Plan
from tenantry.world.netpol.objects import record_of

VIEWS = ClusterId("node-views")
"""The id under which the runtime has the API server for this controller."""

REST = 4.0
"""The pause after a comparison, as a multiple of the time that it took."""

LEAST_REST_SECONDS = 0.1

_ALL = "all"

log = logging.getLogger(__name__)


class NodeViewController:
    """Reconciles all views; there is one key."""

    name = "node-views"
    kind = NodeView

    def __init__(self) -> None:
        self._not_before = 0.0
        self._is_used = False

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller before the first node is contributed."""
        return [
            Watch(
                resource=PolicyParameters.resource,
                decode=watched.decoder(PolicyParameters),
                keys=lambda _: [_ALL],
                selectors=REGISTERED,
            )
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Write the views that have changed; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        names = contributed(cluster)
        if not names and not self._is_used:
            return None
        began = cluster.clock.monotonic()
        if began < self._not_before:
            return self._not_before - began
        for watch in _more():
            await cluster.require(self.name, watch)
        self._is_used = True
        began = cluster.clock.monotonic()
        inputs = gather(cluster, names)
        plans = [("", desired.removal(inputs))]
        for node, content in desired.contents(inputs):
            plans += [
                (node, plan)
                for plan in desired.plan(inputs, node, content, cluster.clock.now(), cluster.writer.equivalent)
            ]
            # The compilation for one node takes milliseconds: other reconciles may run in between.
            await asyncio.sleep(0)
        now = cluster.clock.monotonic()
        self._not_before = now + max(REST * (now - began), LEAST_REST_SECONDS)
        problems = [await self._write(cluster, node, plan) for node, plan in plans if not plan.is_empty]
        for problem in problems:
            if problem is not None:
                raise problem
        return None

    async def _write(self, cluster: Cluster, node: str, plan: Plan) -> TenantryError | None:
        """Apply a plan; a node that fails must not keep the views of others from being written."""
        outcome = await cluster.writer.apply(plan)
        for blocked in outcome.blocked:
            log.warning("a node cannot read its view", extra={"node": node, "problem": blocked.message})
        if outcome.error is not None:
            # The queue reports only the first problem, and knows no node.
            log.warning("a view is not written", extra={"node": node, "problem": str(outcome.error)})
        return outcome.error


def _more() -> list[Watch]:
    """Return the watches of a cluster with contributed nodes."""
    found = [
        Watch(
            resource=kind,
            decode=decode,
            keys=_of_made if kind in MADE else _of_kept,
            selectors=OURS if kind in MADE else None,
        )
        for kind, decode in DECODERS.items()
    ]
    return [watched.nodes(_of_node), *found]


def _of_kept(change: Change[Any]) -> Iterable[str]:
    """Return the key unless only fields have changed that are not kept, such as the conditions of a pod."""
    before, after = change.before, change.after
    is_news = before is None or after is None or msgspec.structs.replace(before, version=after.version) != after
    return [_ALL] if is_news else ()


def _of_made(change: Change[Observed]) -> Iterable[str]:
    found = change.after or change.before
    name = found.name if found is not None else ""
    # Deleted or changed by another client; bindings of earlier versions are part of a condition.
    return [_ALL] if "contributed-" in name else ()


def _of_node(change: Change[Node]) -> Iterable[str]:
    before, after = change.before, change.after
    if before is None or after is None:
        return [_ALL]
    # Heartbeats change only the status, of every node, every few seconds.
    return [_ALL] if _seen(before) != _seen(after) else ()


def _seen(node: Node) -> object:
    conditions = [each for each in node.status.conditions if each.type == desired.CONDITION]
    return msgspec.structs.replace(record_of(node), version=0), conditions
