"""`tenantry peer dial`, and the file for it: a peer to which the home cannot connect opens a tunnel to the home.

home  accept ─► PeerCluster with dial: Peer ─► PeerTunnel with a token ─► peer  dial -f
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import ConditionStatus, Json, ObjectMeta, Resource
from tenantry.api.names import SERVER_PATTERN
from tenantry.api.peercluster import (
    LEASE_SECONDS,
    PEERS_NAMESPACE,
    PeerCluster,
    PeerGuest,
)
from tenantry.api.peerinvitation import PeerInvitation, PeerTunnel, PeerTunnelSpec
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SECRET, GuestTunnel, tunnel_name
from tenantry.cli import kinds, output
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, read_environment
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SECRETS = Resource("", "v1", "secrets", "Secret")
_OPEN = WaitCondition(reasons.TUNNEL_OPEN)
_AWAITED = WaitCondition(reasons.TUNNEL_OPEN, ConditionStatus.FALSE)


def server_option(whose: str) -> Callable[[F], F]:
    """Return the option --tunnel-server.

    Args:
        whose: The home, as the help names it.
    """
    return click.option(
        "--tunnel-server",
        default="",
        metavar="URL",
        help=f"URL of {whose} port for tunnels, for a peer that connects to it (default: that of a local cluster).",
    )


def server_of(target: Target, given: str) -> str:
    """Return the URL of the port for tunnels of a home.

    Args:
        target: The home.
        given: That of a flag; "" for that of a local cluster.

    Raises:
        InputError: There is none.
    """
    import re

    from tenantry.local.paths import ClusterPaths, cluster_folder
    from tenantry.local.spec import read_spec

    if given:
        if not re.fullmatch(SERVER_PATTERN, given):
            raise InputError(f"--tunnel-server {given!r} must be a URL, as in https://home.example.com:6447")
        return given
    name = target.local_name
    spec = read_spec(ClusterPaths(cluster_folder(name, read_environment().root))) if name else None
    if spec is None or not spec.ports.tunnel:
        raise InputError(
            "--tunnel-server is needed: the URL at which the peer reaches this cluster's port for tunnels, as in"
            " https://home.example.com:6447"
        )
    return f"https://127.0.0.1:{spec.ports.tunnel}"


async def issue(client: Client, invitation: PeerInvitation, name: str, server: str, seconds: int) -> PeerTunnel:
    """Return the file with which a peer opens its tunnel.

    Args:
        client: The client of the home.
        invitation: The invitation of the peer.
        name: The PeerCluster at home, which has `dial: Peer`.
        server: The URL of the port for tunnels.
        seconds: The deadline.

    Raises:
        TenantryError: The operator of the home does not serve tunnels, or the deadline has passed.
    """
    from tenantry.engine import request
    from tenantry.engine.writer import Writer

    # It has made the account and the certificate when it reports that the tunnel is not open yet.
    await wait_for_all(client, [ObjectSelection(PeerCluster, (name,))], _AWAITED, seconds=seconds, quiet=True)
    await _refuse_without_port(client, name)
    asked = request.token(
        _ACCOUNTS, PEERS_NAMESPACE, tunnel_name(name), seconds=LEASE_SECONDS, audience=TUNNEL_AUDIENCE
    )
    answer: Json = msgspec.json.decode(await Writer(client).send(asked))
    spec = PeerTunnelSpec(
        server=server,
        ca=await _certificate(client),
        guest=invitation.spec.guest,
        cluster_id=invitation.spec.cluster_id,
        token=answer["status"]["token"],
    )
    return PeerTunnel(metadata=ObjectMeta(name=name), spec=spec)


async def _refuse_without_port(client: Client, name: str) -> None:
    conditions = (await client.get(PeerCluster, name)).status.conditions
    told = find(conditions, reasons.TUNNEL_OPEN)
    if told is not None and told.reason == reasons.NO_TUNNEL_PORT:
        raise InputError(f"{kinds.told(PeerCluster, name)}: {told.message}")


async def _certificate(client: Client) -> str:
    try:
        found: Json = msgspec.json.decode(
            await client.request("GET", f"/api/v1/namespaces/{PEERS_NAMESPACE}/secrets/{TUNNEL_SECRET}")
        )
    except NotFound:
        raise InputError(
            "the operator of this cluster has no port for tunnels: start it with --tunnel-address"
        ) from None
    data: dict[str, Any] = found.get("data") or {}
    return base64.b64decode(data.get("tls.crt", "")).decode()


async def use(client: Client, tunnel: PeerTunnel, cluster_id: str, seconds: int) -> None:
    """Open the tunnel of a file.

    Args:
        client: The client of the peer.
        tunnel: The file.
        cluster_id: The id of the peer.
        seconds: The deadline until the tunnel is open.

    Raises:
        InputError: The file is for another cluster, or the home is not served here.
        TenantryError: The deadline has passed.
    """
    from tenantry.controllers.peering.guests import invitations

    spec, secret = tunnel.spec, tunnel_name(tunnel.spec.guest)
    if spec.cluster_id != cluster_id:
        raise InputError(
            f"the file is refused: spec.clusterId must be the id of this cluster, {cluster_id!r}, and is"
            f" {spec.cluster_id!r}: it is meant for another cluster"
        )
    try:
        found = await client.get(PeerCluster, spec.guest)
    except NotFound:
        found = None
    if found is None or not isinstance(found.spec.guest, PeerGuest):
        raise InputError(
            f"the file is refused: PeerCluster {spec.guest!r} must have a guest half here: invite the home first, with"
            f" `tenantry peer invite {spec.guest} --dial Peer`"
        )
    owner: Json = {
        "apiVersion": PeerCluster.resource.api_version,
        "kind": PeerCluster.resource.kind,
        "name": spec.guest,
        "uid": found.metadata.uid,
    }
    value: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, "namespace": PEERS_NAMESPACE, "ownerReferences": [owner]},
        "data": {"token": base64.b64encode(spec.token.encode()).decode()},
    }
    await client.apply(_SECRETS, PEERS_NAMESPACE, secret, value)
    file = invitations.digest(tunnel)
    half = GuestTunnel(server=spec.server, ca=spec.ca, credentials_secret_name=secret, file=file)
    body: Json = {"spec": {"guest": {"tunnel": msgspec.to_builtins(half)}}}
    await client.merge_patch(PeerCluster.resource, "", spec.guest, body)
    output.talk(f"{kinds.told(PeerCluster, spec.guest)}: spec.guest.tunnel is set")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (spec.guest,))], _OPEN, seconds=seconds)
