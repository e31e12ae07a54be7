"""Nodes that are given out in parts, and an auditor that looks whether any has given more than it has."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from tenantry.api.errors import Conflict, NotFound, Unreachable
from tenantry.api.model import Resource
from tenantry.engine.clock import rfc3339, rfc3339_micro
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.testing.api import PODS, Api, until
from tenantry.world.quantity import parse

Json = dict[str, Any]

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SHARED = "tenantry.dev/parts"
BEHIND = ".parts.tenantry.dev/"
UNITS = {"cpu-milli": ("cpu", 1000), "memory-mib": ("memory", 1 / 2**20)}
HEARTBEAT_SECONDS = 5.0


class SharedNodes:
    """Nodes of one test, told from others by a label.

    Args:
        api: An administrator.
        name: Of the test.
    """

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.name = name
        self.nodes: list[str] = []
        self._living = [asyncio.create_task(self._beat()), asyncio.create_task(self._end_pods())]

    @property
    def selector(self) -> Json:
        """Return what selects them."""
        return {"matchLabels": {"pool": self.name}}

    async def add(self, count: int = 1, *, cpu: str = "8", shared: bool = True, pods: str = "110") -> list[str]:
        """Make more nodes, which are ready: nothing here tells otherwise.

        Those that are given out in parts keep pods of other tests away from the first moment on; give others no room.
        """
        first = len(self.nodes)
        made = [f"{self.name}-{number}" for number in range(first, first + count)]
        capacity = {"cpu": cpu, "memory": "32Gi", "pods": pods if shared else "0"}
        now = rfc3339(dt.datetime.now(dt.UTC))
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
        for each in made:
            status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
            labels = {"pool": self.name, "kubernetes.io/hostname": each, **({SHARED: "true"} if shared else {})}
            taint = {"key": SHARED, "value": "true", "effect": "NoSchedule"}
            spec = {"taints": [taint]} if shared else {}
            meta = {"name": each, "labels": labels}
            await self._api.create(NODES, {"metadata": meta, "spec": spec, "status": status})
            # Without a first time, Kubernetes sees no later one as news.
            renewed = rfc3339_micro(dt.datetime.now(dt.UTC))
            lease = {"holderIdentity": each, "leaseDurationSeconds": 40, "renewTime": renewed}
            await self._api.create(LEASES, {"metadata": {"name": each}, "spec": lease}, "kube-node-lease")
            self.nodes.append(each)

        async def usable() -> bool:
            # Kubernetes taints each node that is made, until it has seen that it is ready.
            found = [await self.node(each) for each in made]
            return not any(each["key"] != SHARED for node in found for each in node["spec"].get("taints", []))

        await until(usable, f"{made} can be used")
        return made

    async def node(self, name: str) -> Json:
        """Return a node."""
        return await self._api.get(NODES, name)

    async def parts(self, name: str) -> dict[str, dict[str, int]]:
        """Return the parts that a node has given; see `parts_of`."""
        return parts_of(await self.node(name))

    async def _beat(self) -> None:
        """Have them live, as their kubelets would: a node of which nobody hears is not ready after a while."""
        while True:
            now = {"spec": {"renewTime": rfc3339_micro(dt.datetime.now(dt.UTC))}}
            for each in list(self.nodes):
                await self._api.patch(LEASES, each, now, "kube-node-lease")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _end_pods(self) -> None:
        """Have pods end that were told to, as kubelets would: without one they never do."""
        while True:
            with suppress(Unreachable):
                async for events in watch(self._api.client, PODS, resource_version="0"):
                    for event in events:
                        if event.type is not EventType.BOOKMARK:
                            await self._end_pod(msgspec.json.decode(event.object))

    async def _end_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta and pod["spec"].get("nodeName") in self.nodes:
            body = msgspec.json.encode({"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
            with suppress(NotFound, Conflict):
                await self._api.client.request("DELETE", wire.path(PODS, meta["namespace"], meta["name"]), body=body)

    async def end(self) -> None:
        """Delete them, and what runs there."""
        for task in self._living:
            task.cancel()
        for task in self._living:
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.gather(*(self._api.delete(NODES, each) for each in self.nodes))
        await asyncio.gather(*(self._api.delete(LEASES, each, "kube-node-lease") for each in self.nodes))


def parts_of(node: Json) -> dict[str, dict[str, int]]:
    """Return what a node's labels say that it has given: slice to `cpu-milli` and `memory-mib`."""
    found: dict[str, dict[str, int]] = {}
    for label, value in node["metadata"].get("labels", {}).items():
        owner, behind, unit = label.partition(BEHIND)
        if behind and unit in UNITS:
            found.setdefault(owner, {})[unit] = int(value)
    return found


class PartAuditor:
    """What nodes have given, at each resourceVersion.

    Args:
        client: Reads as an administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = 0
        self.given: dict[str, dict[str, dict[str, int]]] = {}
        self.problems: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[PartAuditor]:
        """Look on while the context is open."""
        async for page in self._client.pages(NODES, msgspec.Raw):
            for raw in page.items:
                self._note(msgspec.json.decode(raw))
            self._version = int(page.metadata.resource_version)
        task = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with suppress(Unreachable):
                async for events in watch(self._client, NODES, resource_version=str(self._version)):
                    for event in events:
                        value: Json = msgspec.json.decode(event.object)
                        self._version = int(value["metadata"]["resourceVersion"])
                        if event.type is not EventType.BOOKMARK:
                            self._note(value)

    def _note(self, node: Json) -> None:
        """Look at one node at one version: together its parts are not larger than it, and it advertises just them."""
        where = f"{node['metadata']['name']} at {node['metadata']['resourceVersion']}"
        given = parts_of(node)
        has: dict[str, str] = node["status"].get("allocatable", {})
        sums: Counter[str] = Counter()
        for size in given.values():
            sums.update(size)
        for unit, (resource, factor) in UNITS.items():
            room = float(parse(has.get(resource, "0"))) * factor
            if sums[unit] > room:
                self.problems.append(f"{where} has given {sums[unit]} {unit} of {room}")
        wanted = {f"{owner}{BEHIND}{unit}": size for owner, units in given.items() for unit, size in units.items()}
        for field in ("capacity", "allocatable"):
            advertised = {
                key: int(parse(value)) for key, value in node["status"].get(field, {}).items() if BEHIND in key
            }
            if advertised != wanted:
                self.problems.append(f"{where} has given {wanted} and has {advertised} as {field}")
        self.given[node["metadata"]["name"]] = given
