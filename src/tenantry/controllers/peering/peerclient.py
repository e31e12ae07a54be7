"""The credentials of a home at a peer: a working token of one hour, and the token by which both are renewed.

    Secret of `tenantry-peers` at home ─ token of GUEST-renew ─► TokenRequest ─► working token of GUEST, in memory only
                                       ◄─ a later token of GUEST-renew ─

A user who reads the Secret can act as the home until the accounts at the peer are deleted.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from tenantry.api.errors import ConfigError, Unauthorized
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.model import Json
from tenantry.api.peercluster import LEASE_SECONDS, PEERS_NAMESPACE, WORK_SECONDS, PeerHost, renewer_name
from tenantry.controllers.peering.guest import ACCOUNTS
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection, IssuedToken
from tenantry.mirror.things import COPIED

SECRETS = COPIED["Secret"]
TOKEN_KEY = "token"  # noqa: S105 - the key of the Secret

RENEW_SECONDS = 24 * 3600.0
"""How often the token of the renewer is replaced: at a seventh of its life."""

_RENEW_PART = 2 / 3
_CONNECTIONS = 16


class PeerAccess:
    """The credentials of one home at one peer.

    Args:
        home: The home, which has the Secret.
        name: The PeerCluster at home.
        host: Its host half.
    """

    def __init__(self, home: Cluster, name: str, host: PeerHost) -> None:
        self._home = home
        self._name = name
        self._host = host

    def client(self) -> Client:
        """Return a client with a working token, requested anew at two thirds of its life."""
        return Client(self._connection(issue=True), field_manager=FIELD_MANAGER, max_connections=_CONNECTIONS)

    async def renew(self) -> None:
        """Replace the token of the renewer in the Secret.

        Raises:
            ConfigError: The Secret is missing or has no token.
            ApiError: One side refuses, or does not answer.
        """
        token = await self._request(renewer_name(self._host.guest), LEASE_SECONDS)
        data = {TOKEN_KEY: base64.b64encode(token.encode()).decode()}
        await self._home.writer.send(
            request.patch(SECRETS, PEERS_NAMESPACE, self._host.credentials_secret_name, {"data": data})
        )

    def _connection(self, *, issue: bool, token: str = "") -> Connection:
        host = self._host
        return Connection(
            server=host.server.rstrip("/"),
            source=f"PeerCluster {self._name!r}",
            ca=host.ca.encode(),
            token=token,
            issue=self._issue if issue else None,
        )

    async def _issue(self) -> IssuedToken:
        return IssuedToken(await self._request(self._host.guest, WORK_SECONDS), WORK_SECONDS * _RENEW_PART)

    async def _request(self, account: str, seconds: int) -> str:
        connection = self._connection(issue=False, token=await self._stored())
        asked = request.token(ACCOUNTS, PEERS_NAMESPACE, account, seconds=seconds)
        async with Client(connection, field_manager=FIELD_MANAGER, max_connections=1) as client:
            answer: Json = msgspec.json.decode(await Writer(client).send(asked))
        return answer["status"]["token"]

    async def _stored(self) -> str:
        name = self._host.credentials_secret_name
        data = await self._home.live.find(SECRETS, PEERS_NAMESPACE, name)
        if data is None:
            # To a caller that asks the peer, NotFound would be about an object there.
            raise Unauthorized(f"Secret {name!r} of namespace {PEERS_NAMESPACE!r} does not exist", status=401)
        content: Json = msgspec.json.decode(data).get("data") or {}
        try:
            return base64.b64decode(content[TOKEN_KEY], validate=True).decode()
        except (KeyError, ValueError, binascii.Error, TypeError) as error:
            raise ConfigError(
                f"Secret {name!r} of namespace {PEERS_NAMESPACE!r} has no token under the key {TOKEN_KEY!r}: run"
                " `tenantry peer connect` again"
            ) from error
