"""The egress gate: the only way out of a hosted API server, which has no network of its own.

    kube-apiserver ──Unix socket──► CONNECT host:port ─► decide(host, port)
                                                           ├─ Refused   403 and the reason
                                                           ├─ Direct    TCP, bytes both ways           tunnel.py
                                                           ├─ Outside   resolved, checked, then TCP    dialling.py
                                                           └─ Kubelet   TLS and one HTTP request       kubelet.py

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

import msgspec

from tenantry.api.errors import ApiError
from tenantry.engine.tasks import first_error
from tenantry.hosting import heads, kubelet
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Outside, Refused
from tenantry.hosting.dialling import OutsideInputs, checked, dial
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.listeners import listener
from tenantry.hosting.tunnel import ByteStream, abort, end, read_head, secured, splice

CONNECT_HEAD_BYTES = 8 * 1024
REQUEST_HEAD_BYTES = 64 * 1024
REJECTION_SECONDS = 1.0
MOST_REJECTIONS = 50
"""The number of rejected connections that the gate waits for at one time."""

log = logging.getLogger(__name__)

Decide = Callable[[str, int], Destination]
"""Returns the destination of a host (an IP address, or a DNS name in lower case) and a port, without I/O."""


class GateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one gate.

    Args:
        connections_per_second: The sustained rate of new connections, which is also the largest burst.
        open_connections: The number of connections at one time.
        head_seconds: The time for the head of a request, and for a TLS handshake.
        dial_seconds: The time for a TCP connection to a destination.
        settle_seconds: The time that a connection waits until all destinations are known.
    """

    connections_per_second: int = 50
    open_connections: int = 200
    head_seconds: float = 10.0
    dial_seconds: float = 10.0
    settle_seconds: float = 10.0


class ConnectionBucket:
    """A bucket that holds at most `rate` tokens, and regains `rate` tokens a second.

    Args:
        rate: The number of tokens; the bucket is full at first.
        now: The time of a monotonic clock, in seconds.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = float(rate)
        self._tokens = self._rate
        self._then = now

    def take(self, now: float) -> bool:
        """Return whether there was a token, and take it."""
        self._tokens = min(self._rate, self._tokens + (now - self._then) * self._rate)
        self._then = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Gate:
    """The gate of one hosted API server.

    Args:
        path: The Unix socket. Error messages of the API server quote its name.
        decide: The rule for destinations.
        kubelet: What the gate needs to play kubelets; None if `decide` never returns one.
        outside: What the gate needs to reach hosts outside of the cluster; None if it reaches none.
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
        limits: GateLimits | None = None,
        settled: asyncio.Event | None = None,
    ) -> None:
        self._path = path
        self._settled = settled
        self._decide = decide
        self._kubelet = kubelet
        self._outside = outside
        self._limits = limits or GateLimits()
        self._group: asyncio.TaskGroup | None = None
        self._bucket: ConnectionBucket | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._rejected: set[asyncio.Task[None]] = set()
        # Connections to hosts outside: the host and the address that was dialled.
        self._led_outside: dict[asyncio.Task[None], tuple[str, str]] = {}

    @property
    def open_connections(self) -> int:
        """Return the number of connections."""
        return len(self._open)

    def recheck(self) -> None:
        """End the connections to hosts outside that the rule does not admit any more.

        The API server keeps connections to webhooks open for as long as it uses them.
        """
        for task, (host, address) in list(self._led_outside.items()):
            if self._outside is None or self._outside.refusal(host, address):
                task.cancel()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        """Listen while the context is open; its end ends all connections at once.

        Raises:
            OSError: The socket cannot be made.
        """
        self._bucket = ConnectionBucket(self._limits.connections_per_second, asyncio.get_running_loop().time())
        with listener(self._path) as bound, first_error():
            async with asyncio.TaskGroup() as group:
                self._group = group
                server = await asyncio.start_unix_server(self._accept, sock=bound, limit=CONNECT_HEAD_BYTES)
                try:
                    yield
                finally:
                    self._group = None
                    server.close()
                    for task in self._open | self._rejected:
                        task.cancel()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: The socket cannot be made.
        """
        async with self.serve():
            await asyncio.get_running_loop().create_future()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ByteStream(reader, writer)
        group, bucket = self._group, self._bucket
        if group is None or bucket is None:
            # The gate was closed after the kernel had accepted the connection.
            abort(stream)
            return
        if len(self._open) >= self._limits.open_connections:
            reason = "too many connections are open"
        elif not bucket.take(asyncio.get_running_loop().time()):
            reason = "too many connections in a short time"
        else:
            reason = ""
        if reason and len(self._rejected) >= MOST_REJECTIONS:
            abort(stream)
            return
        tasks = self._rejected if reason else self._open
        task = group.create_task(self._reject(stream, reason) if reason else self._serve(stream))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

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
                case Direct() as found:
                    _, upstream = await dial([found.address], found.port, self._limits.dial_seconds)
                    stream.writer.write(heads.ESTABLISHED)
                    await splice(stream, upstream)
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
        seconds = self._limits.head_seconds
        try:
            inner = await secured(stream, inputs.tls, seconds=seconds, limit_bytes=REQUEST_HEAD_BYTES)
        except BaseException:
            # The handshake has taken the transport over, and nothing reports its end to this stream any more.
            abort(stream)
            raise
        try:
            await kubelet.answer(inputs, node, inner, head_seconds=seconds)
        except HttpRefusal as refusal:
            inner.writer.write(refusal.response())
        except BaseException:
            abort(inner)
            raise
        finally:
            await end(inner)
            abort(stream)

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
