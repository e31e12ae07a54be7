"""The tunnels of nodes that the gate has no route to: the gate's end.

    agent of a node ─► API server, as system:node:NAME ─► aggregated API tunnel.tenantry.dev ─► gate: TunnelEntry
                                                                                               └─► WebSocket, mux.py
    API server ─► gate: Tunnelled(NAME, address, port) ─► a stream of this tunnel ─► the agent connects it

The API server authenticates the node by its certificate, authorizes it, and names it in a header. This header counts,
because the connection has the certificate by which API servers forward requests to aggregated APIs: a user who makes
the API server connect here by a webhook or by a proxy of a Service has none. So a node needs one way out, to the API
server, and no port of the operator is open for it (decision 89).

A tunnel is opened by a machine that is not trusted. It carries streams that the gate begins, and none that the machine
begins. A machine can make the API server repeat its request, so that the rate of each node and the number of requests
at one time are bounded.

Source: Kubernetes, "Kubernetes API Aggregation Layer", "Configure the Aggregation Layer"; RFC 6455.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.hosting import frames, heads
from tenantry.hosting.destinations import Tunnelled
from tenantry.hosting.heads import HttpRefusal, RequestHead
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tunnel import ByteStream, abort, end, read_head, secured
from tenantry.hosting.tunnelapi import GROUP, ROOT, VERSION

NODE_USER, NODES_GROUP = "system:node:", "system:nodes"

MOST_REQUESTS = 16
"""How many requests are served at one time, besides open tunnels."""

OPENINGS_PER_SECOND = 2
"""How often one node may ask for a tunnel, in the long run and at once."""

_MOST_NODES = 1024
"""Of so many nodes the rate is remembered, of those that asked last."""

ANSWER_SECONDS = 5.0
"""How long a tunnel may take to answer a ping, before another one of its node replaces it."""

_HEAD_BYTES = 64 * 1024

log = logging.getLogger(__name__)


class _NodeTunnel(NamedTuple):
    mux: StreamMux
    task: asyncio.Task[None]


class NodeTunnels:
    """The tunnels to the nodes of one hosted API server.

    Args:
        admits: Returns whether a node may have a tunnel now.
        tls: Returns the context of the server that this is for API servers. It must require client certificates, and
            trust only the authority of front proxies.
        answer_seconds: How long a tunnel may take to answer a ping.
    """

    def __init__(
        self,
        admits: Callable[[str], bool],
        tls: Callable[[], Awaitable[ssl.SSLContext]],
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._admits = admits
        self._tls = tls
        self._answer_seconds = answer_seconds
        self._tunnels: dict[str, _NodeTunnel] = {}
        self._requests = 0
        self._buckets = OrderedDict[str, TokenBucket]()

    def is_open(self, node: str) -> bool:
        """Return whether the tunnel of a node is open."""
        known = self._tunnels.get(node)
        return known is not None and known.mux.is_open

    async def ended(self, node: str) -> None:
        """Wait until the tunnel that a node has now has ended; return at once if it has none."""
        known = self._tunnels.get(node)
        if known is not None:
            await asyncio.wait({known.task})

    def recheck(self) -> None:
        """End the tunnels of nodes that may not have one any more, with all of their streams."""
        for node, each in list(self._tunnels.items()):
            if not self._admits(node):
                each.task.cancel()

    async def carry(self, to: Tunnelled, stream: ByteStream) -> None:
        """Report to a client that it is connected, and forward bytes between it and a port of a node.

        Whether the node connects the stream is known only by its end: the client already has its answer.

        Raises:
            HttpRefusal: The node has no tunnel.
            OSError: The stream broke.
        """
        known = self._tunnels.get(to.node)
        if known is None or not known.mux.is_open:
            raise HttpRefusal(503, f"node {to.node} has no open tunnel: does `tenantry node-tunnel` run there?")
        stream.writer.write(heads.ESTABLISHED)
        await known.mux.carry(stream, (to.address, to.port))

    # -- the aggregated API -----------------------------------------------------------------------

    async def serve(self, stream: ByteStream, seconds: float) -> None:
        """Serve one connection of the API server to its end.

        Args:
            stream: The connection, whose opening is not reported to the API server yet.
            seconds: The time for the handshake, and for the head of the request.

        Raises:
            HttpRefusal: Too many are served.
            OSError: The connection broke, or the client has no certificate of a front proxy.
        """
        if self._requests >= MOST_REQUESTS:
            raise HttpRefusal(503, "too many requests about tunnels at one time")
        self._requests += 1
        is_counted = True

        def opened() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                self._requests -= 1

        try:
            # Before the answer: what the client sends then must find the handshake waiting.
            context = await self._tls()
            stream.writer.write(heads.ESTABLISHED)
            try:
                inner = await secured(stream, context, seconds=seconds, limit_bytes=_HEAD_BYTES)
            except BaseException:
                abort(stream)
                raise
            await self._respond(inner, seconds, opened)
        finally:
            opened()
            abort(stream)

    async def _respond(self, stream: ByteStream, seconds: float, opened: Callable[[], None]) -> None:
        try:
            head = heads.parse(await read_head(stream, seconds))
            path = head.target.partition("?")[0].rstrip("/")
            if head.method == "GET" and path == ROOT:
                stream.writer.write(_described())
                return
            node = _node_of(head, path)
            key = frames.websocket_key(head)
            await self._replace(node)
            stream.writer.write(frames.switched(key))
            opened()
            await self._keep(node, stream)
        except HttpRefusal as refusal:
            stream.writer.write(refusal.response())
        except BaseException:
            abort(stream)
            raise
        finally:
            await end(stream)

    async def _replace(self, node: str) -> None:
        """End the tunnel that a node has, if it does not answer any more.

        Raises:
            HttpRefusal: The node may have no tunnel, asks too often, or has one that answers.
        """
        bucket = self._buckets.pop(node, None) or TokenBucket.per_second(OPENINGS_PER_SECOND)
        self._buckets[node] = bucket
        if len(self._buckets) > _MOST_NODES:
            self._buckets.popitem(last=False)
        if not bucket.try_take(asyncio.get_running_loop().time()):
            raise HttpRefusal(429, f"node {node} asks for its tunnel too often")
        if not self._admits(node):
            raise HttpRefusal(403, f"node {node} is no machine from outside of this cluster")
        known = self._tunnels.get(node)
        if known is None:
            return
        if await known.mux.answers(self._answer_seconds):
            raise HttpRefusal(409, f"another tunnel of node {node} is open, and answers")
        known.task.cancel()
        await self.ended(node)

    async def _keep(self, node: str, stream: ByteStream) -> None:
        task = asyncio.current_task()
        if task is None or node in self._tunnels:
            # It was opened while the former one was asked; the head has been sent, and its end shows it.
            return
        mux = StreamMux(stream, is_client=False)
        mine = self._tunnels[node] = _NodeTunnel(mux, task)
        log.info("a node has opened its tunnel", extra={"node": node})
        try:
            await mux.run()
        except (TenantryError, OSError, EOFError) as error:
            log.info("the tunnel of a node has ended", extra={"node": node, "problem": str(error)})
        finally:
            if self._tunnels.get(node) is mine:
                del self._tunnels[node]


def _node_of(head: RequestHead, path: str) -> str:
    """Return the node that a request is of, and asks about.

    Raises:
        HttpRefusal: It asks for something else, or is of another user.
    """
    start, _, rest = path.partition(f"{ROOT}/nodes/")
    node, slash, verb = rest.partition("/")
    if start or not node or not slash or verb != "proxy" or head.method != "GET":
        raise HttpRefusal(404, "only tunnels of nodes are served here")
    users = [value for name, value in head.headers if name == "x-remote-user"]
    groups = [value for name, value in head.headers if name == "x-remote-group"]
    if users != [NODE_USER + node] or NODES_GROUP not in groups:
        raise HttpRefusal(403, f"only node {node} itself opens its tunnel")
    return node


def _described() -> bytes:
    """Return the response with what the API has: nothing that a client lists."""
    found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": ()}
    body = msgspec.json.encode(found)
    own = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
    return heads.response_head(200, "OK", own) + body
