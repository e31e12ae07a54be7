"""Nodes that are shared in parts, and an auditor that finds nodes with more parts than capacity."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
from typing_extensions import override

from tenantry.api.errors import Conflict, NotFound, Unreachable
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.world.quantity import parse
from testkit.api import PODS, Api
from testkit.nodeauditor import NodeAuditor
from testkit.pool import Pool

Json = dict[str, Any]

SHARED = "tenantry.dev/parts"
BEHIND = ".parts.tenantry.dev/"
UNITS = {"cpu-milli": ("cpu", 1000), "memory-mib": ("memory", 1 / 2**20)}


class SharedNodes(Pool):
    """Nodes of one test, most of them shared in parts.

    Args:
        api: An administrator.
        name: Of the test.
    """

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(api, name)
        self.living.append(asyncio.create_task(self._end_pods()))

    async def share(self, count: int = 1, *, cpu: str = "8", pods: str = "110") -> list[str]:
        """Create nodes that are shared in parts, with a taint against pods of other tests."""
        taint = {"key": SHARED, "value": "true", "effect": "NoSchedule"}
        return await self.make(count, {"cpu": cpu, "memory": "32Gi", "pods": pods}, {SHARED: "true"}, [taint])

    async def parts(self, name: str) -> dict[str, dict[str, int]]:
        """Return the allocated parts of a node; see `parts_of`."""
        return parts_of(await self.node(name))

    async def _end_pods(self) -> None:
        """Remove terminating pods, as kubelets do: without a kubelet they stay."""
        while True:
            with suppress(Unreachable):
                async for events in watch(self.api.client, PODS, resource_version="0"):
                    for event in events:
                        if event.type is not EventType.BOOKMARK:
                            await self._end_pod(msgspec.json.decode(event.object))

    async def _end_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta and pod["spec"].get("nodeName") in self.nodes:
            body = msgspec.json.encode({"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
            with suppress(NotFound, Conflict):
                await self.api.client.request("DELETE", wire.path(PODS, meta["namespace"], meta["name"]), body=body)


def parts_of(node: Json) -> dict[str, dict[str, int]]:
    """Return the allocated parts in a node's labels: slice to `cpu-milli` and `memory-mib`."""
    found: dict[str, dict[str, int]] = {}
    for label, value in node["metadata"].get("labels", {}).items():
        owner, behind, unit = label.partition(BEHIND)
        if behind and unit in UNITS:
            found.setdefault(owner, {})[unit] = int(value)
    return found


class PartAuditor(NodeAuditor):
    """The allocated parts of nodes at each resourceVersion."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.given: dict[str, dict[str, dict[str, int]]] = {}

    @override
    def note(self, node: Json) -> None:
        """Inspect one node at one version: its parts fit into it, and it advertises exactly them."""
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
