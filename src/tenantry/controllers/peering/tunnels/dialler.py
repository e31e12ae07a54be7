"""The peer's end of a tunnel: keeps it open to one home, with back-off, and connects its streams to the API server.

    token of Secret home-tunnel ─► GET /tunnel at the home ─► streams ─► the API server of this cluster, nothing else
    a token that the home sends ─► Secret home-tunnel

What the home can do by it is what a client can do that reaches the API server: the tunnel has no rights of its own.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from tenantry.api.errors import ConfigError, NotFound, TenantryError, Unauthorized, Unreachable
from tenantry.api.model import Json
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_PATH, GuestTunnel
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests.invitations import is_token
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.tasks import in_background
from tenantry.hosting import frames
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tunnel import CHUNK_BYTES, ByteStream, abort
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport

FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""A tunnel that was open for so long has worked: the next pause is the first one again."""

TOKEN_KEY = "token"  # noqa: S105 - the key of the Secret

log = logging.getLogger(__name__)


class TunnelDialler:
    """Keeps the tunnel to one home open.

    Args:
        cluster: The peer, which is this cluster.
        name: The PeerCluster.
        half: Where the home is.
        server: The URL of the API server of this cluster.
        changed: Called when the tunnel opens, or ends.
    """

    def __init__(
        self, cluster: Cluster, name: str, half: GuestTunnel, server: str, changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._name = name
        self.half = half
        address = urlsplit(server)
        self._place = address.hostname or "", address.port or 443
        self._changed = changed
        self._given = asyncio.Event()
        # The last token that the home has sent, until it is stored.
        self._sent = ""
        self.problem = "the tunnel is being opened"
        """Why it is not open; "" if it is."""
        self.is_refused = False
        """Whether the problem stays until an administrator uses another file."""

    async def run(self) -> None:
        """Keep the tunnel open until cancelled."""
        pause, loop = FIRST_PAUSE_SECONDS, asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._open()
            except (TenantryError, OSError, EOFError) as error:
                self._report(str(error) or type(error).__name__, is_refused=isinstance(error, ConfigError))
            except Exception as error:  # a bug that the home triggers must not end the operator
                log.exception("a tunnel has failed", extra={"peer": self._name})
                self._report(f"{type(error).__name__}: see the log of the operator")
            if loop.time() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            # Peers of a home that was away do not come back all at once.
            await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    def _report(self, problem: str, *, is_refused: bool = False) -> None:
        if (problem, is_refused) != (self.problem, self.is_refused):
            self.problem, self.is_refused = problem, is_refused
            self._changed()

    async def _open(self) -> None:
        """Open the tunnel, and serve it until it ends.

        Raises:
            TenantryError: The home refuses it, cannot be reached, or breaks the protocol.
            OSError: The connection broke.
            EOFError: The home has closed it.
        """
        connection = Connection(
            server=self.half.server.rstrip("/"),
            source=f"the tunnel of PeerCluster {self._name!r}",
            ca=self.half.ca.encode(),
            token=await self._token(),
            tls_server_name=TUNNEL_AUDIENCE,
        )
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
        async with Transport(connection, max_connections=1) as transport:
            try:
                upgraded = await transport.upgrade("GET", TUNNEL_PATH, headers=asked)
            except Unauthorized as error:
                raise ConfigError(
                    f"the home does not accept the token of Secret {self.half.credentials_secret_name!r} of namespace"
                    f" {PEERS_NAMESPACE!r}: use another file of its `tenantry peer accept`, with `tenantry peer dial`"
                ) from error
            stream = ByteStream(upgraded.reader, upgraded.writer)
            try:
                if upgraded.headers.get("sec-websocket-accept") != frames.accept_key(key):
                    raise Unreachable(f"{connection.server} is no port for tunnels")
                mux = StreamMux(stream, is_client=True, connect=self._connect, heard=self._hear)
                self._report("")
                async with in_background(self._store()):
                    await mux.run()
            finally:
                abort(stream)

    async def _connect(self) -> ByteStream:
        return ByteStream(*await asyncio.open_connection(*self._place, limit=CHUNK_BYTES))

    # -- the token --------------------------------------------------------------------------------

    async def _token(self) -> str:
        name = self.half.credentials_secret_name
        found = await liveobjects.find(self._cluster, SECRETS, name) or {}
        data: Json = found.get("data") or {}
        token = ""
        with suppress(ValueError, TypeError):
            token = base64.b64decode(data.get(TOKEN_KEY, ""), validate=True).decode()
        if not is_token(token):
            raise ConfigError(
                f"Secret {name!r} of namespace {PEERS_NAMESPACE!r} has no token under the key {TOKEN_KEY!r}: use the"
                " file of the home with `tenantry peer dial`"
            )
        return token

    def _hear(self, text: str) -> None:
        if is_token(text):
            self._sent = text
            self._given.set()

    async def _store(self) -> None:
        """Store each token that the home sends, the last one if there are several."""
        while True:
            await self._given.wait()
            self._given.clear()
            body: Json = {"data": {TOKEN_KEY: base64.b64encode(self._sent.encode()).decode()}}
            asked = request.patch(SECRETS, PEERS_NAMESPACE, self.half.credentials_secret_name, body)
            try:
                await self._cluster.writer.send(asked)
            except NotFound:
                pass
            except TenantryError as error:
                log.warning("the token of a tunnel is not stored", extra={"peer": self._name, "error": str(error)})
                self._given.set()
            # However many the home sends: it must not keep the API server of this cluster busy.
            await asyncio.sleep(LAST_PAUSE_SECONDS)
