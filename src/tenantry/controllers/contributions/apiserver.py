"""Where the API server is reached, which no node may say of itself."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.engine.reader import Reader

NAME, NAMESPACE = "kubernetes", "default"
"""Of its Service and of the EndpointSlice behind, which the API server makes itself."""


class ServiceSpec(Model, frozen=True, kw_only=True):
    """Where pods reach it."""

    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")


class Service(KubernetesObject, frozen=True, kw_only=True):
    """A Service."""

    resource: ClassVar[Resource] = Resource("", "v1", "services", "Service")

    spec: ServiceSpec = ServiceSpec()


class Endpoint(Model, frozen=True, kw_only=True):
    """One of those that serve."""

    addresses: tuple[str, ...] = ()


class EndpointSlice(KubernetesObject, frozen=True, kw_only=True):
    """Those that serve."""

    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

    endpoints: tuple[Endpoint, ...] = ()


async def addresses(live: Reader) -> frozenset[str]:
    """Return the addresses of the API server, for pods and behind its Service.

    Raises:
        ApiError: It does not say so.
    """
    service = await live.get(Service, NAME, NAMESPACE)
    found = {*service.spec.cluster_ips}
    try:
        slice_ = await live.get(EndpointSlice, NAME, NAMESPACE)
    except NotFound:
        return frozenset(found)  # endpoints that something else keeps
    return frozenset(found.union(*(each.addresses for each in slice_.endpoints)))
