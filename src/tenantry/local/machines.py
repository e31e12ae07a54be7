"""Moves the machines of real nodes of a local cluster: through files, which the supervisor reads when it reloads.

    clean    machines/NAME.json without a server ─► reload: the node ends ─► its files are deleted
    join     machines/NAME.json with a server    ─► reload: machine@NAME starts
    remake   without a server ─► reload: it ends ─► its files are deleted ─► no file ─► reload: NAME starts

Every step can be repeated: a crash leaves a file and a folder from which the next call continues.
"""

from __future__ import annotations

import asyncio
import contextlib

from tenantry.api.errors import LocalError
from tenantry.hosting.machines import MachineJoin, MachinePlace
from tenantry.local import control, hostedfolders
from tenantry.local.components import MACHINE_PREFIX
from tenantry.local.control import SupervisorRequest
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import kubelets, memberships, network, planebridges
from tenantry.local.real.memberships import Membership
from tenantry.local.real.node import clean
from tenantry.local.spec import RealNode, read_spec
from tenantry.local.state import ClusterState, Phase

_ORDER_SECONDS = 30.0
START_SECONDS = 120.0
"""How long a machine may take to start; a busy one is slow, and the next try continues."""


class LocalMachines:
    """The machines of one local cluster; see `hosting.machines.Machines`.

    Args:
        paths: The cluster's.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths

    async def has(self, node: str) -> bool:
        """See `Machines.has`: contributed machines are of their contributors."""
        found = await asyncio.to_thread(self._find, node)
        return found is not None and not found.token

    async def clean(self, node: str, plane: str) -> MachinePlace:
        """See `Machines.clean`."""
        known = await asyncio.to_thread(self._known, node)
        folder = hostedfolders.of(self._paths, plane)
        bridge = await asyncio.to_thread(planebridges.ensure, self._paths, folder)
        if bridge is None:
            raise LocalError("the cluster has no real nodes any more")
        await self._end(known, plane)
        addresses = bridge.addresses
        return MachinePlace(addresses=(addresses.node(known.number),), pod_range=addresses.pods_of(known.number))

    async def join(self, node: str, plane: str, join: MachineJoin) -> None:
        """See `Machines.join`."""
        await asyncio.to_thread(self._known, node)
        before = await asyncio.to_thread(memberships.read, self._paths, node)
        if before is None or before.plane != plane:
            raise LocalError(f'the machine "{node}" is not wiped for the control plane {plane}')
        wanted = Membership(plane=plane, server=join.server, ca=join.ca, token=join.token, version=join.version)
        # One that has joined keeps the kubelet that it has.
        if not before.runs or not await asyncio.to_thread(self._has_identity, node):
            await asyncio.to_thread(kubelets.check, join.version)
            if before.runs and before != wanted:
                # The token was replaced before its use.
                await asyncio.to_thread(memberships.write, self._paths, node, Membership(plane=plane))
                await self._reload()
            await asyncio.to_thread(memberships.write, self._paths, node, wanted)
        await self._reload()

    async def remake(self, node: str) -> None:
        """See `Machines.remake`."""
        known = await asyncio.to_thread(self._known, node)
        before = await asyncio.to_thread(memberships.read, self._paths, node)
        if before is not None:
            await self._end(known, before.plane)
            await asyncio.to_thread(memberships.forget, self._paths, node)
        await self._reload()
        await self.started(node)

    def _has_identity(self, node: str) -> bool:
        return (memberships.folder_of(self._paths, node) / "kubelet" / "kubeconfig").exists()

    async def _end(self, known: RealNode, plane: str) -> None:
        """End a machine, wherever it runs, and wipe it."""
        await asyncio.to_thread(memberships.write, self._paths, known.name, Membership(plane=plane))
        # It returns when the process has ended.
        state = await self._reload()
        for name in (known.name, f"{MACHINE_PREFIX}{known.name}"):
            if (found := state.component(name)) is not None and found.phase is not Phase.STOPPED:
                raise LocalError(f'the machine "{known.name}" has not ended: `tenantry logs {name}` shows why')
        await asyncio.to_thread(self._wipe, known)

    def _wipe(self, known: RealNode) -> None:
        # Also what a killed supervisor has left of it, on any bridge.
        own = network.identity(self._paths.folder)
        bridges = [planebridges.name(each) for each in (self._paths.folder / "hosted").glob("*-*")]
        clean(own, known.name, known.number, *bridges)
        memberships.wipe(self._paths, known.name)

    async def started(self, component: str) -> None:
        """Wait until a machine runs.

        Args:
            component: The name of its component.

        Raises:
            LocalError: It does not in time, or the supervisor has ended.
        """
        try:
            async with (
                asyncio.timeout(START_SECONDS),
                contextlib.aclosing(control.watch(self._paths.socket)) as states,
            ):
                async for state in states:
                    found = state.component(component)
                    if found is not None and found.phase is Phase.READY:
                        return
        except TimeoutError as error:
            raise LocalError(
                f"{component} is not ready after {START_SECONDS:.0f} s: `tenantry logs {component}` shows why"
            ) from error
        raise LocalError("the supervisor of the cluster ended: `tenantry status` shows why")

    async def _reload(self) -> ClusterState:
        try:
            return await control.order(self._paths.socket, SupervisorRequest(verb="reload"), _ORDER_SECONDS)
        except TimeoutError as error:
            raise LocalError("the supervisor of the cluster does not answer: `tenantry status` shows why") from error

    def _find(self, node: str) -> RealNode | None:
        spec = read_spec(self._paths)
        nodes = spec.real.nodes if spec is not None and spec.real is not None else ()
        return next((each for each in nodes if each.name == node), None)

    def _known(self, node: str) -> RealNode:
        found = self._find(node)
        if found is None:
            raise LocalError(f'the cluster has no machine "{node}" any more')
        return found
