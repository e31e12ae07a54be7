"""Makes pods, waits for them by watching, and hears what they say: what an audit's probes do with the API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Forbidden
from tenantry.api.model import Resource
from tenantry.audit import kinds
from tenantry.audit.attempts import DRY_RUN, Json, rows, table
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

ACCOUNT_SECONDS = 20.0
LOOK_SECONDS = 0.3
ENDED = ("Succeeded", "Failed")
CORE_EVENTS = Resource("", "v1", "events", "Event")
"""Events as the API v1 has them: only there they are found by what they are about."""


class NotReady(Exception):
    """A pod that does not come to where it should, and why."""


async def create(
    client: Client, resource: Resource, value: Json, namespace: str = "", *, dry_run: bool = False
) -> Json:
    """Create an object, and return it as the server made it."""
    body = wire.encode_json({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    query = DRY_RUN if dry_run else None
    data = await client.request("POST", wire.path(resource, namespace), query=query, body=body)
    return msgspec.json.decode(data, type=dict[str, Any])


async def create_pod(client: Client, value: Json, namespace: str) -> None:
    """Create a pod; that its service account is not there yet passes.

    Raises:
        Forbidden: It is refused.
    """
    deadline = asyncio.get_running_loop().time() + ACCOUNT_SECONDS
    while True:
        try:
            await create(client, kinds.PODS, value, namespace)
        except AlreadyExists:
            return
        except Forbidden as error:
            is_early = "error looking up service account" in str(error)
            if not is_early or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return


class Pods:
    """Pods that an administrator looks at.

    Args:
        admin: The administrator's client.
        nodes: The names of nodes that run containers.
    """

    def __init__(self, admin: Client, nodes: Iterable[str]) -> None:
        self._admin = admin
        self._real = frozenset(nodes)

    async def until(self, name: str, namespace: str, is_so: Callable[[Json], bool], seconds: float) -> Json:
        """Return a pod once it is so.

        Raises:
            NotReady: It is not in time, or on a node that plays only, or gone.
        """
        last: Json = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for pod in self.versions(name, namespace):
                    last = pod
                    node = str(table(pod, "spec").get("nodeName", ""))
                    if node and node not in self._real:
                        raise NotReady(f"the pod {name!r} was put on {node!r}, which runs no containers")
                    if is_so(pod):
                        return pod
                    if has_ended(pod):
                        break
        told = "; ".join(filter(None, (why(last), await self._warned(name, namespace))))
        raise NotReady(f"the pod {name!r} in {namespace!r} does not run: {told}")

    async def _warned(self, name: str, namespace: str) -> str:
        """Return the last warning about a pod, "" for none: what keeps a container from being made is nowhere else."""
        query = {"fieldSelector": f"involvedObject.name={name},type=Warning"}
        with contextlib.suppress(ApiError):
            data = await self._admin.request("GET", wire.path(CORE_EVENTS, namespace), query=query)
            found = rows(msgspec.json.decode(data, type=dict[str, Any]), "items")
            if found:
                return str(found[-1].get("message", ""))
        return ""

    async def versions(self, name: str, namespace: str, resource: Resource = kinds.PODS) -> AsyncGenerator[Json]:
        """Yield an object of a name as it is, then after each change.

        Raises:
            NotReady: Somebody deleted it.
        """
        selectors = {"fieldSelector": f"metadata.name={name}"}
        while True:
            batches = watch(self._admin, resource, resource_version="", selectors=selectors, namespace=namespace)
            async with contextlib.aclosing(cast("AsyncGenerator[list[Any]]", batches)):
                async for events in batches:
                    for event in events:
                        if event.type is EventType.DELETED:
                            raise NotReady(f"somebody deleted the {resource.kind} {name!r}")
                        if event.type is not EventType.BOOKMARK:
                            yield msgspec.json.decode(event.object, type=dict[str, Any])

    async def log(self, name: str, namespace: str) -> str:
        """Return what a pod has printed."""
        return (await self._admin.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log")).decode()


def has_ended(pod: Json) -> bool:
    """Tell whether a pod will do nothing any more."""
    return table(pod, "status").get("phase") in ENDED


def why(pod: Json) -> str:
    """Return what keeps a pod, as far as its status tells."""
    status = table(pod, "status")
    for container in rows(status, "containerStatuses"):
        for state in ("waiting", "terminated"):
            found = table(container, "state", state)
            if found:
                return " ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
    for condition in rows(status, "conditions"):
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return str(status.get("message") or status.get("reason") or status.get("phase") or "nothing is known of it")


def end(pod: Json) -> str:
    """Return how the container of a pod has ended."""
    for container in rows(pod, "status", "containerStatuses"):
        found = table(container, "state", "terminated")
        if found:
            return f"it was ended with {found.get('reason', 'an error')} (exit code {found.get('exitCode')})"
    return why(pod)
