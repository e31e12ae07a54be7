"""Plays, at a peer without an operator and without nodes, what makes namespaces and runs pods.

Subnamespace ─► namespace with the rights of the guest ─► status Ready, with the share that its spec has
pod          ─► status Running
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import PREFIX
from tenantry.api.subnamespace import Subnamespace
from tenantry.bench.load import events
from tenantry.engine.clock import SystemClock, rfc3339
from tenantry.engine.plan import merge_patch
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client
from tenantry.kube.watch import EventType
from tenantry.world.naming import child_name

PODS = Resource("", "v1", "pods", "Pod")
_AT_ONCE = 16

RUNNING: Json = {
    "status": {
        "phase": "Running",
        "conditions": [{"type": each, "status": "True"} for each in ("PodScheduled", "Initialized", "Ready")],
    }
}
"""The status of a pod that runs, as a merge patch."""


class PlayedPeer:
    """One peer.

    Args:
        client: An administrator's.
        namespace_of: Returns a namespace of the home there, and the RoleBinding in it.
    """

    def __init__(self, client: Client, namespace_of: Callable[[str], Sequence[Json]]) -> None:
        self._client = client
        self._namespace_of = namespace_of
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._clock = SystemClock()
        # By key of a Subnamespace: its namespace, from when its creation began.
        self._made: dict[str, str] = {}
        self._running: set[str] = set()

    async def make_namespaces(self) -> None:
        """Make the namespaces of Subnamespaces until cancelled."""
        await self._follow(Subnamespace.resource, self._of_subnamespace)

    async def run_pods(self) -> None:
        """Have the pods of another cluster run until cancelled."""
        await self._follow(PODS, self._of_pod)

    async def _follow(
        self, resource: Resource, act: Callable[[EventType, Json], Coroutine[Any, Any, None] | None]
    ) -> None:
        async with asyncio.TaskGroup() as group, aclosing(events(self._client, resource, {})) as stream:
            async for type_, body in stream:
                if body and (work := act(type_, msgspec.json.decode(body))) is not None:
                    group.create_task(self._when_free(work))

    async def _when_free(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._gate:
            # A pod or a namespace that is gone meanwhile needs nothing.
            with suppress(NotFound):
                await work

    def _of_subnamespace(self, type_: EventType, found: Json) -> Coroutine[Any, Any, None] | None:
        meta: Json = found["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if type_ is EventType.DELETED:
            name = self._made.pop(key, "")
            return self._client.delete(Namespace.resource, "", name) if name else None
        generation: int = meta["generation"]
        if meta.get("deletionTimestamp") or generation <= found.get("status", {}).get("observedGeneration", 0):
            return None
        exact: str = found["spec"].get("namespaceName", "")
        is_new = key not in self._made
        name = self._made.setdefault(key, exact or child_name("", meta["namespace"], meta["name"]))
        return self._make(found, name, is_new=is_new)

    async def _make(self, found: Json, name: str, *, is_new: bool) -> None:
        for value in self._namespace_of(name) if is_new else ():
            kind = Namespace if value["kind"] == Namespace.resource.kind else RoleBinding
            url = wire.path(kind.resource, value["metadata"].get("namespace", ""))
            with suppress(AlreadyExists):
                await self._client.request("POST", url, body=msgspec.json.encode(value))
        meta: Json = found["metadata"]
        ready = {
            "type": reasons.READY,
            "status": "True",
            "reason": reasons.ESTABLISHED,
            "message": "the namespace exists",
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        # A Workspace grows with what is inside: each generation gets the share that it asks for.
        assigned: Json = found["spec"].get("quota", {}).get("hard", {})
        status: Json = {
            "namespace": name,
            "observedGeneration": meta["generation"],
            "quota": {"assigned": {quota_key: str(value) for quota_key, value in assigned.items()}},
            "conditions": [ready],
        }
        url = f"{wire.path(Subnamespace.resource, meta['namespace'], meta['name'])}/status"
        body = msgspec.json.encode({"status": merge_patch({}, status)})
        await self._client.request("PATCH", url, body=body, content_type=MERGE_PATCH)

    def _of_pod(self, type_: EventType, found: Json) -> Coroutine[Any, Any, None] | None:
        meta: Json = found["metadata"]
        if type_ is EventType.DELETED:
            self._running.discard(meta["uid"])
            return None
        if f"{PREFIX}/uid" not in meta.get("annotations", {}):
            return None  # not one of another cluster
        if meta["uid"] in self._running or meta.get("deletionTimestamp") or found["status"].get("phase") != "Pending":
            return None
        self._running.add(meta["uid"])
        return run_pod(self._client, meta["namespace"], meta["name"])


async def run_pod(client: Client, namespace: str, name: str) -> None:
    """Set the status of a pod as kubelet does when it runs.

    Raises:
        NotFound: It is gone.
    """
    url = f"{wire.path(PODS, namespace, name)}/status"
    await client.request("PATCH", url, body=msgspec.json.encode(RUNNING), content_type=MERGE_PATCH)
