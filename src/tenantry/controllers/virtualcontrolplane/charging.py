"""Charges control planes that other replicas of the operator serve. The glue.

The leader runs the quota controller, whose verdicts are in its memory. It records in the status what a control plane
is charged; the replica that has its shard starts the process when it sees this.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.virtualcontrolplane import charge, desired, status, wakes
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch


class ChargeController:
    """Charges VirtualControlPlanes, and reports those that wait for room.

    Args:
        verdicts: Of the quota controller.
    """

    name = "virtualcontrolplane-charge"
    kind = VirtualControlPlane

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.control_planes(watched.own_key)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Charge one control plane.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
        if found is None:
            cluster.forget(self.name, key)
            return None
        meta, before = found.metadata, found.status
        # Those are not charged, or not yet.
        if meta.deletion_timestamp or desired.FINALIZER not in meta.finalizers or before.phase is PlanePhase.ASLEEP:
            return None
        share = charge.find(found, self._verdicts.get(meta.uid))
        if share.write is not None:
            # Not quiet: the quota controller follows what is charged.
            await cluster.writer.own(share.write)
        elif not share.may_run:
            written = status.compute(
                found,
                share.waits,
                endpoint=before.endpoint,
                now=rfc3339(cluster.clock.now()),
            )
            if written != before:
                await cluster.writer.status(replace(found, status=written))
                wakes.wake_owner(cluster, found)
        return None
