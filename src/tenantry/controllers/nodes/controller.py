"""Keeps a part of every node as planned, such as its bandwidth, also after kubelet has reset it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from tenantry.api.node import Node
from tenantry.controllers import watched
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import Plan

_ANY_TIME = dt.datetime.min.replace(tzinfo=dt.UTC)


class NodeController:
    """Reconciles nodes; the key is the node's name.

    Args:
        name: In logs and metrics.
        plan: Returns the write that a node needs at this time; the time does not decide whether it needs one. Pure.
    """

    kind = Node

    def __init__(self, name: str, plan: Callable[[Node, dt.datetime], Plan]) -> None:
        self.name = name
        self._plan = plan

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.nodes(self._lacking)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Write the resources that a node lacks.

        Raises:
            ApiError: Something failed, or the node has changed since; the queue tries again.
        """
        node: Node | None = cluster.cache(Node.resource).get(key)
        if node is None:
            cluster.forget(self.name, key)
            return None
        # A node that needs one more write is reconciled again: the answer of this one is news.
        # One write at a time: the plan of the next one needs the node as this write leaves it.
        outcome = await cluster.writer.apply(self._plan(node, cluster.clock.now()))
        if outcome.error is not None:
            raise outcome.error
        return None

    def _lacking(self, change: Change[Node]) -> Iterable[str]:
        """Return the node if it lacks something: a heartbeat is no work."""
        after = change.after
        # A deleted node is a key, too: the queue must forget it.
        return watched.own_key(change) if after is None or not self._plan(after, _ANY_TIME).is_empty else ()
