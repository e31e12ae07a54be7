"""The home's end of tunnels: a port at which peers open them, and the sockets that lead through them.

    peer ──TLS──► GET /tunnel, token ─► TokenReview ─► ServiceAccount berlin-tunnel ─► tunnel of PeerCluster berlin
    Client of berlin ─► socket ─► stream of that tunnel ─► API server of the peer, with TLS from end to end

The token is for the audience of tunnels only, so that the API server of the home refuses it. A peer has one tunnel. One
that answers stays; another one for the same peer replaces it only if it does not answer a ping. So neither a thief of
the token nor a copy of the peer interrupts a tunnel that works, and a peer whose connection broke unseen comes back.

No client opens a tunnel, or learns which peers there are, before the API server has accepted its token.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tenantry.api.errors import ApiError, ConfigError, NotFound, RetryableError, TenantryError
from tenantry.api.model import Json
from tenantry.api.peercluster import (
    LEASE_SECONDS,
    PEERS_NAMESPACE,
    PeerCluster,
    PeerHost,
)
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_PATH, Dial, tunnel_name
from tenantry.controllers.peering.guests.guest import ACCOUNTS
from tenantry.controllers.peering.guests.invitations import is_token
from tenantry.controllers.peering.link import tokenlife
from tenantry.controllers.peering.tunnels import reviews, serving
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.tasks import in_background
from tenantry.hosting import frames, heads
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.heads import HttpRefusal, RequestHead
from tenantry.hosting.loopback import TunnelEntrance
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tlslistener import accepting, secured
from tenantry.hosting.tunnel import ByteStream, abort, end, read_head
from tenantry.hosting.unauthenticated import UnauthenticatedLimits

LIMITS = ConnectionLimits(
    connections_per_second=100,
    open_connections=1200,
    head_seconds=5.0,
    unauthenticated=UnauthenticatedLimits(per_source_per_second=20, most=200),
)
"""A thousand peers; and what clients without a token open ends soon, and keeps no peer out."""

REVIEW_SECONDS = 60.0
"""How often the API server is asked whether the token of an open tunnel is still valid."""

_RETRY_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_MOST_REVIEWS = 4
_ANSWERED_SECONDS = 10.0
"""How long a client waits until the API server has looked at its token."""

log = logging.getLogger(__name__)


class _Tunnel(NamedTuple):
    mux: StreamMux
    task: asyncio.Task[None]


class TunnelEndpoint:
    """The tunnels of all peers of a home.

    Args:
        home: The home, whose caches have PeerClusters.
        place: The IP address and the port to listen on; None to have no tunnels.
        changed: Called with the name of a PeerCluster whose tunnel was opened, or has ended.
    """

    def __init__(self, home: Cluster, place: tuple[str, int] | None, changed: Callable[[str], None]) -> None:
        self._home = home
        self._place = place
        self._changed = changed
        self._connections = Connections(LIMITS)
        self._entrance = TunnelEntrance(self._carry)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tunnels: dict[str, _Tunnel] = {}
        # Peers for which another tunnel than the open one is asked for at the moment.
        self._contested: set[str] = set()
        self._opened = asyncio.Condition()
        self._needed = asyncio.Event()
        self._retired = asyncio.Event()
        self._reviewing = asyncio.Semaphore(_MOST_REVIEWS)
        self._listens = False
        self._problem = ""

    @property
    def problem(self) -> str:
        """Return why no tunnel can be opened; "" if peers can open theirs."""
        if self._place is None:
            return "the operator of this cluster has no port for tunnels: start it with --tunnel-address"
        return "" if self._listens else self._problem or "the port for tunnels is being opened"

    @property
    def has_port(self) -> bool:
        """Return whether this process may serve tunnels at all."""
        return self._place is not None

    @property
    def server(self) -> str:
        """Return the URL under which clients reach any peer that has a tunnel."""
        return self._entrance.server

    @property
    def waits(self) -> bool:
        """Return whether the problem may pass by itself."""
        return self._place is not None and not self._listens

    def require(self) -> None:
        """Listen from now on: a home without such peers has no open port."""
        self._retired.clear()
        self._needed.set()

    def is_open(self, name: str) -> bool:
        """Return whether the tunnel of a PeerCluster is open."""
        known = self._tunnels.get(name)
        return known is not None and known.mux.is_open

    async def opened(self, name: str) -> None:
        """Wait until the tunnel of a PeerCluster is open.

        Raises:
            ConfigError: None can be opened.
        """
        if self._place is None:
            raise ConfigError(self.problem)
        async with self._opened:
            await self._opened.wait_for(lambda: self.is_open(name))

    def socket_for(self, name: str) -> socket.socket:
        """Return a socket that leads to the API server of a peer once it is connected to `server`.

        Raises:
            OSError: The peer has no tunnel.
        """
        if not self.is_open(name):
            raise OSError(errno.EHOSTDOWN, os.strerror(errno.EHOSTDOWN))
        return self._entrance.socket_for(name)

    def close(self, name: str) -> None:
        """End the tunnel of a PeerCluster that is gone, or is not reached by a tunnel any more."""
        known = self._tunnels.get(name)
        if known is not None:
            known.task.cancel()
        if not any(self._is_dialled_by(each.metadata.name) for each in self._home.cache(PeerCluster.resource)):
            self._needed.clear()
            self._retired.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        if self._place is None:
            return
        while True:
            await self._needed.wait()
            try:
                await self._listen(self._place)
                continue
            except (TenantryError, OSError) as error:
                self._problem = f"the port for tunnels cannot be opened: {error}"
                log.warning("the port for tunnels cannot be opened", extra={"error": str(error)})
            await self._all_changed()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self, place: tuple[str, int]) -> None:
        """Serve until no peer needs a tunnel any more; no peer has pinned the certificate then.

        Raises:
            TenantryError: The API server refuses, or does not answer; or the Secret has no certificate.
            OSError: The port cannot be opened.
        """
        self._context = await serving.context(self._home)
        async with self._entrance.serve(), accepting(place, self._connections, self._serve):
            self._listens = True
            try:
                await self._all_changed()
                # A peer may need the port again between the moment at which the last one did not, and this task's turn.
                while not self._retired.is_set():
                    await self._retired.wait()
            finally:
                self._listens = False
        while self._retired.is_set():
            try:
                await serving.forget(self._home)
            except ApiError as error:
                log.warning("the certificate of the port for tunnels is not deleted", extra={"error": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                break

    async def _all_changed(self) -> None:
        for each in self._home.cache(PeerCluster.resource):
            self._changed(each.metadata.name)

    async def _carry(self, name: str, stream: ByteStream) -> None:
        known = self._tunnels.get(name)
        try:
            if known is not None:
                await known.mux.carry(stream)
        except (TenantryError, OSError) as error:
            log.debug("a stream of a tunnel broke", extra={"peer": name, "problem": type(error).__name__})
        except Exception:  # a bug in one stream must not end all others
            log.exception("a stream of a tunnel failed")
        finally:
            abort(stream)

    # -- the port ---------------------------------------------------------------------------------

    async def _serve(self, accepted: socket.socket) -> None:
        """Serve one connection to its end; no error leaves this method."""
        try:
            stream = await secured(accepted, self._context, LIMITS)
        except OSError as error:
            log.debug("a handshake failed", extra={"problem": type(error).__name__})
            return
        try:
            await self._answer(stream)
        except HttpRefusal as refusal:
            stream.writer.write(refusal.response())
        except (asyncio.IncompleteReadError, OSError) as error:
            log.debug("a connection broke", extra={"problem": type(error).__name__})
            abort(stream)
        except Exception:  # a bug that one peer triggers must not end all other tunnels
            log.exception("a connection failed")
            abort(stream)
        except BaseException:
            abort(stream)
            raise
        finally:
            await end(stream)

    async def _answer(self, stream: ByteStream) -> None:
        head = heads.parse(await read_head(stream, LIMITS.head_seconds))
        key = _checked(head)
        token = _token(head)
        name = await self._first_reviewed(token)
        if name is None:
            raise HttpRefusal(401, "the token opens no tunnel here: ask the administrator of the home for another file")
        self._connections.authenticated()
        await self._replace(name)
        stream.writer.write(frames.switched(key))
        await self._keep(name, stream, token)

    async def _first_reviewed(self, token: str) -> str | None:
        """Return the PeerCluster whose tunnel the token of a new connection opens; see `_reviewed`."""
        try:
            async with asyncio.timeout(_ANSWERED_SECONDS), self._reviewing:
                return await self._reviewed(token)
        except TimeoutError:
            raise HttpRefusal(503, "the API server of the home does not answer in time") from None

    async def _reviewed(self, token: str) -> str | None:
        """Return the PeerCluster whose tunnel a token opens; None if it opens none.

        Raises:
            HttpRefusal: The API server does not say, so that the token is neither accepted nor refused.
        """
        try:
            name = reviews.peer_of(msgspec.json.decode(await self._home.writer.send(reviews.asked(token))))
        except (ApiError, RetryableError) as error:
            log.warning("a token cannot be reviewed", extra={"error": str(error)})
            raise HttpRefusal(503, "the API server of the home cannot check the token at the moment") from error
        return name if name is not None and self._is_dialled_by(name) else None

    def _is_dialled_by(self, name: str) -> bool:
        found: PeerCluster | None = self._home.cache(PeerCluster.resource).get(name)
        half = found.spec.host if found is not None else None
        return isinstance(half, PeerHost) and half.dial is Dial.PEER

    async def _replace(self, name: str) -> None:
        """End the tunnel that a peer has, if it does not answer any more.

        Raises:
            HttpRefusal: It answers.
        """
        known = self._tunnels.get(name)
        if known is None:
            return
        if name in self._contested:
            raise HttpRefusal(409, "another tunnel of this peer is being opened")
        self._contested.add(name)
        try:
            if await known.mux.answers(_ANSWER_SECONDS):
                raise HttpRefusal(409, "another tunnel of this peer is open, and answers")
            known.task.cancel()
            await asyncio.wait({known.task})
        finally:
            self._contested.discard(name)

    async def _keep(self, name: str, stream: ByteStream, token: str) -> None:
        task = asyncio.current_task()
        if task is None or name in self._tunnels:
            raise HttpRefusal(409, "another tunnel of this peer is being opened")
        mux = StreamMux(stream, is_client=False)
        mine = self._tunnels[name] = _Tunnel(mux, task)
        try:
            async with in_background(self._announce(name)), in_background(self._look_after(name, mux, token)):
                await mux.run()
        except (TenantryError, OSError, EOFError) as error:
            log.info("the tunnel of a peer has ended", extra={"peer": name, "problem": str(error)})
        finally:
            if self._tunnels.get(name) is mine:
                del self._tunnels[name]
            self._changed(name)

    async def _announce(self, name: str) -> None:
        log.info("a peer has opened its tunnel", extra={"peer": name})
        self._changed(name)
        async with self._opened:
            self._opened.notify_all()

    async def _look_after(self, name: str, mux: StreamMux, token: str) -> None:
        """Give the peer another token before its own expires; end the tunnel if that is not valid any more.

        Raises:
            ConnectionResetError: The token is not valid any more, or the PeerCluster has no tunnel.
        """
        clock, held = self._home.clock, token
        due = clock.monotonic() + tokenlife.seconds_left(held, clock.now())
        while True:
            if clock.monotonic() >= due:
                with suppress(ApiError):
                    held = await self._issue(name)
                    await mux.tell(held)
                    due = clock.monotonic() + tokenlife.seconds_left(held, clock.now(), 0.0)
            # Not all at the same time.
            await asyncio.sleep(REVIEW_SECONDS * (0.5 + secrets.randbelow(1000) / 1000))
            with suppress(HttpRefusal):
                if await self._reviewed(held) != name:
                    raise ConnectionResetError("the token is not valid any more")

    async def _issue(self, name: str) -> str:
        asked = request.token(
            ACCOUNTS, PEERS_NAMESPACE, tunnel_name(name), seconds=LEASE_SECONDS, audience=TUNNEL_AUDIENCE
        )
        try:
            answer: Json = msgspec.json.decode(await self._home.writer.send(asked))
        except NotFound as error:
            raise ConnectionResetError("the account of the tunnel is gone") from error
        return answer["status"]["token"]


def _checked(head: RequestHead) -> str:
    """Return the key of the WebSocket that a request opens.

    Raises:
        HttpRefusal: It opens none.
    """
    if (head.method, head.target) != ("GET", TUNNEL_PATH):
        raise HttpRefusal(404, "only tunnels are served here")
    return frames.websocket_key(head)


def _token(head: RequestHead) -> str:
    """Return the bearer token of a request.

    Raises:
        HttpRefusal: It has none.
    """
    values = [value for name, value in head.headers if name == "authorization"]
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not is_token(token):
        raise HttpRefusal(401, "the request must have a bearer token")
    return token
