"""Keeps what tunnels need on both sides: the account at home, and at the peer the tasks that keep them open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tenantry.api import reasons
from tenantry.api.peercluster import PeerCluster, PeerGuest
from tenantry.api.peertunnel import GuestTunnel, tunnel_name
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests import guest
from tenantry.controllers.peering.guests.guest import ACCOUNTS
from tenantry.controllers.peering.tunnels.dialler import TunnelDialler
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.conditions import Wanted


class _Dialling(msgspec.Struct, frozen=True):
    dialler: TunnelDialler
    task: asyncio.Task[None]
    uid: str


class TunnelDiallers:
    """The tunnels that this cluster opens to its homes.

    Args:
        group: Runs them.
        server: The URL of the API server of this cluster.
    """

    def __init__(self, group: asyncio.TaskGroup, server: str) -> None:
        self._group: asyncio.TaskGroup = group
        self._server = server
        self._known: dict[str, _Dialling] = {}

    async def keep(self, cluster: Cluster, found: PeerCluster, changed: Callable[[], None]) -> Wanted | None:
        """Keep the tunnel of a guest half open; return whether it is, None if there is none."""
        half, name = found.spec.guest, found.metadata.name
        wanted = half.tunnel if isinstance(half, PeerGuest) else None
        known = self._known.get(name)
        if known is not None and (known.uid != found.metadata.uid or known.dialler.half != wanted):
            await self.stop(name)
            known = None
        if not isinstance(wanted, GuestTunnel):
            return None
        if known is None:
            dialler = TunnelDialler(cluster, name, wanted, self._server, changed)
            task = self._group.create_task(dialler.run())
            known = self._known[name] = _Dialling(dialler, task, found.metadata.uid)
        reason = reasons.TUNNEL_REFUSED if known.dialler.is_refused else reasons.TUNNEL_CLOSED
        return _told(known.dialler.problem, f"the tunnel to {wanted.server} is open", reason)

    async def stop(self, name: str) -> None:
        """End the tunnel of a PeerCluster."""
        known = self._known.pop(name, None)
        if known is not None:
            known.task.cancel()
            await asyncio.wait({known.task})


async def admit(endpoint: TunnelEndpoint, home: Cluster, found: PeerCluster) -> Wanted:
    """Let a peer open its tunnel to this home; return whether it is open."""
    endpoint.require()
    name = found.metadata.name
    account = tunnel_name(name)
    if await liveobjects.find(home, ACCOUNTS, account) is None:
        value = {**guest.meta(found, account), "automountServiceAccountToken": False}
        await home.writer.send(request.apply(ACCOUNTS, value))
    problem = endpoint.problem
    if not problem and not endpoint.is_open(name):
        problem = "the peer has not opened its tunnel: give its administrator the file of `tenantry peer accept`"
    reason = reasons.TUNNEL_CLOSED if endpoint.has_port else reasons.NO_TUNNEL_PORT
    return _told(problem, "the peer has opened its tunnel", reason, unknown=endpoint.waits)


def _told(problem: str, done: str, reason: str, *, unknown: bool = False) -> Wanted:
    if problem:
        return Wanted(reasons.TUNNEL_OPEN, False, reason, problem, unknown=unknown)
    return Wanted(reasons.TUNNEL_OPEN, True, reasons.ESTABLISHED, done)
