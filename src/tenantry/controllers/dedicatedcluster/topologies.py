"""Keeps DedicatedClusters of Cluster API: reads the Cluster, writes its own fields, reports. The glue.

The Cluster is read from the API server, not watched: its kind may not be there, and the operator has no right to it
before `tenantry install --cluster-api-clusters`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenantry.api.clusterapi import CLUSTER_CLASSES, CLUSTERS, kubeconfig_name
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.model import Json
from tenantry.api.tenant import Tenant
from tenantry.controllers.conclusion import problem_of
from tenantry.controllers.dedicatedcluster import template as templates
from tenantry.controllers.dedicatedcluster import topology
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.dedicatedcluster.topology import TopologyInputs
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import CRDS, Cluster
from tenantry.engine.conditions import is_true
from tenantry.world.inheritance import SECRETS

PENDING_SECONDS, SETTLED_SECONDS = 5.0, 30.0
"""How soon to read the Cluster again, before and after it is Ready."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


async def provider(cluster: Cluster, found: DedicatedCluster, template: ClusterTemplate | None) -> ClusterProvider:
    """Return which provider a DedicatedCluster has.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    may_be = found.spec.provider is not ClusterProvider.HOSTED and template is not None
    asks = may_be and not isinstance(found.status.provider, ClusterProvider)
    return topology.resolve(found, template, is_installed=await _is_installed(cluster) if asks else False)


async def _is_installed(cluster: Cluster) -> bool:
    return await cluster.live.find(CRDS, "", CLUSTERS.full_name) is not None


async def reconcile(cluster: Cluster, of: ClusterInputs) -> float | None:
    """Bring the Cluster of a DedicatedCluster up to date; return in how many seconds to look again, None for never.

    Args:
        cluster: The cluster that the operator runs in.
        of: The DedicatedCluster and its template.

    Raises:
        ApiError: Something failed; the status reports it, and the queue tries again.
    """
    found = of.found
    inputs = await _inputs(cluster, of)
    outcome = await cluster.writer.apply(topology.plan(inputs))
    seen: DedicatedCluster | None = cluster.cache(DedicatedCluster.resource).get(found.key)
    if seen is None or seen.metadata.uid != found.metadata.uid:
        return None
    problem = topology.refusal(inputs, problem_of(outcome) if outcome.error is not None else None)
    inputs = await _inputs(cluster, replace(of, found=seen))
    wanted = topology.status(inputs, problem, rfc3339(cluster.clock.now()))
    if wanted != seen.status:
        await cluster.writer.status(replace(seen, status=wanted))
        if seen.metadata.name == seen.metadata.namespace:
            cluster.wake(Tenant, seen.metadata.namespace)
    if isinstance(outcome.error, ApiError):
        raise outcome.error
    return SETTLED_SECONDS if is_true(wanted.conditions, "Ready") else PENDING_SECONDS


async def _inputs(cluster: Cluster, of: ClusterInputs) -> TopologyInputs:
    """Return what decides about a DedicatedCluster.

    Raises:
        ApiError: The API server refuses anything but the right to the kinds of Cluster API, or does not answer.
    """
    meta = of.found.metadata
    inputs = TopologyInputs(found=of.found, template=of.template, is_installed=await _is_installed(cluster))
    if inputs.is_installed:
        try:
            data = await cluster.live.find(CLUSTERS, meta.namespace, meta.name)
        except Forbidden:
            return replace(inputs, is_permitted=False)
        secret = kubeconfig_name(meta.name)
        inputs = replace(
            inputs,
            cluster=_json.decode(data) if data is not None else None,
            has_kubeconfig=data is not None and await cluster.live.find(SECRETS, meta.namespace, secret) is not None,
        )
        inputs = replace(inputs, cluster_class=await _class(cluster, inputs))
    return replace(inputs, refused=tuple(templates.refused(of, inputs.size)))


async def _class(cluster: Cluster, inputs: TopologyInputs) -> Json | UnsetType | None:
    """Return the ClusterClass that a Cluster has, or is to have; None if there is none, UNSET if it is not known."""
    reference = inputs.class_reference
    if reference is None:
        return UNSET
    try:
        data = await cluster.live.find(CLUSTER_CLASSES, *reference)
    except Forbidden:
        # Of an earlier installation: Cluster API reports it itself.
        return UNSET
    return _json.decode(data) if data is not None else None
