"""Reports that VirtualControlPlanes cannot run here, where the operator has no place for their processes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane import status
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import Blocked

_PROBLEM = Blocked(
    reason=reasons.NOT_PLACED,
    message="virtual control planes run on local clusters only (`tenantry up`): this operator has no place for them",
)


class UnplacedController:
    """Reconciles VirtualControlPlanes of an operator without a placement."""

    name = "virtualcontrolplane"
    kind = VirtualControlPlane

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.control_planes(watched.own_key)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Write the condition.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
        if found is None or found.metadata.deletion_timestamp:
            return None
        written = status.compute(found, _PROBLEM, endpoint="", secret="", now=rfc3339(cluster.clock.now()))
        if written != found.status:
            await cluster.writer.status(replace(found, status=written))
        return None
