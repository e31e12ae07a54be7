"""Runs pods that report: creates them, waits for them by watching, and reads what they print."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Forbidden, Invalid
from tenantry.api.model import Json, Resource
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.policy.request import part, parts

T = TypeVar("T")

ACCOUNT_SECONDS = 20.0
POLL_SECONDS = 0.3
ENDED = ("Succeeded", "Failed")
PODS = Resource("", "v1", "pods", "Pod")
CORE_EVENTS = Resource("", "v1", "events", "Event")
"""Events of the core API group: only these can be selected by the object that they are about."""


class NotReady(Exception):
    """A pod did not reach a state; the message says why."""


async def create(
    client: Client, resource: Resource, value: Json, namespace: str = "", *, dry_run: bool = False
) -> Json:
    """Create an object, and return it as the server stored it."""
    body = wire.encode_json({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    data = await client.request(
        "POST", wire.path(resource, namespace), query={"dryRun": "All"} if dry_run else None, body=body
    )
    return client.decode(Json, data)


async def create_pod(client: Client, value: Json, namespace: str) -> None:
    """Create a pod; wait if its service account does not exist yet.

    Raises:
        Forbidden: It is refused.
    """
    deadline = asyncio.get_running_loop().time() + ACCOUNT_SECONDS
    while True:
        try:
            with contextlib.suppress(AlreadyExists):
                await create(client, PODS, value, namespace)
        except Forbidden as error:
            # The controller manager creates the ServiceAccount of a new namespace some time after it.
            is_early = "error looking up service account" in str(error)
            if not is_early or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(POLL_SECONDS)
        else:
            return


async def create_least_restricted(client: Client, pod: Callable[[bool], Json], namespace: str) -> bool:
    """Create a pod without a securityContext, or with a restricted one if the first is refused.

    Args:
        client: The tenant's client.
        pod: Returns the pod; its argument is whether it has no securityContext.
        namespace: The pod's namespace.

    Returns:
        Whether the pod has no securityContext.
    """
    try:
        await create_pod(client, pod(True), namespace)
    except (Forbidden, Invalid):
        await create_pod(client, pod(False), namespace)
        return False
    return True


class Pods:
    """Watches pods as an administrator.

    Args:
        admin: The administrator's client.
        nodes: The names of nodes that run containers.
    """

    def __init__(self, admin: Client, nodes: Iterable[str]) -> None:
        self._admin = admin
        self._real = frozenset(nodes)

    async def until(self, name: str, namespace: str, holds: Callable[[Json], bool], seconds: float) -> Json:
        """Return a pod once a condition holds.

        Raises:
            NotReady: The condition does not hold in time, the node is simulated, or the pod was deleted.
        """
        last: Json = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for pod in self.versions(name, namespace):
                    last = pod
                    node = str(part(pod, "spec").get("nodeName", ""))
                    if node and node not in self._real:
                        raise NotReady(f"the pod {name!r} was scheduled to {node!r}, which runs no containers")
                    if holds(pod):
                        return pod
                    if has_ended(pod):
                        break
        reasons = "; ".join(filter(None, (why(last), await self._warning(name, namespace))))
        raise NotReady(f"the pod {name!r} in {namespace!r} does not run: {reasons}")

    async def ended(self, name: str, namespace: str, seconds: float) -> tuple[Json, str]:
        """Return a pod once it has ended, and its log; see `until`."""
        pod = await self.until(name, namespace, has_ended, seconds)
        return pod, (await self._admin.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log")).decode()

    async def report(self, name: str, namespace: str, kind: type[T], seconds: float) -> tuple[Json, T]:
        """Return a pod once it has ended, and what it printed, decoded; see `until`.

        Raises:
            NotReady: It printed something else.
        """
        pod, log = await self.ended(name, namespace, seconds)
        try:
            return pod, msgspec.json.decode(log, type=kind)
        except msgspec.MsgspecError as error:
            raise NotReady(f"the pod {name!r} in {namespace!r} printed no report: {why(pod)}") from error

    async def _warning(self, name: str, namespace: str) -> str:
        """Return the last warning about a pod, "" for none: only events say why a container cannot be created."""
        query = {"fieldSelector": f"involvedObject.name={name},type=Warning"}
        with contextlib.suppress(ApiError):
            data = await self._admin.request("GET", wire.path(CORE_EVENTS, namespace), query=query)
            found = parts(self._admin.decode(Json, data), "items")
            if found:
                return str(found[-1].get("message", ""))
        return ""

    async def versions(self, name: str, namespace: str, resource: Resource = PODS) -> AsyncGenerator[Json]:
        """Yield an object as it is, then after each change.

        Raises:
            NotReady: It was deleted.
        """
        selectors = {"fieldSelector": f"metadata.name={name}"}
        while True:
            # A watch without a version begins with the object as it is now.
            batches = watch(self._admin, resource, resource_version="", selectors=selectors, namespace=namespace)
            async with contextlib.aclosing(cast("AsyncGenerator[list[Any]]", batches)):
                async for events in batches:
                    for event in events:
                        if event.type is EventType.DELETED:
                            raise NotReady(f"the {resource.kind} {name!r} was deleted")
                        if event.type is not EventType.BOOKMARK:
                            yield msgspec.json.decode(event.object)


def has_ended(pod: Json) -> bool:
    """Return whether all containers of a pod have ended for good."""
    return part(pod, "status").get("phase") in ENDED


def why(pod: Json) -> str:
    """Return the reason in a pod's status why it does not run."""
    status = part(pod, "status")
    for container in parts(status, "containerStatuses"):
        for state in ("waiting", "terminated"):
            found = part(container, "state", state)
            if found:
                return " ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
    for condition in parts(status, "conditions"):
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return str(status.get("message") or status.get("reason") or status.get("phase") or "its status gives no reason")


def end(pod: Json) -> str:
    """Return how the container of a pod ended."""
    for container in parts(pod, "status", "containerStatuses"):
        found = part(container, "state", "terminated")
        if found:
            return f"it was terminated: {found.get('reason', 'an error')} (exit code {found.get('exitCode')})"
    return why(pod)
