"""At which priority level of the API server a benchmark's own users are served, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tenantry.api.errors import Forbidden, NotFound, RetryableError
from tenantry.api.flowcontrol import FlowSchema
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.bench.load import RUN_LABEL
from tenantry.bench.objects import deadline, post
from tenantry.kube import wire
from tenantry.kube.client import Client

Json = dict[str, Any]

HEADER = "X-Kubernetes-PF-PriorityLevel-UID"
"""On every answer: where the request was served. Source: Kubernetes, "API Priority and Fairness", Diagnostics."""

PRECEDENCE = 8000
"""Ahead of Tenantry's own."""

IN_FORCE_SECONDS = 30.0
LOOK_SECONDS = 0.1


@asynccontextmanager
async def routed(client: Client, tenant: str, users: Sequence[str], level: str) -> AsyncGenerator[None]:
    """Have users served at a level while the context is open.

    Args:
        client: An administrator's.
        tenant: One of the benchmark's own, with which this goes away should the benchmark be killed.
        users: Whose requests.
        level: Where.
    """
    owner = await uid(client, Tenant.resource, tenant)
    await post(client, FlowSchema.resource, _schema(tenant, owner, users, level))
    try:
        yield
    finally:
        await asyncio.shield(_delete(client, tenant))


async def _delete(client: Client, name: str) -> None:
    with contextlib.suppress(NotFound):
        await client.delete(FlowSchema.resource, "", name)


def _schema(tenant: str, owner: str, users: Sequence[str], level: str) -> Json:
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": True, "namespaces": ["*"]}
    resource = Tenant.resource
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": tenant, "uid": owner}
    subjects = [{"kind": "User", "user": {"name": user}} for user in users]
    return {
        "metadata": {"name": tenant, "labels": {RUN_LABEL: tenant}, "ownerReferences": [reference]},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": subjects, "resourceRules": [every]}],
        },
    }


async def served_at(client: Client, path: str, level_uid: str) -> None:
    """Wait until whoever a client is gets in, and is served where it should be: the API server follows its objects.

    Raises:
        RetryableError: It takes too long.
    """
    async with deadline(IN_FORCE_SECONDS, f"{path!r} is not served at the priority level that was asked for"):
        while True:
            with contextlib.suppress(Forbidden):  # rights are in force a moment after the tenant is Ready
                async with client.open("GET", path) as answer:
                    await answer.read()
                    if answer.headers.get(HEADER) == level_uid:
                        return
            await asyncio.sleep(LOOK_SECONDS)  # nothing tells when


async def uid(client: Client, resource: Resource, name: str) -> str:
    """Return the uid of a cluster-scoped object.

    Raises:
        RetryableError: There is none, as in a cluster with an older Tenantry.
    """
    try:
        found = await client.request("GET", wire.path(resource, "", name))
    except NotFound as error:
        raise RetryableError(f"{error}; bring Tenantry up to date with `tenantry install`") from error
    value: str = msgspec.json.decode(found)["metadata"]["uid"]
    return value
