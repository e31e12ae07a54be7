"""An auditor of slices: it watches nodes itself, and looks at every resourceVersion whether one has two slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from tenantry.api.errors import Unreachable
from tenantry.api.model import Resource
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

Json = dict[str, Any]
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
KEY = "tenantry.dev/slice"


class SliceAuditor:
    """What happened to nodes, in order.

    Args:
        client: Reads as an administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._now: dict[str, str] = {}
        self._version = 0
        self.seen = 0
        self.problems: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[SliceAuditor]:
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

    @property
    def taken(self) -> dict[str, str]:
        """Return the slice of each node that has one now."""
        return {name: owner for name, owner in self._now.items() if owner}

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
        """Look at one node at one version: all its marks name one slice, and it goes to another by way of none."""
        meta = node["metadata"]
        labels: dict[str, str] = meta.get("labels", {})
        named = {labels[key] for key in (KEY, f"{KEY}-reserved") if key in labels}
        named |= {taint.get("value", "") for taint in node["spec"].get("taints", []) if taint["key"] == KEY}
        notes: dict[str, str] = meta.get("annotations", {})
        where = f"{meta['name']} at {meta['resourceVersion']}"
        if len(named) > 1:
            self.problems.append(f"{where} has {sorted(named)}")
        owner = next(iter(named), "")
        if owner and not labels.get(f"{KEY}-reserved"):
            self.problems.append(f"{where} has a part of the marks of {owner}")
        if bool(owner) != bool(notes.get(f"{KEY}-claim")):
            self.problems.append(f"{where} does not say whose claim it is")
        before = self._now.get(meta["name"], "")
        if before and owner and before != owner:
            self.problems.append(f"{where} went from {before} to {owner}")
        self._now[meta["name"]] = owner
        self.seen += 1
