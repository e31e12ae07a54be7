"""Reads from the caches what decides which TenantRequests a user may read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Resource
from tenantry.api.requests import TenantRequest
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Lookup

BY_ROLE = "role"
"""TenantRequests, by the name of the role of their requester."""


class RequesterInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the role of one requester.

    Args:
        name: The name of the role and of its binding.
        requests: All TenantRequests of the requester, deleted ones included.
        made: The role and the binding that are there.
        lookup: What is there, by kind and key.
    """

    name: str
    requests: Sequence[TenantRequest]
    made: tuple[tuple[Resource, Observed], ...]
    lookup: Lookup


def gather(cluster: Cluster, name: str) -> RequesterInputs:
    """Read the requests of one requester, and the role made for them.

    Args:
        cluster: Its caches.
        name: The name of the role.
    """
    kinds = (ClusterRoleBinding.resource, ClusterRole.resource)
    there = [(kind, found) for kind in kinds if (found := cluster.lookup(kind, name)) is not None]
    return RequesterInputs(
        name=name,
        requests=tuple(cluster.cache(TenantRequest.resource).by_index(BY_ROLE, name)),
        made=tuple((kind, found) for kind, found in there if found.labels.get(MANAGED_BY) == MANAGER),
        lookup=cluster.lookup,
    )
