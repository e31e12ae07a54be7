"""The gate of one control plane, with the rule for hosts outside of the cluster. The glue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.api.planeegress import PlaneEgress
from tenantry.controllers.virtualcontrolplane.egress import rule
from tenantry.hosting.destinations import Destination
from tenantry.hosting.dialling import OutsideInputs
from tenantry.hosting.gate import Gate
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.nodetunnels import NodeTunnels
from tenantry.hosting.outside import OutsideRule
from tenantry.hosting.resolver import NameResolver
from tenantry.world.addresses import Network


class PlaneGate:
    """Serves the connections of one control plane.

    Args:
        path: Of its socket.
        egress: The hosts outside that it reaches.
        kept: Returns what it never dials; the same object while nothing has changed.
    """

    def __init__(self, path: Path, egress: PlaneEgress, kept: Callable[[], tuple[Network, ...]]) -> None:
        self._path = path
        self._egress = egress
        self._kept = kept
        self._outside: OutsideRule | None = None
        self._served: Gate | None = None

    def allow(self, egress: PlaneEgress) -> None:
        """Change the hosts outside that it reaches; connections that are not admitted any more end."""
        if egress != self._egress:
            self._egress, self._outside = egress, None
            self.recheck()

    def recheck(self) -> None:
        """End connections that are not admitted any more."""
        if self._served is not None:
            self._served.recheck()

    def outside(self) -> OutsideRule:
        """Return the rule for hosts outside of the cluster."""
        kept = self._kept()
        if self._outside is None or self._outside.kept is not kept:
            self._outside = rule(self._egress, kept)
        return self._outside

    @asynccontextmanager
    async def serve(
        self,
        decide: Callable[[str, int], Destination],
        *,
        kubelet: KubeletInputs | None = None,
        tunnels: NodeTunnels | None = None,
        settled: asyncio.Event | None = None,
    ) -> AsyncGenerator[None]:
        """Listen while the context is open; see `Gate`.

        Args:
            decide: Returns the destination of a host and a port.
            kubelet: To answer in place of kubelets; None if no destination is one.
            tunnels: The tunnels of nodes without a route; None if no destination is one.
            settled: Set when all destinations are known; None if they always are.
        """
        outside = OutsideInputs(
            refusal=lambda host, address: self.outside().refusal(host, address), resolve=NameResolver().addresses
        )
        gate = Gate(self._path, decide, kubelet=kubelet, outside=outside, tunnels=tunnels, settled=settled)
        async with gate.serve():
            self._served = gate
            try:
                yield
            finally:
                self._served = None
