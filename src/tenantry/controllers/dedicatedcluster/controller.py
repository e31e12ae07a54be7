"""Keeps the children and the status of DedicatedClusters: the glue; the key is the cluster's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.api.errors import ApiError
from tenantry.api.model import object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.conclusion import problem_of
from tenantry.controllers.dedicatedcluster import desired, ending, reported, status, template, topologies
from tenantry.controllers.dedicatedcluster.gather import (
    CLAIM_INDEXES,
    HANDOVER_INDEXES,
    ClusterInputs,
    gather,
    owner_of,
)
from tenantry.controllers.joining.podcounts import PodCounts
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch


class DedicatedClusterController:
    """Reconciles DedicatedClusters.

    Args:
        counts: Counts the pods on nodes of a cluster that shrinks; None if nothing does.
    """

    name = "dedicatedcluster"
    kind = DedicatedCluster

    def __init__(self, counts: PodCounts | None = None) -> None:
        self._counts = counts
        # By key: the names of claims that it needs, which others may have taken.
        self._known: dict[str, frozenset[str]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        handovers = watched.node_handovers(self._of_handover)
        return [
            watched.dedicated_clusters(watched.own_key),
            watched.control_planes(self._of_plane),
            watched.slice_claims(self._of_claim, CLAIM_INDEXES),
            msgspec.structs.replace(handovers, indexes=HANDOVER_INDEXES),
            watched.defaults(self._of_defaults),
            watched.cluster_templates(lambda _: list(self._known)),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one DedicatedCluster up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status reports it, and the queue tries again.
        """
        found: DedicatedCluster | None = cluster.cache(DedicatedCluster.resource).get(key)
        if found is None:
            self._known.pop(key, None)
            cluster.forget(self.name, key)
            return None
        term = reported.term(found, cluster.clock.now())
        if term.is_expired and not found.metadata.deletion_timestamp:
            meta = found.metadata
            # As it was read: a person may renew it at this moment.
            await cluster.writer.remove(
                found.resource, meta.namespace, meta.name, uid=meta.uid, version=int(meta.resource_version)
            )
            return None
        again = await self._kept(cluster, key, found)
        return min((each for each in (again, term.next_seconds) if each is not None), default=None)

    async def _kept(self, cluster: Cluster, key: str, found: DedicatedCluster) -> float | None:
        """Bring a cluster up to date whose lease has not ended; see `reconcile`."""
        names = desired.claim_names(found)
        self._known[key] = frozenset(names)
        inputs = _inputs(cluster, found, names)
        decided = await _decided(cluster, template.applied(inputs))
        if decided is not inputs:
            # Before the first child: a template that changes in between must not decide about half of them.
            await cluster.writer.status(decided.found)
            current: DedicatedCluster | None = cluster.cache(DedicatedCluster.resource).get(key)
            if current is None:
                return None
            found = current
            inputs = _inputs(cluster, found, names)
        if decided.found.status.provider is ClusterProvider.CLUSTER_API:
            return await topologies.reconcile(cluster, inputs)
        outcome = await cluster.writer.apply(desired.plan(await self._counted(inputs)))
        # What the writes have changed is in the caches.
        seen: DedicatedCluster | None = cluster.cache(DedicatedCluster.resource).get(key)
        if seen is None or seen.metadata.uid != found.metadata.uid:
            return None
        problem = problem_of(outcome) if outcome.error is not None else None
        inputs = _inputs(cluster, seen, names)
        wanted = status.compute(inputs, problem, rfc3339(cluster.clock.now()))
        if wanted != seen.status:
            await cluster.writer.status(msgspec.structs.replace(seen, status=wanted))
            # Own writes wake no reconciler: a Tenant reports the state of its cluster, which has its name.
            if seen.metadata.name == seen.metadata.namespace:
                cluster.wake(Tenant, seen.metadata.namespace)
            if (wanted.sleep, wanted.requests) != (seen.status.sleep, seen.status.requests):
                # The children follow from the status, too.
                cluster.wake(DedicatedCluster, key)
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        return ending.seconds_left(inputs)

    async def _counted(self, inputs: ClusterInputs) -> ClusterInputs:
        """Return the inputs with the pods of the nodes from which a pool that shrinks chooses."""
        names = desired.choosable(inputs)
        if self._counts is None or not names:
            return inputs
        return msgspec.structs.replace(inputs, pods=await self._counts.count(inputs.plane_uid, names))

    # -- keys of changes ----------------------------------------------------------------------------

    def _of_plane(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        """Return the cluster of a VirtualControlPlane; one of another owner has the name of a cluster, too."""
        return [key for key in watched.own_key(change) if key in self._known or _has_owner(change)]

    def _of_claim(self, change: Change[SliceClaim]) -> Iterable[str]:
        """Return the cluster that controls a claim, and those that need its name."""
        found = change.after or change.before
        if found is None:
            return []
        meta = found.metadata
        owners = {
            object_key(meta.namespace, owner.name)
            for each in (change.before, change.after)
            if each is not None
            for owner in each.metadata.owner_references
            if owner.kind == DedicatedCluster.resource.kind
        }
        needing = {
            key for key, names in self._known.items() if meta.name in names and key.rpartition("/")[0] == meta.namespace
        }
        return sorted(owners | needing)

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        """Return the cluster that a node serves; all of them when a node is free again, which one may wait for."""
        found = change.after or change.before
        if found is None:
            return []
        if change.after is None:
            return list(self._known)
        return [object_key(found.spec.plane.namespace, found.spec.plane.name)]

    def _of_defaults(self, change: Change[TenancyDefaults]) -> Iterable[str]:
        before, after = (
            (each.spec.slices.max_grace_period_seconds, each.spec.dedicated_clusters) if each is not None else None
            for each in (change.before, change.after)
        )
        return list(self._known) if before != after else ()


def _inputs(cluster: Cluster, found: DedicatedCluster, names: Sequence[str]) -> ClusterInputs:
    return msgspec.structs.replace(gather(cluster, found, names), now=cluster.clock.now())


async def _decided(cluster: Cluster, inputs: ClusterInputs) -> ClusterInputs:
    """Return the inputs with the provider in the status if that is Cluster API; unchanged if it is not, or is there.

    Raises:
        ApiError: Whether Cluster API is there cannot be known now.
    """
    found = inputs.found
    # The other provider is known by its control plane. Before that is there, a template that comes later may decide.
    if inputs.own_plane is not None or isinstance(found.status.provider, ClusterProvider):
        return inputs
    provider = await topologies.provider(cluster, found, inputs.template)
    if provider is not ClusterProvider.CLUSTER_API:
        return inputs
    told = msgspec.structs.replace(found.status, provider=provider)
    return msgspec.structs.replace(inputs, found=msgspec.structs.replace(found, status=told))


def _has_owner(change: Change[VirtualControlPlane]) -> bool:
    return any(each is not None and owner_of(each) for each in (change.before, change.after))
