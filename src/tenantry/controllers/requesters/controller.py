"""Keeps the roles by which requesters read their own TenantRequests: the glue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.requests import REQUESTER_ROLE_PREFIX, TenantRequest
from tenantry.controllers import watched
from tenantry.controllers.requesters import desired
from tenantry.controllers.requesters.gather import BY_ROLE, gather
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch

LOOK_AGAIN_SECONDS = 30.0
"""When to look again whether a foreign object of the role's name is gone."""

log = logging.getLogger(__name__)


class RequesterController:
    """Reconciles the role of one requester; the key is the role's name."""

    name = "requester"
    kind = ClusterRole

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=TenantRequest.resource,
                decode=watched.decoder(TenantRequest),
                keys=_of_request,
                indexes={BY_ROLE: desired.role_of},
            ),
            watched.watch(ClusterRole.resource, _of_role),
            watched.watch(ClusterRoleBinding.resource, _of_role),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - no status waits
        """Apply the plan of one requester's role; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        outcome = await cluster.writer.apply(desired.plan(gather(cluster, key), cluster.writer.equivalent))
        if outcome.error is not None:
            raise outcome.error
        for blocked in outcome.blocked:
            log.warning("a requester cannot read the own requests", extra={"problem": blocked.message})
        return LOOK_AGAIN_SECONDS if outcome.blocked else None


def _of_request(change: Change[TenantRequest]) -> Iterable[str]:
    before, after = change.before, change.after
    found = after or before
    if found is None or (before is not None and after is not None and _seen(before) == _seen(after)):
        return ()  # a decision and its status change nothing here
    return desired.role_of(found)


def _seen(found: TenantRequest) -> object:
    return found.metadata.uid, found.metadata.deletion_timestamp, found.metadata.finalizers


def _of_role(change: Change[Any]) -> Iterable[str]:
    found = change.after or change.before
    return [found.name] if found is not None and found.name.startswith(REQUESTER_ROLE_PREFIX) else ()
