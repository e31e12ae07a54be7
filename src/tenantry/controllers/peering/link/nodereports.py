"""Keeps the Node and the Lease of one virtual node as they should be, as a kubelet does.

    every 10 s, and when woken:  read the Node ─► create it, or write what differs ─► renew the Lease

The Lease is renewed as long as this process works, also while the other cluster is not reachable: the Node says so in
its condition Ready, with the reason. Only a process that is gone lets the Lease expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, NotFound, TenantryError, TerminalError
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.controllers.peering.link import virtualnode
from tenantry.controllers.peering.link.virtualnode import LEASES_NAMESPACE, VirtualNodeInputs
from tenantry.engine import request
from tenantry.engine.clock import Clock
from tenantry.engine.lease import Lease
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer

RENEW_SECONDS = 10.0

NODE_EXISTS = "NodeExists"
"""A reason of `TerminalError`: another Node has the name."""

log = logging.getLogger(__name__)


class NodeReports:
    """The reports of one virtual node.

    Args:
        inputs: Returns what decides about the Node now.
        reader: Reads as the node.
        writer: Writes as the node.
        operator: Writes with the operator's rights: taints, and labels that a node may not set.
        clock: The clock.
        seconds: The time between two reports.
    """

    def __init__(
        self,
        inputs: Callable[[], VirtualNodeInputs],
        *,
        reader: Reader,
        writer: Writer,
        operator: Writer,
        clock: Clock,
        seconds: float = RENEW_SECONDS,
    ) -> None:
        self._inputs = inputs
        self._reader = reader
        self._writer = writer
        self._operator = operator
        self._clock = clock
        self._seconds = seconds
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Report at once: the inputs have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Report until cancelled.

        Raises:
            TerminalError: Another Node has the name.
        """
        while True:
            self._woken.clear()
            try:
                async with asyncio.timeout(self._seconds):
                    await self.report()
            except TerminalError:
                raise
            except (TenantryError, TimeoutError) as error:
                log.warning("node not reported", extra={"node": self._inputs().name, "error": str(error)})
            try:
                async with asyncio.timeout(self._seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def report(self) -> None:
        """Write what differs, and renew the Lease, also if the API server refuses to change the Node.

        Raises:
            TerminalError: Another Node has the name.
            ApiError: The API server refuses, or does not answer.
        """
        inputs = self._inputs()
        live = await self._node(inputs)
        try:
            await self._write(live, inputs)
        finally:
            await self._renew(inputs, live["metadata"]["uid"])

    async def _node(self, inputs: VirtualNodeInputs) -> Json:
        """Return the Node, a new one if there is none."""
        live = await self._find(inputs.name)
        if live is None:
            made = virtualnode.node(inputs, self._clock.now())
            try:
                await self._writer.send(request.create_json(Node.resource, made))
            except AlreadyExists:
                log.debug("another client created the node", extra={"node": inputs.name})
            live = await self._find(inputs.name)
        if live is None:
            raise NotFound(f"node {inputs.name!r} was deleted a moment ago")
        if not virtualnode.is_of(live, inputs.peer):
            raise TerminalError(
                NODE_EXISTS,
                f"Node {inputs.name!r} exists and does not stand for {inputs.peer!r}: choose another name or delete it",
            )
        return live

    async def _find(self, name: str) -> Json | None:
        data = await self._reader.find(Node.resource, "", name)
        return None if data is None else msgspec.json.decode(data)

    async def _write(self, live: Json, inputs: VirtualNodeInputs) -> None:
        # First what keeps pods away.
        marks = virtualnode.operators_write(live, inputs)
        if marks is not None:
            try:
                await self._operator.send(marks)
            except Conflict:
                # Another client has changed the Node since: the next report looks at it again.
                self.wake()
                return
        for each in virtualnode.own_writes(live, inputs, self._clock.now()):
            await self._writer.send(each)

    async def _renew(self, inputs: VirtualNodeInputs, uid: str) -> None:
        now = self._clock.now()
        patch = virtualnode.lease_patch(inputs, uid, now)
        try:
            await self._writer.patch(Lease.resource, LEASES_NAMESPACE, inputs.name, patch)
        except NotFound:
            await self._writer.send(virtualnode.new_lease(inputs, uid, now))
