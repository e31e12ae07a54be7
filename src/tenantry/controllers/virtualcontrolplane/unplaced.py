"""Reports that VirtualControlPlanes cannot run here, where the operator has no place for their processes.

One that is deleted keeps its finalizer: the operator that set it has started a process, or has tried to, and only that
operator can delete its data and its keys. An endpoint is no better witness: a process that was not ready in time runs
without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane import desired, status, wakes
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import Blocked

_PROBLEM = Blocked(
    reason=reasons.NOT_PLACED,
    message=(
        "virtual control planes run on local clusters (`tenantry up`), and in Pods after `tenantry install"
        " --virtual-control-planes`: this operator has no place for them"
    ),
)


def _left(found: VirtualControlPlane) -> Blocked:
    where = f" (its endpoint was {found.status.endpoint})" if found.status.endpoint else ""
    return Blocked(
        reason=reasons.NOT_PLACED,
        message=(
            f"its process and data may still be on the machine of the operator that started it{where}: start that"
            " operator again, which deletes both; if that machine is gone, remove the finalizer"
            f" {desired.FINALIZER!r} from metadata.finalizers"
        ),
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
        if found is None:
            return None
        problem = _PROBLEM
        if found.metadata.deletion_timestamp:
            if desired.FINALIZER not in found.metadata.finalizers:
                return None
            problem = _left(found)
        before = found.status
        # The operator that started it may run again.
        written = status.compute(
            found,
            problem,
            endpoint=before.endpoint,
            now=rfc3339(cluster.clock.now()),
        )
        if written != found.status:
            await cluster.writer.status(replace(found, status=written))
            wakes.wake_owner(cluster, found)
        return None
