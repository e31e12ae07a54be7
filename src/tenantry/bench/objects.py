"""The objects of a benchmark's tree: read from the cluster, and written again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Json, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.bench.load import of_run, of_tenant
from tenantry.kube import wire
from tenantry.kube.client import Client

ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

KINDS = (
    Subnamespace.resource,
    Namespace.resource,
    ResourceQuota.resource,
    LimitRange.resource,
    NetworkPolicy.resource,
    RoleBinding.resource,
    ROLES,
    SECRETS,
    CONFIG_MAPS,
)
"""The kinds that a tree consists of."""


async def collect(client: Client, name: str) -> list[Json]:
    """Return every object of a tenant's tree below its core namespace, as it can be written again."""
    found: list[Json] = []
    for resource in KINDS:
        selectors = of_run(name) if resource == Subnamespace.resource else of_tenant(name)
        async for page in client.pages(resource, msgspec.Raw, selectors=selectors):
            found += [_without_server_fields(resource, msgspec.json.decode(item)) for item in page.items]
    return [value for value in found if value["kind"] == "Subnamespace" or _namespace(value) != name]


def _namespace(value: Json) -> str:
    """Return the namespace that an object is in, or is."""
    return value["metadata"].get("namespace") or value["metadata"]["name"]


def _without_server_fields(resource: Resource, value: Json) -> Json:
    metadata = value["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata}
    left_out = {"metadata", "status", "apiVersion", "kind", *(["spec"] if resource == Namespace.resource else [])}
    rest = {key: inner for key, inner in value.items() if key not in left_out}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": kept, **rest}


def posts(objects: Iterable[Json]) -> list[tuple[str, bytes]]:
    """Return the path and the body of the POST of each object."""
    resources = {resource.kind: resource for resource in KINDS}
    return [
        (wire.path(resources[value["kind"]], value["metadata"].get("namespace", "")), msgspec.json.encode(value))
        for value in objects
    ]
