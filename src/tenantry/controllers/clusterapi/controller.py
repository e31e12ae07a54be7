"""Reconciles the three kinds that Cluster API creates here; the keys are theirs. The glue.

None of them does anything while their CRDs are not installed (`tenantry install --cluster-api-provider`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import TenantryCluster, TenantryControlPlane, TenantryMachine
from tenantry.api.errors import ApiError
from tenantry.api.model import KubernetesObject, object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.clusterapi import gather, infrastructure, machines, planes
from tenantry.controllers.clusterapi.children import is_paused
from tenantry.controllers.conclusion import problem_of
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch

PAUSED_SECONDS = 15.0
"""How soon to look again at what is paused: no event of a Cluster wakes these controllers."""

CLUSTER_SECONDS = 2.0
"""How soon to look whether a Cluster has another control plane: no event of a Cluster wakes these controllers."""

BOOTSTRAP_SECONDS = 2.0
"""How soon to look whether a Machine has its bootstrap data: no event of a Machine wakes these controllers."""

RENEWAL_SECONDS = 300.0
"""How soon to look whether the kubeconfig has been renewed."""


class InfrastructureController:
    """Reconciles TenantryClusters."""

    name = "clusterapi-infrastructure"
    kind = TenantryCluster

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [gather.watch(TenantryCluster)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Report that the infrastructure is there; return in how many seconds to look again, None for never.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        found = gather.infrastructure(cluster, key)
        if found is None:
            cluster.forget(self.name, key)
            return None
        if found.metadata.deletion_timestamp:
            return None
        its = await gather.cluster_of(cluster, found)
        why = infrastructure.obstacle(found, its, gather.control_planes(cluster, found))
        status = infrastructure.status(found, why, rfc3339(cluster.clock.now()))
        if status != found.status:
            await cluster.writer.status(replace(found, status=status))
        if why is infrastructure.UNANSWERED:
            return CLUSTER_SECONDS
        return PAUSED_SECONDS if is_paused(found, its) else None


class ControlPlaneController:
    """Reconciles TenantryControlPlanes."""

    name = "clusterapi-control-plane"
    kind = TenantryControlPlane

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [gather.watch(TenantryControlPlane), watched.control_planes(_Owned(TenantryControlPlane))]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one control plane up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status reports it, and the queue tries again.
        """
        found = gather.control_plane(cluster, key)
        if found is None:
            cluster.forget(self.name, key)
            return None
        outcome = await cluster.writer.apply(planes.plan(await gather.plane_inputs(cluster, found)))
        seen = gather.control_plane(cluster, key)
        if seen is None or seen.metadata.uid != found.metadata.uid:
            return None
        inputs = await gather.plane_inputs(cluster, seen)
        problem = problem_of(outcome) if outcome.error is not None else None
        wanted = planes.status(inputs, problem, rfc3339(cluster.clock.now()))
        if wanted != seen.status:
            await cluster.writer.status(replace(seen, status=wanted))
            if wanted.initialization != seen.status.initialization:
                # Own writes wake no reconciler.
                for each in gather.infrastructures(cluster, seen):
                    cluster.wake(TenantryCluster, each.key)
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        return PAUSED_SECONDS if is_paused(seen, inputs.cluster) else RENEWAL_SECONDS


class MachineController:
    """Reconciles TenantryMachines."""

    name = "clusterapi-machine"
    kind = TenantryMachine

    def __init__(self) -> None:
        # Key of each to its Slice, "" while it has none.
        self._slices: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            gather.watch(TenantryMachine),
            watched.slice_claims(_Owned(TenantryMachine)),
            watched.node_handovers(self._of_handover),
            watched.control_planes(self._of_plane),
            # Of the cache: Machines read the longest grace period when they are reconciled.
            watched.defaults(_none),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one Machine up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status reports it, and the queue tries again.
        """
        found = gather.machine(cluster, key)
        if found is None:
            self._slices.pop(key, None)
            cluster.forget(self.name, key)
            return None
        inputs = await gather.machine_inputs(cluster, found)
        self._slices[key] = inputs.slice
        outcome = await cluster.writer.apply(machines.plan(inputs))
        seen = gather.machine(cluster, key)
        if seen is None or seen.metadata.uid != found.metadata.uid:
            return None
        inputs = await gather.machine_inputs(cluster, seen)
        self._slices[key] = inputs.slice
        problem = problem_of(outcome) if outcome.error is not None else None
        wanted = machines.status(inputs, problem, rfc3339(cluster.clock.now()))
        if wanted != seen.status:
            await cluster.writer.status(replace(seen, status=wanted))
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        if inputs.awaits_bootstrap:
            return BOOTSTRAP_SECONDS
        return PAUSED_SECONDS if any(each.reason == reasons.PAUSED for each in wanted.conditions) else None

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        """Return the Machine of a node; all of them when a node is free again, which one may wait for."""
        found = change.after or change.before
        if found is None:
            return []
        if change.after is None:
            return list(self._slices)
        return [key for key, name in self._slices.items() if name == found.spec.slice]

    def _of_plane(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        """Return the Machines that may wait for a control plane, when one comes or goes."""
        before, after = change.before, change.after
        found = after or before
        if found is None or (before is not None and after is not None and before.metadata.uid == after.metadata.uid):
            return []
        return [key for key in self._slices if key.partition("/")[0] == found.metadata.namespace]


class _Owned:
    """Returns the keys of the objects of a kind that control what has changed.

    Args:
        kind: Their kind.
    """

    def __init__(self, kind: type[KubernetesObject]) -> None:
        self._kind = kind.resource.kind

    def __call__(self, change: Change[VirtualControlPlane] | Change[SliceClaim]) -> Iterable[str]:
        """Return the keys of a change."""
        sides: list[KubernetesObject] = [each for each in (change.before, change.after) if each is not None]
        return sorted(
            {
                object_key(each.metadata.namespace, owner.name)
                for each in sides
                for owner in each.metadata.owner_references
                if owner.controller and owner.kind == self._kind
            }
        )


def _none(_: Change[TenancyDefaults]) -> Iterable[str]:
    return ()


def controllers() -> list[InfrastructureController | ControlPlaneController | MachineController]:
    """Return the controllers of the kinds of Cluster API."""
    return [InfrastructureController(), ControlPlaneController(), MachineController()]
