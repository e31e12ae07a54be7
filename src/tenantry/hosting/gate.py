"""The egress gate: the only way out of a hosted API server, which has no network of its own.

    kube-apiserver ──Unix socket──► CONNECT host:port ─► decide(host, port)
                                                           ├─ Refused   403 and the reason
                                                           ├─ Direct    TCP, bytes both ways           tunnel.py
                                                           ├─ Outside   resolved, checked, then TCP    dialling.py
                                                           ├─ Kubelet   TLS and one HTTP request       kubelet.py
                                                           ├─ Tunnelled a stream of a node's tunnel    nodetunnels.py
                                                           └─ TunnelEntry  a node opens its tunnel     nodetunnels.py

Clients may come before the process of the gate knows all destinations: a connection waits until `settled`, and gets 503
if that takes too long.

kube-apiserver reaches the gate by an EgressSelectorConfiguration with HTTPConnect for `cluster` and `controlplane`. The
gate holds no rule: `decide` is an argument, and sees the host that the API server named. The gate resolves a name only
if `decide` says so, and dials an address of it only if a second rule admits this address.

kube-apiserver dials an unavailable APIService 15 times a second, so that the gate bounds the rate and the number of
connections. A connection above a limit gets 503. The gate waits a moment for the end of its request, because a client
whose write fails does not read the response. If too many wait, further ones are closed at once.

Source: Kubernetes, "Set up Konnectivity service"; k8s.io/apiserver/pkg/server/egressselector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tenantry.api.errors import ApiError
from tenantry.hosting import heads, kubelet
from tenantry.hosting.connections import Accept, ConnectionLimits, Connections
from tenantry.hosting.destinations import (
    Destination,
    Direct,
    Kubelet,
    Outside,
    Refused,
    TunnelEntry,
    Tunnelled,
)
from tenantry.hosting.dialling import OutsideInputs, checked, dial
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.listeners import listener
from tenantry.hosting.nodetunnels import NodeTunnels
from tenantry.hosting.tunnel import ByteStream, abort, end, read_head, splice

CONNECT_HEAD_BYTES = 8 * 1024
REJECTION_SECONDS = 1.0

log = logging.getLogger(__name__)

Decide = Callable[[str, int], Destination]
"""Returns the destination of a host (an IP address, or a DNS name in lower case) and a port, without I/O."""


class GateLimits(ConnectionLimits, frozen=True, kw_only=True):
    """The limits of one gate.

    Args:
        dial_seconds: The time for a TCP connection to a destination.
        settle_seconds: The time that a connection waits until all destinations are known.
    """

    dial_seconds: float = 10.0
    settle_seconds: float = 10.0


class Gate:
    """The gate of one hosted API server.

    Args:
        path: The Unix socket. Error messages of the API server quote its name.
        decide: The rule for destinations.
        kubelet: What the gate needs to play kubelets; None if `decide` never returns one.
        outside: What the gate needs to reach hosts outside of the cluster; None if it reaches none.
        tunnels: The tunnels of nodes without a route; None if `decide` never returns one.
        limits: The limits.
        settled: Set once `decide` knows all destinations; None if it always does.
    """

    def __init__(
        self,
        path: Path,
        decide: Decide,
        *,
        kubelet: KubeletInputs | None = None,
        outside: OutsideInputs | None = None,
        tunnels: NodeTunnels | None = None,
        limits: GateLimits | None = None,
        settled: asyncio.Event | None = None,
    ) -> None:
        self._path = path
        self._settled = settled
        self._decide = decide
        self._kubelet = kubelet
        self._outside = outside
        self._tunnels = tunnels
        self._limits = limits or GateLimits()
        self._connections = Connections(self._limits, self._serve, self._reject)
        # Connections to hosts outside: the host and the address that was dialled.
        self._led_outside: dict[asyncio.Task[None], tuple[str, str]] = {}
        # Connections inside of the cluster: the host and the port that were asked for.
        self._led_inside: dict[asyncio.Task[None], tuple[str, int]] = {}

    @property
    def open_connections(self) -> int:
        """Return the number of connections."""
        return len(self._connections.open)

    def recheck(self) -> None:
        """End the connections that the rule does not admit any more.

        The API server keeps connections to webhooks open for as long as it uses them.
        """
        for task, asked in list(self._led_inside.items()):
            if not isinstance(self._decide(*asked), Direct | Tunnelled):
                task.cancel()
        if self._tunnels is not None:
            self._tunnels.recheck()
        for task, (host, address) in list(self._led_outside.items()):
            if self._outside is None or self._outside.refusal(host, address):
                task.cancel()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        """Listen while the context is open; its end ends all connections at once.

        Raises:
            OSError: The socket cannot be made.
        """

        async def listen(accept: Accept) -> asyncio.Server:
            return await asyncio.start_unix_server(accept, sock=bound, limit=CONNECT_HEAD_BYTES)

        with listener(self._path) as bound:
            async with self._connections.accepted(listen):
                yield

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: The socket cannot be made.
        """
        async with self.serve():
            await asyncio.get_running_loop().create_future()

    async def _reject(self, stream: ByteStream, reason: str) -> None:
        stream.writer.write(HttpRefusal(503, reason).response())
        try:
            with suppress(HttpRefusal, asyncio.IncompleteReadError, OSError):
                await read_head(stream, REJECTION_SECONDS)
        except BaseException:
            abort(stream)
            raise
        await end(stream)

    async def _serve(self, stream: ByteStream) -> None:
        """Serve one connection to its end; no error leaves this method."""
        try:
            host, port = heads.destination(heads.parse(await read_head(stream, self._limits.head_seconds)))
            await self._settle()
            match self._decide(host, port):
                case Refused(reason=reason):
                    raise HttpRefusal(403, reason)  # noqa: TRY301 - all refusals are written in one place
                case Direct() | Tunnelled() as found:
                    await self._lead_inside(found, (host, port), stream)
                case TunnelEntry():
                    await self._tunnelling().serve(stream, self._limits.head_seconds)
                case Outside(host=outside, port=its_port):
                    await self._lead_outside(outside, its_port, stream)
                case Kubelet(node=node):
                    await self._play(node, stream)
        except HttpRefusal as refusal:
            stream.writer.write(refusal.response())
        except (asyncio.IncompleteReadError, ApiError, OSError) as error:
            # Streams break at any time; both ends learn of it by the end of theirs.
            log.debug("a connection broke", extra={"problem": type(error).__name__})
            abort(stream)
        except Exception:  # a bug of the rule that one host triggers must not end all other connections
            log.exception("a connection failed")
            stream.writer.write(HttpRefusal(500, "the gate has failed").response())
        except BaseException:
            # The gate is closed: nothing waits for the last bytes.
            abort(stream)
            raise
        finally:
            await end(stream)

    async def _settle(self) -> None:
        """Wait until all destinations are known: an unknown one would be refused for good."""
        if self._settled is None or self._settled.is_set():
            return
        try:
            async with asyncio.timeout(self._limits.settle_seconds):
                await self._settled.wait()
        except TimeoutError:
            reason = "the pods and the nodes of this control plane are not known yet: try again in a few seconds"
            raise HttpRefusal(503, reason) from None

    async def _play(self, node: str, stream: ByteStream) -> None:
        """Serve one request to the kubelet of a node, inside TLS."""
        inputs = self._kubelet
        if inputs is None:
            raise HttpRefusal(403, "this gate serves no nodes")
        stream.writer.write(heads.ESTABLISHED)
        await kubelet.serve(inputs, node, stream, seconds=self._limits.head_seconds)

    def _tunnelling(self) -> NodeTunnels:
        if self._tunnels is None:
            raise HttpRefusal(403, "this gate has no tunnels of nodes")
        return self._tunnels

    async def _lead_inside(self, found: Direct | Tunnelled, asked: tuple[str, int], stream: ByteStream) -> None:
        """Connect to an address of the cluster, and forward bytes both ways."""
        task = asyncio.current_task()
        if task is None:
            raise HttpRefusal(500, "the gate has failed")
        self._led_inside[task] = asked
        try:
            if isinstance(found, Tunnelled):
                await self._tunnelling().carry(found, stream)
                return
            _, upstream = await dial([found.address], found.port, self._limits.dial_seconds)
            stream.writer.write(heads.ESTABLISHED)
            await splice(stream, upstream)
        finally:
            del self._led_inside[task]

    async def _lead_outside(self, host: str, port: int, stream: ByteStream) -> None:
        """Connect to a host outside, and forward bytes both ways."""
        inputs, task = self._outside, asyncio.current_task()
        if inputs is None or task is None:
            raise HttpRefusal(403, "this gate leads to no host outside")
        address, upstream = await dial(await checked(inputs, host), port, self._limits.dial_seconds)
        # The rule may have changed since it was asked.
        reason = inputs.refusal(host, address)
        if reason:
            abort(upstream)
            raise HttpRefusal(403, reason)
        self._led_outside[task] = (host, address)
        try:
            stream.writer.write(heads.ESTABLISHED)
            await splice(stream, upstream)
        finally:
            del self._led_outside[task]
