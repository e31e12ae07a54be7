"""The Services that the pods of a contributed node reach, as kube-proxy of that node reads them: pure.

A node gets the Services of the tenants that have pods there, of the namespaces without a tenant that have pods there,
of the cluster's DNS, and the one of the API server. Of each object it gets the fields that kube-proxy reads. Of an
endpoint it does not get the pod, nor the node unless it is the node itself.

Source: Kubernetes, k8s.io/kubernetes/pkg/proxy, `newBaseServiceInfo`, `endpointSliceCache`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.model import Json, Model, Resource, object_key

SERVICES = Resource("", "v1", "services", "Service")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

_SERVICE_NAME = "kubernetes.io/service-name"
_OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
_HEADLESS = "service.kubernetes.io/headless"
_DNS = ("kube-system", "k8s-app", "kube-dns")
_API_SERVER = "default/kubernetes"


class ProxiedService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service.

    Args:
        namespace: Its namespace.
        name: Its name.
        version: The resourceVersion.
        is_shared: Pods of all tenants use it: the cluster's DNS, and the API server.
        content: The object with the fields that kube-proxy reads; {} if kube-proxy has nothing to do for it.
    """

    namespace: str
    name: str
    version: int
    is_shared: bool
    content: Json

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return object_key(self.namespace, self.name)


class ProxiedEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    """An EndpointSlice.

    Args:
        namespace: Its namespace.
        name: Its name.
        version: The resourceVersion.
        service: The key of its Service.
        content: As of a Service.
    """

    namespace: str
    name: str
    version: int
    service: str
    content: Json

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return object_key(self.namespace, self.name)


class _Metadata(Model, frozen=True, kw_only=True):
    name: str
    namespace: str
    resource_version: str = "0"
    labels: dict[str, str] = {}


class _Service(Model, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: Json = {}
    status: Json = {}


class _Endpoints(Model, frozen=True, kw_only=True):
    metadata: _Metadata
    address_type: str = "IPv4"
    endpoints: tuple[Json, ...] | None = None
    ports: tuple[Json, ...] | None = None


_service = msgspec.json.Decoder(_Service)
_endpoints = msgspec.json.Decoder(_Endpoints)


def decode_service(raw: msgspec.Raw) -> ProxiedService:
    """Decode the part of a Service that kube-proxy reads."""
    found = _service.decode(raw)
    meta, spec = found.metadata, found.spec
    has_address = spec.get("clusterIP", "None") not in {"", "None"} and spec.get("type") != "ExternalName"
    namespace, key, value = _DNS
    own = object_key(meta.namespace, meta.name)
    # By its pods, which are those that the NetworkPolicies of tenants allow.
    pods: Json = spec.get("selector") or {}
    is_dns = meta.namespace == namespace and pods.get(key) == value
    return ProxiedService(
        namespace=meta.namespace,
        name=meta.name,
        version=int(meta.resource_version),
        is_shared=own == _API_SERVER or is_dns,
        content={
            "metadata": _metadata(meta),
            "spec": {key: value for key, value in spec.items() if key != "selector"},
            "status": {"loadBalancer": found.status.get("loadBalancer", {})},
        }
        if has_address and _OTHER_PROXY not in meta.labels
        else {},
    )


def decode_endpoints(raw: msgspec.Raw) -> ProxiedEndpoints:
    """Decode the part of an EndpointSlice that kube-proxy reads."""
    found = _endpoints.decode(raw)
    meta = found.metadata
    service = meta.labels.get(_SERVICE_NAME, "")
    kept = ("addresses", "conditions", "hints", "nodeName", "zone")
    endpoints = [{key: each[key] for key in kept if key in each} for each in found.endpoints or ()]
    return ProxiedEndpoints(
        namespace=meta.namespace,
        name=meta.name,
        version=int(meta.resource_version),
        service=object_key(meta.namespace, service) if service else "",
        content={
            "metadata": {**_metadata(meta), "labels": {_SERVICE_NAME: service}},
            "addressType": found.address_type,
            "endpoints": endpoints,
            "ports": list(found.ports or ()),
        }
        if service and _HEADLESS not in meta.labels
        else {},
    )


def reached(services: Iterable[ProxiedService], namespaces: frozenset[str]) -> dict[str, ProxiedService]:
    """Return the Services that pods reach, by their keys.

    Args:
        services: All Services.
        namespaces: The namespaces of the pods, and the others of their tenants.
    """
    return {each.key: each for each in services if each.content and (each.is_shared or each.namespace in namespaces)}


def endpoints_of(slices: Iterable[ProxiedEndpoints], services: dict[str, ProxiedService], node: str) -> list[Json]:
    """Return the EndpointSlices of Services as a node sees them."""
    return [_seen_by(node, each.content) for each in slices if each.content and each.service in services]


def _seen_by(node: str, content: Json) -> Json:
    """Return an EndpointSlice without the names of other nodes."""
    endpoints: list[Json] = content["endpoints"]
    seen = [each if each.get("nodeName", node) == node else {**each, "nodeName": ""} for each in endpoints]
    return {**content, "endpoints": [{k: v for k, v in each.items() if k != "nodeName" or v} for each in seen]}


def _metadata(meta: _Metadata) -> Json:
    return {"name": meta.name, "namespace": meta.namespace}
