"""The priority level of the API server at which a benchmark's own users, and no others, are served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from tenantry.api.errors import Forbidden, NotFound, RetryableError
from tenantry.api.flowcontrol import FlowSchema
from tenantry.api.model import Json, Resource
from tenantry.api.tenant import Tenant
from tenantry.bench.load import POLL_SECONDS, RUN_LABEL, deadline, delete, post
from tenantry.kube import wire
from tenantry.kube.client import Client

HEADER = "X-Kubernetes-PF-PriorityLevel-UID"
"""The header of every answer that names the level of the request.

Source: Kubernetes, "API Priority and Fairness", Diagnostics.
"""

PRECEDENCE = 8000
"""Before Tenantry's own FlowSchemas."""

IN_FORCE_SECONDS = 30.0


@asynccontextmanager
async def routed(client: Client, tenant: str, users: Sequence[str], level: str) -> AsyncGenerator[None]:
    """Have users served at a priority level while the context is open.

    Args:
        client: An administrator's client.
        tenant: A tenant of the benchmark, which owns the FlowSchema in case the benchmark is killed.
        users: The users.
        level: The level.
    """
    owner = await uid(client, Tenant.resource, tenant)
    await post(client, FlowSchema.resource, _schema(tenant, owner, users, level))
    try:
        yield
    finally:
        await delete(client, FlowSchema.resource, tenant)


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
    """Wait until the API server serves a client's requests at a level: it applies FlowSchemas a moment late.

    Raises:
        RetryableError: It takes too long.
    """
    async with deadline(IN_FORCE_SECONDS, f"{path!r} is not served at the priority level that was asked for"):
        while True:
            with contextlib.suppress(Forbidden):  # rights take effect a moment after the tenant is Ready
                async with client.open("GET", path) as answer:
                    await answer.read()
                    if answer.headers.get(HEADER) == level_uid:
                        return
            await asyncio.sleep(POLL_SECONDS)  # no event reports it


async def uid(client: Client, resource: Resource, name: str) -> str:
    """Return the uid of a cluster-scoped object.

    Raises:
        RetryableError: The object does not exist, as in a cluster with an older Tenantry.
    """
    try:
        found = await client.request("GET", wire.path(resource, "", name))
    except NotFound as error:
        raise RetryableError(f"{error}; bring Tenantry up to date with `tenantry install`") from error
    value: str = msgspec.json.decode(found)["metadata"]["uid"]
    return value
