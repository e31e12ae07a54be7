"""The free resources of this cluster, for offers of a share: what ready nodes have, without what pods request there."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.api.peercluster import VIRTUAL
from tenantry.engine.cluster import Cluster
from tenantry.mirror.things import PODS
from tenantry.world import quantity
from tenantry.world.podrequests import PodSpecRequests

_FINISHED = ("Succeeded", "Failed")
_COUNTED = ("cpu", "memory", "ephemeral-storage")


class _Placed(PodSpecRequests, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _Phase(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: _Placed
    status: _Phase = _Phase()


async def free(cluster: Cluster, tenant: str) -> Mapping[str, Fraction]:
    """Return what is free, by resource.

    Pods of one tenant do not count: an offer would fall as the home uses it.

    Args:
        cluster: This cluster.
        tenant: The Tenant whose pods do not count.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    nodes = {
        each.metadata.name: each
        for each in await cluster.live.list(Node)
        if each.is_ready and not each.spec.unschedulable and VIRTUAL not in each.metadata.labels
    }
    left: dict[str, Fraction] = {}
    for node in nodes.values():
        for key, value in node.status.allocatable.items():
            left[key] = left.get(key, Fraction()) + quantity.parse(value)
    async for pod in cluster.live.items(PODS, _Pod):
        if pod.spec.node_name not in nodes or pod.status.phase in _FINISHED:
            continue
        namespace = cluster.lookup(Namespace.resource, pod.metadata.namespace)
        if namespace is not None and namespace.labels.get(TENANT) == tenant:
            continue
        left["pods"] = left.get("pods", Fraction()) - 1
        for key in {*_COUNTED, *pod.spec.named("requests")}:
            if key in left:
                left[key] -= pod.spec.requested(key)
    return left
