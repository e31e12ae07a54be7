"""Limits the undecided requests of each requester: the newest ones above the limit are withdrawn."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.requests import Decision, Request
from tenantry.controllers.requests import desired
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind

BY_REQUESTER = "requester"
"""Undecided requests, by requester."""

INDEX = {BY_REQUESTER: desired.requester_of}


async def withdraw(cluster: Cluster, request: Request) -> bool:
    """Delete a request whose requester has too many older ones pending, and return whether it was deleted.

    Admission cannot count: without this, any user who may ask could fill the API server's storage.

    Args:
        cluster: Its cache has the requests.
        request: The request.

    Raises:
        ApiError: The API server refuses or fails.
    """
    cache: Cache[Request] = cluster.cache(request.resource)
    # Counted from the cache: a moment behind is enough to keep storage bounded.
    who = desired.counted_as(request)
    if request.status.decision is not Decision.PENDING or cache.count(BY_REQUESTER, who) <= desired.MOST_PENDING:
        return False
    surplus = desired.surplus(cache.by_index(BY_REQUESTER, who))
    if all(each.metadata.uid != request.metadata.uid for each in surplus):
        # A request that was reconciled before this one arrived may be the surplus one: within one second, names decide.
        for each in surplus:
            cluster.wake(type(each), each.key)
        return False
    message = f"withdrawn: {who!r} has {desired.MOST_PENDING} undecided requests; withdraw one, or wait"
    cluster.recorder.say(request, EventKind.WARNING, reasons.LIMIT_REACHED, message)
    await cluster.writer.delete(request)
    return True
