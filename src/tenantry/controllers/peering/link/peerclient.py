"""The credentials of a home at a peer: a working token of one hour, and the token by which both are renewed.

    Secret of `tenantry-peers` at home ─ token of GUEST-renew ─► TokenRequest ─► working token of GUEST, in memory only
                                       ◄─ a later token of GUEST-renew ─

    its key `invitation` ─ token of GUEST-invite ─► TokenRequest ─► first token of GUEST-renew
                                                ─► Secret GUEST-invite deleted: the invitation is used

A user who reads the Secret can act as the home until the accounts at the peer are deleted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import (
    ConfigError,
    Forbidden,
    InputError,
    NotFound,
    RetryableError,
    TenantryError,
    TerminalError,
    Unauthorized,
)
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.model import Json
from tenantry.api.peercluster import (
    LEASE_SECONDS,
    PEERS_NAMESPACE,
    WORK_SECONDS,
    PeerHost,
    inviter_name,
    renewer_name,
)
from tenantry.api.peerinvitation import PeerInvitation
from tenantry.api.peertunnel import Dial
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests import invitations
from tenantry.controllers.peering.guests.guest import ACCOUNTS, BINDINGS
from tenantry.controllers.peering.link import tokenlife
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection, IssuedToken

TOKEN_KEY = "token"  # noqa: S105 - the key of the Secret
INVITATION_KEY = "invitation"
"""Of the Secret: a PeerInvitation that is not used yet."""

LOOK_SECONDS = 300.0
"""How often the age of the token of the renewer is looked at, and the least time between two of its renewals."""

_RENEW_PART = 2 / 3
_CONNECTIONS = 8
"""Enough for 80 writes a second at a distance of 100 ms, four times what is written for long. Each one that is opened
costs 1.5 ms of CPU, four times a write."""
_MOST_BYTES = 64 * 2**20
"""The longest response that is read: a peer could fill the memory. A page of lists has at most 500 pods of 128 KiB."""

log = logging.getLogger(__name__)


class PeerAccess:
    """The credentials of one home at one peer.

    Args:
        home: The home, which has the Secret.
        home_id: The uid of its namespace kube-system.
        name: The PeerCluster at home.
        host: Its host half.
        tunnels: Those of peers that this cluster cannot connect to.
    """

    def __init__(self, home: Cluster, home_id: str, name: str, host: PeerHost, tunnels: TunnelEndpoint) -> None:
        self._home = home
        self._home_id = home_id
        self._name = name
        self._host = host
        self._tunnels = tunnels
        # When the age of the token is looked at, of the monotonic clock: a link that begins again looks no earlier.
        self._look_at = float("-inf")
        # The token of the renewer that this process has stored last, and when.
        self._stored_last: tuple[str, float] | None = None

    def client(self) -> Client:
        """Return a client with a working token, requested anew at two thirds of its life."""
        return Client(self._connection(issue=True), field_manager=FIELD_MANAGER, max_connections=_CONNECTIONS)

    async def reach(self, report: Callable[[TenantryError | None], None]) -> None:
        """Wait until there is a way to the peer.

        Args:
            report: Called with why there is none yet, and with None once there is.

        Raises:
            ConfigError: There will be none.
        """
        if self._host.dial is Dial.HOME or self._tunnels.is_open(self._name):
            return
        report(RetryableError("the tunnel of the peer is not open: condition TunnelOpen says why"))
        await self._tunnels.opened(self._name)
        report(None)

    async def accept(self) -> None:
        """Use the invitation in the Secret, if there is one: request the first token, and end the invitation.

        Raises:
            TerminalError: The invitation is not for this cluster, or not valid any more.
            ApiError: One side does not answer.
        """
        secret = await self._secret()
        data: Json = secret.get("data") or {}
        if INVITATION_KEY not in data:
            return
        try:
            invitation = invitations.read(base64.b64decode(data[INVITATION_KEY]), PeerInvitation)
        except InputError as error:
            raise self._refused(str(error)) from error
        digest = invitations.digest(invitation)
        annotations: Json = secret["metadata"].get("annotations") or {}
        if annotations.get(invitations.USED) != digest:
            problem = invitations.refusal(invitation, self._home_id, self._home.clock.now())
            if not problem and invitation.spec.guest != self._host.guest:
                problem = f"spec.guest must be {self._host.guest!r}, as in the PeerCluster"
            if problem:
                raise self._refused(problem)
            try:
                token = await self._request(renewer_name(self._host.guest), LEASE_SECONDS, invitation.spec.token)
            except (Unauthorized, Forbidden) as error:
                raise self._refused(invitations.used(invitation)) from error
            await self._keep({TOKEN_KEY: token}, {invitations.USED: digest})
        # After a crash in between, too: the token is kept already.
        with suppress(Unauthorized, Forbidden, NotFound):
            await self._end(invitation)
        await self._keep({INVITATION_KEY: None})

    def _refused(self, problem: str) -> TerminalError:
        return TerminalError(reasons.INVITATION_REFUSED, f"the invitation in Secret {self._told}: {problem}")

    async def _end(self, invitation: PeerInvitation) -> None:
        connection = self._connection(issue=False, token=invitation.spec.token)
        name = inviter_name(self._host.guest)
        async with Client(connection, field_manager=FIELD_MANAGER, max_connections=1) as client:
            writer = Writer(client)
            with suppress(NotFound):
                await writer.send(request.delete(SECRETS, PEERS_NAMESPACE, name))
            await writer.send(request.delete(BINDINGS, PEERS_NAMESPACE, name))

    async def keep_fresh(self) -> None:
        """Replace the token of the renewer when it is due, until cancelled."""
        clock = self._home.clock
        while True:
            await asyncio.sleep(max(0.0, self._look_at - clock.monotonic()))
            self._look_at = clock.monotonic() + LOOK_SECONDS
            try:
                if await self.is_due():
                    await self.renew()
            except TenantryError as error:
                fields = {"peer": self._name, "error": str(error)}
                log.warning("the credentials for a peer are not renewed", extra=fields)

    async def is_due(self) -> bool:
        """Return whether the token of the renewer is to be replaced.

        Raises:
            ConfigError: The Secret has no token.
            ApiError: The Secret is missing, or the home does not answer.
        """
        token, last, clock = await self._stored(), self._stored_last, self._home.clock
        held = clock.monotonic() - last[1] if last is not None and last[0] == token else None
        return tokenlife.seconds_left(token, clock.now(), held) <= 0

    async def renew(self) -> None:
        """Replace the token of the renewer in the Secret.

        Raises:
            ConfigError: The Secret is missing or has no token.
            ApiError: One side refuses, or does not answer.
        """
        token = await self._request(renewer_name(self._host.guest), LEASE_SECONDS)
        await self._keep({TOKEN_KEY: token})

    async def _keep(self, data: Mapping[str, str | None], annotations: Mapping[str, str] | None = None) -> None:
        """Write keys of the Secret; None removes one."""
        encoded = {key: value and base64.b64encode(value.encode()).decode() for key, value in data.items()}
        body: Json = {"data": encoded, "metadata": {"annotations": dict(annotations or {})}}
        await self._home.writer.send(request.patch(SECRETS, PEERS_NAMESPACE, self._host.credentials_secret_name, body))
        token = data.get(TOKEN_KEY)
        if token is not None:
            self._stored_last = (token, self._home.clock.monotonic())

    def _connection(self, *, issue: bool, token: str = "") -> Connection:
        host, given = self._host, self._host.server.rstrip("/")
        is_tunnelled = host.dial is Dial.PEER
        return Connection(
            server=self._tunnels.server if is_tunnelled else given,
            tls_server_name=urlsplit(given).hostname or "" if is_tunnelled else "",
            make_socket=partial(self._tunnels.socket_for, self._name) if is_tunnelled else None,
            source=f"PeerCluster {self._name!r}",
            ca=host.ca.encode(),
            token=token,
            issue=self._issue if issue else None,
            max_bytes=_MOST_BYTES,
        )

    async def _issue(self) -> IssuedToken:
        return IssuedToken(await self._request(self._host.guest, WORK_SECONDS), WORK_SECONDS * _RENEW_PART)

    async def _request(self, account: str, seconds: int, by: str = "") -> str:
        """Request a token of an account, with the stored token or another one."""
        connection = self._connection(issue=False, token=by or await self._stored())
        asked = request.token(ACCOUNTS, PEERS_NAMESPACE, account, seconds=seconds)
        async with Client(connection, field_manager=FIELD_MANAGER, max_connections=1) as client:
            answer: Json = msgspec.json.decode(await Writer(client).send(asked))
        return answer["status"]["token"]

    @property
    def _told(self) -> str:
        return f"{self._host.credentials_secret_name!r} of namespace {PEERS_NAMESPACE!r}"

    async def _secret(self) -> Json:
        found = await liveobjects.find(self._home, SECRETS, self._host.credentials_secret_name)
        if found is None:
            # To a caller that asks the peer, NotFound would be about an object there.
            raise Unauthorized(f"Secret {self._told} does not exist", status=401)
        return found

    async def _stored(self) -> str:
        content: Json = (await self._secret()).get("data") or {}
        try:
            return base64.b64decode(content[TOKEN_KEY], validate=True).decode()
        except (KeyError, ValueError, binascii.Error, TypeError) as error:
            raise ConfigError(
                f"Secret {self._told} has no token under the key {TOKEN_KEY!r}: accept an invitation of the peer with"
                " `tenantry peer accept`"
            ) from error
