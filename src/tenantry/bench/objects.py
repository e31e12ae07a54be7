"""The objects of a benchmark's tree: collected, written again, waited for, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Gone, NotFound, RetryableError, Unreachable
from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.bench.load import GONE_SECONDS, RUN_LABEL, saturate
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

Json = dict[str, Any]

ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

MADE = (
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
"""The kinds that a tree is made of."""


async def collect(client: Client, name: str) -> list[Json]:
    """Return everything below the core namespace that the tree is made of, as it can be written again."""
    selectors = of_tenant(name)
    found: list[Json] = []
    for resource in MADE:
        mine = {"labelSelector": f"{RUN_LABEL}={name}"} if resource == Subnamespace.resource else selectors
        async for page in client.pages(resource, msgspec.Raw, selectors=mine):
            found += [_bare(resource, msgspec.json.decode(item)) for item in page.items]
    return [value for value in found if value["kind"] == "Subnamespace" or _place(value) != name]


def _place(value: Json) -> str:
    """Return the namespace that an object is in, or is."""
    return value["metadata"].get("namespace") or value["metadata"]["name"]


def _bare(resource: Resource, value: Json) -> Json:
    """Return an object without what the server makes of it."""
    metadata = value["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata}
    left_out = {"metadata", "status", "apiVersion", "kind", *(["spec"] if resource == Namespace.resource else [])}
    rest = {key: inner for key, inner in value.items() if key not in left_out}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": kept, **rest}


def prepared(objects: Iterable[Json]) -> list[tuple[str, bytes]]:
    """Return the path and the body of the POST of each object."""
    resources = {resource.kind: resource for resource in MADE}
    return [
        (wire.path(resources[value["kind"]], value["metadata"].get("namespace", "")), msgspec.json.encode(value))
        for value in objects
    ]


async def post(client: Client, resource: Resource, value: Json) -> None:
    """Create an object."""
    body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    await client.request("POST", wire.path(resource, value["metadata"].get("namespace", "")), body=body)


def of_tenant(name: str) -> dict[str, str]:
    """Return what selects what Tenantry makes for a tenant."""
    return {"labelSelector": f"{marks.TENANT}={name}"}


# -- cleaning up, and waiting ---------------------------------------------------------------------


async def clean_up(client: Client, name: str, *, everything: bool) -> float:
    """Delete the tenant, wait until its namespaces are gone, and return how many seconds that took.

    Args:
        client: Of the cluster.
        name: The tenant.
        everything: Delete the namespaces too, because no operator does.
    """
    began = time.perf_counter()
    selectors = of_tenant(name)
    with contextlib.suppress(NotFound):
        await client.delete(Tenant.resource, "", name)

    async def delete(namespace: str) -> None:
        with contextlib.suppress(NotFound):
            await client.delete(Namespace.resource, "", namespace)

    if everything:
        await saturate(delete, [found.metadata.name for found in await client.list(Namespace, selectors=selectors)])
    async with deadline(GONE_SECONDS, f"namespaces with the label {marks.TENANT}={name} are still there"):
        await wait_until_gone(client, selectors)
    return time.perf_counter() - began


async def wait_until_gone(client: Client, selectors: Mapping[str, str]) -> None:
    """Wait until there are no such namespaces."""
    while True:
        left: set[str] = set()
        version = ""
        async for page in client.pages(Namespace.resource, Namespace, selectors=selectors):
            left |= {found.metadata.name for found in page.items}
            version = page.metadata.resource_version
        with contextlib.suppress(Gone, Unreachable):
            if not left:
                return
            async for batch in watch(client, Namespace.resource, resource_version=version, selectors=selectors):
                gone = [event.object for event in batch if event.type is EventType.DELETED]
                left -= {client.decode(Namespace, body).metadata.name for body in gone}
                if not left:
                    return


async def events(
    client: Client, resource: Resource, selectors: Mapping[str, str]
) -> AsyncGenerator[tuple[EventType, bytes | msgspec.Raw]]:
    """Yield the objects that are there, a BOOKMARK after the last of them, and then what changes, for ever."""
    while True:
        try:
            version = ""
            async for page in client.pages(resource, msgspec.Raw, selectors=selectors):
                version = page.metadata.resource_version
                for item in page.items:
                    yield EventType.ADDED, item
            yield EventType.BOOKMARK, b""
            async for batch in watch(client, resource, resource_version=version, selectors=selectors):
                for event in batch:
                    if event.type is not EventType.BOOKMARK:
                        yield event.type, event.object
        except (Gone, Unreachable):
            continue


@asynccontextmanager
async def deadline(seconds: float, problem: str) -> AsyncGenerator[None]:
    """Give what is in the block so many seconds.

    Raises:
        RetryableError: They are over; says the problem.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RetryableError(f"{problem} after {seconds:.0f} s; see the operator's log") from error
