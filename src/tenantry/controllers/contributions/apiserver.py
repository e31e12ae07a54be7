"""The addresses of the API server, for which no node gets a certificate."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.engine.reader import Reader

NAME, NAMESPACE = "kubernetes", "default"
"""The name of its Service and of the EndpointSlice behind it, which the API server creates itself."""


class ServiceSpec(Model, frozen=True, kw_only=True):
    """The addresses that pods use."""

    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")


class Service(KubernetesObject, frozen=True, kw_only=True):
    """A Service."""

    resource: ClassVar[Resource] = Resource("", "v1", "services", "Service")

    spec: ServiceSpec = ServiceSpec()


class Endpoint(Model, frozen=True, kw_only=True):
    """A replica of the API server."""

    addresses: tuple[str, ...] = ()


class EndpointSlice(KubernetesObject, frozen=True, kw_only=True):
    """The replicas of the API server."""

    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

    endpoints: tuple[Endpoint, ...] = ()


async def addresses(live: Reader) -> frozenset[str]:
    """Return the addresses of the API server, for pods and behind its Service.

    Raises:
        ApiError: They cannot be read.
    """
    service = await live.get(Service, NAME, NAMESPACE)
    found = {*service.spec.cluster_ips}
    try:
        slice_ = await live.get(EndpointSlice, NAME, NAMESPACE)
    except NotFound:
        return frozenset(found)  # a managed control plane, whose endpoints are not published
    return frozenset(found.union(*(each.addresses for each in slice_.endpoints)))
