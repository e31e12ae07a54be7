"""What stands before control planes in Pods: their ports at the endpoint proxy, and what the proxy is told of each.

    started, stopped, suspended, removed ─► Fronts ─► ToldPlane ─► EndpointProxies
    Pods that become ready, or are lost  ─► Fronts ─► other addresses, at once; the control plane is looked at again

A replica that begins to serve a control plane reads from the cluster what it reports: the keys from its Secret, whether
it sleeps from its StatefulSet.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from tenantry.api.model import Json
from tenantry.engine.tasks import all_of
from tenantry.hostedpods import following, objects, seenpods
from tenantry.hostedpods.proxies import EndpointProxies
from tenantry.hostedpods.proxyports import ProxyPorts
from tenantry.hostedpods.proxysession import ToldPlane
from tenantry.hosting import sidecar
from tenantry.hosting.placement import ServerEndpoint
from tenantry.kube.client import Client


class FrontPhase(enum.StrEnum):
    """The phases of a control plane that the proxy is told."""

    STARTING = "Starting"
    READY = "Ready"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class Fronts:
    """What the endpoint proxy is told of the control planes that this operator serves.

    Args:
        client: The operator's, of the cluster.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._proxies = EndpointProxies(client, folder)
        self._ports = ProxyPorts(client)
        # All others are closed.
        self._open: set[str] = set()
        # By uid: where the API servers of the Pods that are ready are.
        self._ready: dict[str, tuple[str, ...]] = {}

    async def keep(self) -> None:
        """Keep the proxies up to date, until cancelled."""
        await all_of([self._proxies.keep(), self._follow_pods()])

    @asynccontextmanager
    async def followed(self, has: Callable[[str], bool], moved: Callable[[str], None]) -> AsyncGenerator[None]:
        """Serve some control planes while the context is open.

        Args:
            has: Returns whether a control plane, by its uid, is one of them.
            moved: Called with the uid of one whose Pods, or whose address for pods, have changed, or whose clients
                cannot connect any more, or can again.
        """
        self._proxies.serve(moved)
        try:
            yield
        finally:
            self._proxies.moved.discard(moved)
            self._proxies.drop(uid for uid in self._proxies.uids() if has(uid))
            self._open = {uid for uid in self._open if not has(uid)}

    async def port(self, uid: str) -> int:
        """Return the port of a control plane at the proxy.

        Raises:
            LocalError: None is free.
        """
        return await self._ports.of(uid)

    async def port_of_nodes(self, uid: str) -> int:
        """Return the port at which machines reach a control plane at the proxy; raises as `port`."""
        return await self._ports.of_nodes(uid)

    def endpoint(self, uid: str) -> ServerEndpoint | None:
        """Return where pods reach a control plane; None while that is not known."""
        told, address = self._proxies.told(uid), self._proxies.address
        return ServerEndpoint(address=address, port=told.port) if told is not None and address else None

    def unreachable(self, uid: str) -> str:
        """Return why the clients of a control plane cannot connect, and what to do; "" if nothing is known."""
        return self._proxies.absence if self.knows(uid) else ""

    def knows(self, uid: str) -> bool:
        """Return whether the proxy is told of a control plane."""
        return self._proxies.told(uid) is not None

    async def prepare(self, uid: str, pki: Path, *, runs: bool) -> None:
        """Have the proxy listen for a control plane as soon as it can be told; clients are held until a Pod is ready.

        Args:
            uid: Of the control plane.
            pki: The folder with the certificate of its API server.
            runs: Whether it has Pods, or gets some.
        """
        addresses = self._ready.get(uid, ()) if runs else ()
        phase = (FrontPhase.READY if addresses else FrontPhase.STARTING) if runs else FrontPhase.STOPPED
        front = ToldPlane(
            uid=uid,
            name=objects.name(uid),
            port=await self._ports.of(uid),
            nodes=await self._ports.find_of_nodes(uid),
            phase=phase,
            addresses=addresses,
            closed=uid not in self._open,
            certificate=(pki / "server.crt").read_text(),
            key=(pki / "server.key").read_text(),
        )
        self._proxies.note(front)

    async def ready(self, uid: str, addresses: Iterable[str]) -> None:
        """Lead clients to Pods, and return when the proxy does.

        Raises:
            LocalError: It does not.
        """
        at = tuple(sorted(objects.at_port(each, sidecar.API_PORT) for each in addresses))
        await self._proxies.tell(replace(self._of(uid), phase=FrontPhase.READY, addresses=at))

    def stops(self, uid: str, *, is_stopped: bool) -> None:
        """Hold the clients of a control plane while its Pods end, and report them when they have ended."""
        if (front := self._proxies.told(uid)) is not None:
            phase = FrontPhase.STOPPED if is_stopped else FrontPhase.STOPPING
            self._proxies.note(replace(front, phase=phase, addresses=()))

    def decide(self, uid: str, *, is_open: bool) -> None:
        """Decide whether the clients of a control plane are let in, from the next report on; see `admit`."""
        (self._open.add if is_open else self._open.discard)(uid)

    async def admit(self, uid: str) -> None:
        """Let the clients of a control plane in, or refuse them and end their connections, as `decide` has it.

        Raises:
            LocalError: The proxy does not confirm that they have ended.
        """
        is_open = uid in self._open
        if (front := self._proxies.told(uid)) is None:
            return
        front = replace(front, closed=not is_open)
        if is_open:
            self._proxies.note(front)
        else:
            await self._proxies.tell(front, by_all=True)

    async def knocked(self, uid: str) -> None:
        """Return when a client of a control plane that is stopped is held.

        Raises:
            LocalError: The proxy refuses.
        """
        await self._proxies.knocked(uid)

    async def remove(self, uid: str) -> None:
        """Have the proxy end a control plane that is deleted, and give back its port."""
        self._open.discard(uid)
        await self._proxies.forget(uid)
        await self._ports.give_back(uid)

    def _of(self, uid: str) -> ToldPlane:
        found = self._proxies.told(uid)
        if found is None:
            raise RuntimeError(f"control plane {uid} was not prepared")
        return found

    async def _follow_pods(self) -> None:
        async with aclosing(following.lists(self._client, objects.UID_LABEL)) as changes:
            async for found in changes:
                before, self._ready = self._ready, _ready(found.values())
                for uid in sorted({*before, *self._ready}):
                    if before.get(uid) != (now := self._ready.get(uid, ())):
                        self._moved(uid, now)

    def _moved(self, uid: str, addresses: tuple[str, ...]) -> None:
        front = self._proxies.told(uid)
        if front is None or front.phase in {FrontPhase.STOPPING, FrontPhase.STOPPED} or front.addresses == addresses:
            return
        self._proxies.note(
            replace(front, phase=FrontPhase.READY if addresses else FrontPhase.STARTING, addresses=addresses)
        )
        for moved in self._proxies.moved:
            moved(uid)


def _ready(pods: Iterable[Json]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for each in pods:
        seen = seenpods.seen(each)
        if seen.is_ready and seen.address:
            uid: str = each["metadata"]["labels"][objects.UID_LABEL]
            found.setdefault(uid, []).append(objects.at_port(seen.address, sidecar.API_PORT))
    return {uid: tuple(sorted(addresses)) for uid, addresses in found.items()}
