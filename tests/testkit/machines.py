"""Machines of real nodes in memory; they refuse what would take a machine from a cluster, or give a dirty one to it."""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api.errors import LocalError
from tenantry.hosting.machines import MachineJoin, MachinePlace
from testkit.worldclient import Crash

HOST = "host"
PLACE = MachinePlace(addresses=("10.113.128.11",), pod_range="10.113.1.0/24")


class FakeMachines:
    """Where each machine is: `HOST`, "wiped for UID" or "in UID".

    Args:
        names: The names of the nodes whose machines it moves.
        faults: Called twice in each call, as for a request of a client.
    """

    def __init__(self, *names: str, faults: Callable[[], str] = lambda: "none") -> None:
        self.places = dict.fromkeys(names, HOST)
        self.tokens: list[str] = []
        self.versions: list[str] = []
        self.problem = ""
        self._faults = faults

    async def has(self, node: str) -> bool:
        """See `Machines.has`."""
        return node in self.places

    async def clean(self, node: str, plane: str) -> MachinePlace:
        """See `Machines.clean`."""
        self._fault()
        self.places[node] = f"wiped for {plane}"
        self._fault()
        return PLACE

    async def join(self, node: str, plane: str, join: MachineJoin) -> None:
        """See `Machines.join`."""
        self._fault()
        if self.places[node] not in {f"wiped for {plane}", f"in {plane}"}:
            raise AssertionError(f"{node} is {self.places[node]!r}, and would join {plane}")
        self.places[node] = f"in {plane}"
        self.tokens.append(join.token)
        self.versions.append(join.version)
        self._fault()

    async def remake(self, node: str) -> None:
        """See `Machines.remake`."""
        self._fault()
        self.places[node] = HOST
        self._fault()

    def _fault(self) -> None:
        if self.problem:
            raise LocalError(self.problem)
        fault = self._faults()
        if fault == "crash":
            raise Crash("a machine is moved")
        if fault != "none":
            raise LocalError("the supervisor does not answer")
