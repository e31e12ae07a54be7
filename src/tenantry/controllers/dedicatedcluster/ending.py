"""Until when the end of a DedicatedCluster waits for its nodes: pure.

A node gets the time in which its pods stop, and then a while for its way to the host; one that was not Ready when the
end began gets a short time only. When the time of the last node that is left is over, or a user gives nodes up
(`tenantry cluster delete --leave-nodes`), the cluster ends without them. Their NodeHandovers and their claims stay
until the machines are back, so that no other claim gets one of them.
"""

from __future__ import annotations

import datetime as dt

from tenantry.api.marks import LEAVE_NODES
from tenantry.api.nodehandover import NodeHandover
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs

RETURN_SECONDS = 120
"""How long nodes may take to return, after the seconds that their pods get to stop."""

DEAD_SECONDS = 20
"""The same for nodes that are not Ready, for whose pods the end does not wait: see `desired`."""

CLAIM_SECONDS = 60
"""How long claims may take to end when all nodes are back."""


def deadline(inputs: ClusterInputs) -> dt.datetime:
    """Return until when a cluster that is being deleted waits for its nodes and its claims."""
    since = dt.datetime.fromisoformat(inputs.found.metadata.deletion_timestamp or "")
    left = [_most_seconds(each) for each in inputs.handovers.values()]
    if not left:
        pools = (inputs.found.spec.default_pool, *inputs.found.spec.pools)
        drains = min(max(each.drain_seconds for each in pools), inputs.defaults.max_grace_period_seconds)
        left = [drains + RETURN_SECONDS + CLAIM_SECONDS]
    return since + dt.timedelta(seconds=max(left))


def _most_seconds(found: NodeHandover) -> int:
    drain = found.spec.drain_seconds
    return drain + RETURN_SECONDS if drain else DEAD_SECONDS


def is_over(inputs: ClusterInputs) -> bool:
    """Return whether a cluster that is being deleted waits for its nodes and its claims no longer."""
    return LEAVE_NODES in inputs.found.metadata.annotations or inputs.now >= deadline(inputs)


def seconds_left(inputs: ClusterInputs) -> float | None:
    """Return in how many seconds the deadline is; None for a cluster that stays, or does not wait."""
    if not inputs.found.metadata.deletion_timestamp or is_over(inputs):
        return None
    return (deadline(inputs) - inputs.now).total_seconds()
