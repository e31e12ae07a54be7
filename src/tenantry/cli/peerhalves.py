"""The two halves by which clusters are connected: writes a PeerCluster on each side, and the token of the home.

peer   serve ─► PeerCluster with spec.guest, Ready ─► a token by which the home requests others
home   use   ─► Secret with the token, PeerCluster with spec.host, Ready
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import AlreadyExists, InputError
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.peercluster import (
    LEASE_SECONDS,
    PEERS_NAMESPACE,
    AcceptedOffer,
    PeerCluster,
    PeerClusterSpec,
    PeerGuest,
    PeerHost,
    renewer_name,
)
from tenantry.api.quota import Quota
from tenantry.cli import kinds, output
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import wait_for_all
from tenantry.engine.plan import merge_patch
from tenantry.world.quota import capacity

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.kube.kubeconfig import Connection

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SECRETS = Resource("", "v1", "secrets", "Secret")


def host(home: str, called: str, connection: Connection, hard: dict[str, int | str]) -> PeerHost:
    """Return the half by which a home uses a peer.

    Args:
        home: The PeerCluster at the peer.
        called: The PeerCluster at home.
        connection: How the peer's API server is reached; its credentials are not used.
        hard: The quota of the home at the peer.

    Raises:
        InputError: The home cannot reach the peer by such a connection.
    """
    if connection.ca is None:
        raise InputError(f"the kubeconfig of {called!r} names no certificate authority: HOME could not know the server")
    if connection.tls_server_name or connection.proxy_url:
        raise InputError(f"the kubeconfig of {called!r} has tls-server-name or proxy-url, which HOME cannot use")
    return PeerHost(
        server=connection.server,
        ca=connection.ca.decode(),
        guest=home,
        credentials_secret_name=f"{called}-credentials",
        accept=AcceptedOffer(hard=capacity(hard)),
    )


async def serve(
    client: Client, home: str, hard: dict[str, int | str], most: int, seconds: int, *, quiet: bool = False
) -> str:
    """Let PEER serve HOME; return the token by which HOME requests others."""
    guest = PeerGuest(quota=Quota(hard=hard), max_namespaces=most)
    await bring(client, home, PeerClusterSpec(guest=guest), "guest", quiet=quiet)
    await wait_for_all(client, [ObjectSelection(PeerCluster, (home,))], seconds=seconds, quiet=quiet, stalls=True)
    return await token(client, renewer_name(home))


async def token(client: Client, account: str) -> str:
    """Return a token of an account of homes, valid for as long as that of the one that renews may be."""
    from tenantry.engine import request
    from tenantry.engine.writer import Writer

    asked = request.token(_ACCOUNTS, PEERS_NAMESPACE, account, seconds=LEASE_SECONDS)
    answer: Json = msgspec.json.decode(await Writer(client).send(asked))
    return answer["status"]["token"]


async def use(client: Client, called: str, half: PeerHost, token: str, seconds: int, *, quiet: bool = False) -> None:
    """Let HOME use PEER."""
    secret: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": half.credentials_secret_name, "namespace": PEERS_NAMESPACE},
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
    await client.apply(_SECRETS, PEERS_NAMESPACE, half.credentials_secret_name, secret)
    await bring(client, called, PeerClusterSpec(host=half), "host", quiet=quiet)
    await wait_for_all(client, [ObjectSelection(PeerCluster, (called,))], seconds=seconds, quiet=quiet, stalls=True)


async def bring(client: Client, name: str, spec: PeerClusterSpec, half: str, *, quiet: bool = False) -> None:
    """Create a PeerCluster, or give it a half; the other half stays."""
    wanted = PeerCluster(metadata=ObjectMeta(name=name), spec=spec)
    try:
        await client.create(wanted)
    except AlreadyExists:
        found = await client.get(PeerCluster, name)
        live: Json = msgspec.to_builtins(found.spec)
        new: Json = msgspec.to_builtins(kept(found, spec))
        await client.merge_patch(PeerCluster.resource, "", name, {"spec": merge_patch(live, {**live, **new})})
    if not quiet:
        output.talk(f"{kinds.told(PeerCluster, name)}: spec.{half} is set")


def kept(live: PeerCluster, wanted: PeerClusterSpec) -> PeerClusterSpec:
    """Return a half with what an administrator has set in the one before, for the same cluster, and no command states.

    A peer that is connected again has the pods that its labels select, and the tokens that its audiences allow. What is
    offered is stated by each invitation.

    Args:
        live: What is there.
        wanted: What a command states.
    """
    host, guest, known = wanted.host, wanted.guest, live.status
    before, earlier = live.spec.host, live.spec.guest
    if isinstance(host, PeerHost) and isinstance(before, PeerHost) and _is_same(before, known.cluster_id, host):
        host = replace(
            host,
            labels=host.labels or before.labels,
            token_audiences=host.token_audiences or before.token_audiences,
            node_identity=before.node_identity,
        )
    if isinstance(guest, PeerGuest) and isinstance(earlier, PeerGuest) and _is_same(earlier, known.guest_id, guest):
        guest = replace(
            guest,
            labels=guest.labels or earlier.labels,
            names=earlier.names,
            lease_seconds=earlier.lease_seconds,
            keep_seconds=earlier.keep_seconds,
        )
    return replace(wanted, host=host, guest=guest)


def _is_same(before: PeerHost | PeerGuest, known_id: str, after: PeerHost | PeerGuest) -> bool:
    """Return whether both halves are for one cluster; a half that names none is for the one that it was for."""
    before_id = before.cluster_id or known_id
    return not before_id or not after.cluster_id or before_id == after.cluster_id
