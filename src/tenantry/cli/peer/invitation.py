"""`tenantry peer invite`, `accept` and `request`: two clusters without a common administrator.

home  request ─► file ─► peer  invite -f ─► file ─► home  accept -f
"""

from __future__ import annotations

import base64
import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.errors import InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.peercluster import (
    MAX_NAME,
    PEERS_NAMESPACE,
    AcceptedOffer,
    GuestInvitation,
    GuestOffer,
    OfferAmounts,
    PeerCluster,
    PeerClusterSpec,
    PeerGuest,
    PeerHost,
    inviter_name,
    is_name,
)
from tenantry.api.peerdiscovery import PeerDiscovery
from tenantry.api.peerinvitation import (
    LIFE_SECONDS,
    MAX_FILE_BYTES,
    PeerInvitation,
    PeerInvitationSpec,
    PeerRequest,
    PeerRequestSpec,
    PeerTunnel,
)
from tenantry.api.peertunnel import Dial
from tenantry.api.quota import Quota
from tenantry.cli import durations, flags, output, peerhalves, session
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.peer import tunnels
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all
from tenantry.engine.clock import rfc3339
from tenantry.world.quota import capacity, normal

if TYPE_CHECKING:
    from tenantry.kube.client import Client

F = TypeVar("F", PeerInvitation, PeerRequest, PeerTunnel)

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SECRETS = Resource("", "v1", "secrets", "Secret")
_SYSTEM = "kube-system"
"""The namespace whose uid is the id of a cluster (KEP-2149)."""

most_namespaces_option = click.option(
    "--max-namespaces",
    type=click.IntRange(1, 10000),
    default=100,
    show_default=True,
    help="How many namespaces the home may have at the peer.",
)
dial_option = click.option(
    "--dial",
    type=click.Choice([each.value for each in Dial]),
    help="Which cluster connects to the other one: Home, or Peer if the home cannot connect (default: Home).",
)
file_option = click.option("-f", "--file", "file", default="", metavar="FILE", help="File to read; - is stdin.")


# -- at the peer --------------------------------------------------------------------------------


@click.command()
@takes_target
@click.argument("home", metavar="[NAME]", default="")
@flags.quota_option("What the pods of the home may use here together, as in cpu=8,memory=16Gi,pods=50.")
@most_namespaces_option
@click.option(
    "--share",
    type=click.IntRange(1, 100),
    metavar="PERCENT",
    help="Offer this share of the free resources, at most the quota (default: offer the quota).",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label that this cluster proposes for its Node at the home. May be repeated.",
)
@flags.expiry_option("The offer ends")
@dial_option
@click.option("--as", "known_as", default="", metavar="NAME", help="Name of this cluster in the invitation.")
@click.option("--server", default="", metavar="URL", help="URL of this API server for the home (default: yours).")
@file_option
@durations.timeout_option("60s", "Deadline, as in 30s or 5m.")
@output.output_option("yaml", "json", default="yaml")
def invite(
    target: Target,
    *,
    home: str,
    quotas: tuple[str, ...],
    max_namespaces: int,
    share: int | None,
    labels: tuple[str, ...],
    expires: str,
    dial: str | None,
    known_as: str,
    server: str,
    file: str,
    timeout: int,
    form: str | None,
) -> None:
    r"""Invite another cluster to run pods on this one, and print the invitation.

    NAME is what the other cluster is called here; with -f, it is in the file of `tenantry peer request`. The invitation
    has a token, and is valid once, for an hour: send it to the administrator of the other cluster in private.

    \b
      tenantry peer invite home --quota cpu=4,memory=8Gi,pods=20 > invitation.yaml
      tenantry peer invite -f request.yaml --quota cpu=4,memory=8Gi,pods=20 > invitation.yaml
    """
    asked = read_file(file, PeerRequest) if file else None
    home = home or (asked.metadata.name if asked is not None else "")
    if not home:
        raise InputError("NAME is needed: what the other cluster is called here; or give the file of a request with -f")
    hard = flags.parse_quota(quotas) or (dict(asked.spec.quota.hard) if asked is not None else {})
    offer = Offer(
        home=home,
        home_id=asked.spec.home_id if asked is not None else "",
        hard=hard,
        max_namespaces=max_namespaces,
        terms=_terms(share, expires),
        labels=flags.parse_pairs("--label", labels),
        known_as=known_as or cluster_name(target),
        server=server,
        dial=Dial(dial) if dial else asked.spec.dial if asked is not None else Dial.HOME,
    )
    invitation = session.run(target, lambda client: issue(client, offer, timeout))
    output.print_objects([output.whole(invitation)], form or "yaml", single=True)


def _terms(share: int | None, expires: str) -> GuestOffer | UnsetType:
    """Return the offer that flags give; UNSET for the default."""
    if share is None and not expires:
        return UNSET
    amounts = OfferAmounts.FIXED if share is None else OfferAmounts.SHARE
    return GuestOffer(
        amounts=amounts,
        percent=share or GuestOffer().percent,
        expires=flags.parse_expiry("--expires", expires),
    )


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer offers to a home.

    Args:
        home: The name of its PeerCluster here.
        home_id: The id of its cluster; "" if it is not known.
        hard: The quota.
        max_namespaces: The number of its namespaces.
        terms: How much of it is offered; UNSET for all of it.
        labels: Those that this cluster proposes for its Node at the home.
        known_as: The name of this cluster in the invitation.
        server: The URL of this API server for the home; "" for that of the client.
        dial: Which cluster connects to the other one.
    """

    home: str
    home_id: str = ""
    hard: dict[str, int | str]
    max_namespaces: int
    terms: GuestOffer | UnsetType = UNSET
    labels: dict[str, str] = {}
    known_as: str
    server: str = ""
    dial: Dial = Dial.HOME

    def check(self) -> None:
        """Check everything before anything is written.

        Raises:
            InputError: A name or the quota is wrong.
        """
        for each in (self.home, self.known_as):
            check_name(each)
        if not self.hard:
            raise InputError("--quota is needed, as in --quota cpu=4,memory=8Gi,pods=20: it bounds what the home uses")


def check_name(name: str) -> None:
    """Check the name of a PeerCluster.

    Raises:
        InputError: It is none.
    """
    if not is_name(name):
        raise InputError(
            f"{name[:64]!r} is no name of a peer: at most {MAX_NAME} lower-case letters, digits and -; give another"
            " name"
        )


def cluster_name(target: Target) -> str:
    """Return what a home calls this cluster, if the administrator says nothing."""
    found = target.local_name or target.context or ""
    if not found:
        raise InputError("--as is needed: the name of this cluster in the invitation, as in --as berlin")
    return found


async def _stated_id(client: Client, home: str) -> str:
    """Return the id that the guest half of a home states already, which it keeps; "" for none."""
    try:
        half = (await client.get(PeerCluster, home)).spec.guest
    except NotFound:
        return ""
    return half.cluster_id if isinstance(half, PeerGuest) else ""


async def issue(client: Client, offer: Offer, seconds: int) -> PeerInvitation:
    """Let this cluster serve a home, and return an invitation.

    Raises:
        InputError: The offer is wrong, or the kubeconfig does not show how other clusters reach this one.
        TenantryError: The deadline has passed.
    """
    from tenantry.engine import request
    from tenantry.engine.writer import Writer

    offer.check()
    server, ca = address(client, offer.server)
    cluster_id = await cluster_id_of(client)
    if offer.home_id == cluster_id:
        raise InputError("spec.homeId of the request is the id of this cluster: a cluster cannot be its own peer")
    expires = rfc3339(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LIFE_SECONDS))
    quota = Quota(hard=offer.hard)
    half = PeerGuest(
        quota=quota,
        max_namespaces=offer.max_namespaces,
        offer=offer.terms,
        labels=offer.labels,
        cluster_id=offer.home_id or await _stated_id(client, offer.home),
        invitation=GuestInvitation(expires=expires),
    )
    await peerhalves.bring(client, offer.home, PeerClusterSpec(guest=half), "guest")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (offer.home,))], seconds=seconds, stalls=True)
    account = inviter_name(offer.home)
    bound = await client.request("GET", f"/api/v1/namespaces/{PEERS_NAMESPACE}/secrets/{account}")
    uid: str = msgspec.json.decode(bound)["metadata"]["uid"]
    asked = request.token(_ACCOUNTS, PEERS_NAMESPACE, account, seconds=LIFE_SECONDS, secret=(account, uid))
    answer: Json = msgspec.json.decode(await Writer(client).send(asked))
    spec = PeerInvitationSpec(
        server=server,
        ca=ca,
        guest=offer.home,
        cluster_id=cluster_id,
        home_id=offer.home_id,
        dial=offer.dial,
        quota=quota,
        expires=expires,
        token=answer["status"]["token"],
    )
    return PeerInvitation(metadata=ObjectMeta(name=offer.known_as), spec=spec)


def address(client: Client, server: str) -> tuple[str, str]:
    """Return the URL and the authorities of an API server, for other clusters."""
    connection = client.connection
    if connection.ca is None:
        raise InputError("the kubeconfig of the peer names no certificate authority: a home could not know the server")
    if not server and (connection.tls_server_name or connection.proxy_url):
        raise InputError(
            "the kubeconfig of the peer has tls-server-name or proxy-url, which a home cannot use: give the URL of its"
            " API server with --server"
        )
    return server or connection.server, connection.ca.decode()


async def cluster_id_of(client: Client) -> str:
    """Return the id of a cluster."""
    return (await client.get(Namespace, _SYSTEM)).metadata.uid


# -- at home ------------------------------------------------------------------------------------


@click.command()
@takes_target
@click.argument("called", metavar="[NAME]", default="")
@click.option(
    "--accept",
    "parts",
    multiple=True,
    metavar="KEY=QUANTITY,...",
    help="What this cluster uses of the offer at most, as in cpu=2,memory=4Gi,pods=10 (default, for each key: all)."
    " May be repeated.",
)
@tunnels.server_option("this cluster's")
@file_option
@durations.timeout_option("60s", "Deadline, as in 30s or 5m.")
@output.output_option("yaml", "json", default="yaml")
def accept(
    target: Target,
    *,
    called: str,
    parts: tuple[str, ...],
    tunnel_server: str,
    file: str,
    timeout: int,
    form: str | None,
) -> None:
    r"""Accept an invitation: tenants of this cluster can run pods on the peer.

    NAME is what the peer is called here (default: the name in the invitation). The invitation is used up at once. If
    the peer connects to this cluster (`--dial Peer`), print the file with which it opens its tunnel: send it to the
    administrator of the peer in private, for `tenantry peer dial`.

    \b
      tenantry peer accept -f invitation.yaml
      tenantry peer accept berlin -f invitation.yaml --accept cpu=2,memory=4Gi,pods=10
    """
    if not file:
        raise InputError("-f is needed: the file that `tenantry peer invite` printed at the peer")
    invitation = read_file(file, PeerInvitation)
    name = called or invitation.metadata.name
    check_name(name)
    hard = flags.parse_quota(parts, "--accept")
    if invitation.spec.dial is Dial.PEER:
        server = tunnels.server_of(target, tunnel_server)

        async def work(client: Client) -> PeerTunnel:
            await use(client, invitation, name, hard, None)
            return await tunnels.issue(client, invitation, name, server, timeout)

        output.print_objects([output.whole(session.run(target, work))], form or "yaml", single=True)
        output.talk("give this file to the administrator of the peer, who uses it with `tenantry peer dial`")
        return
    if tunnel_server:
        raise InputError("--tunnel-server is only for invitations with dial: Peer")
    session.run(target, lambda client: use(client, invitation, name, hard, timeout))
    advise(name)


def advise(name: str) -> None:
    """Print what to do with a new peer."""
    output.talk(
        f"tenants can run pods on {name!r}: add it to spec.isolation.federation.peers of a Tenant, and create a"
        " NamespaceOffloading in its namespace"
    )


async def use(
    client: Client, invitation: PeerInvitation, name: str, part: dict[str, int | str], seconds: int | None
) -> None:
    """Use an invitation.

    Args:
        client: The client of the home.
        invitation: The invitation.
        name: The name of the PeerCluster.
        part: What the home uses of the offer, by key; all of a key that it lacks.
        seconds: The deadline until the peer is ready; None to wait for nothing.

    Raises:
        InputError: The invitation is not for this cluster, or was used here.
        TenantryError: The peer does not accept it, or the deadline has passed.
    """
    from tenantry.controllers.peering.guests import invitations

    spec = invitation.spec
    problem = invitations.refusal(invitation, await cluster_id_of(client), dt.datetime.now(dt.UTC))
    if problem:
        raise InputError(f"the invitation is refused: {problem}")
    await _refuse_other(client, name, invitation)
    secret = f"{name}-credentials"
    await _refuse_second_use(client, secret, invitation)
    half = PeerHost(
        server=spec.server,
        ca=spec.ca,
        guest=spec.guest,
        credentials_secret_name=secret,
        cluster_id=spec.cluster_id,
        dial=spec.dial,
        invitation=invitations.digest(invitation),
        accept=AcceptedOffer(hard=capacity({**normal(spec.quota.hard), **normal(part)})),
    )
    value: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, "namespace": PEERS_NAMESPACE},
        "data": {"invitation": base64.b64encode(msgspec.json.encode(output.whole(invitation))).decode()},
    }
    await client.apply(_SECRETS, PEERS_NAMESPACE, secret, value)
    await peerhalves.bring(client, name, PeerClusterSpec(host=half), "host")
    if seconds is not None:
        await wait_for_all(client, [ObjectSelection(PeerCluster, (name,))], seconds=seconds, stalls=True)


async def _refuse_other(client: Client, name: str, invitation: PeerInvitation) -> None:
    from tenantry.controllers.peering import discovery

    try:
        known = (await client.get(PeerCluster, name)).spec.discovered
    except NotFound:
        return
    if isinstance(known, PeerDiscovery):
        problem = discovery.contradiction(known, invitation.spec.ca, invitation.spec.cluster_id)
        if problem:
            raise InputError(f"the invitation is refused: the cluster discovered as {name!r} is another one: {problem}")


async def _refuse_second_use(client: Client, secret: str, invitation: PeerInvitation) -> None:
    from tenantry.controllers.peering.guests import invitations

    try:
        found: Json = msgspec.json.decode(
            await client.request("GET", f"/api/v1/namespaces/{PEERS_NAMESPACE}/secrets/{secret}")
        )
    except NotFound:
        return
    annotations: dict[str, Any] = found["metadata"].get("annotations") or {}
    if annotations.get(invitations.USED) == invitations.digest(invitation):
        raise InputError(
            "the invitation is refused: this cluster has used it already; see `tenantry peer list`, or ask the"
            " administrator of the peer for another one"
        )


@click.command()
@takes_target
@click.option("--as", "known_as", default="", metavar="NAME", help="Name of this cluster in the request.")
@flags.quota_option("What this cluster wants to use at the peer, as in cpu=8,memory=16Gi,pods=50.")
@dial_option
@output.output_option("yaml", "json", default="yaml")
def request(target: Target, *, known_as: str, quotas: tuple[str, ...], dial: str | None, form: str | None) -> None:
    r"""Print a request for an invitation, for the administrator of another cluster; it has no secret.

    \b
      tenantry peer request --quota cpu=4,memory=8Gi,pods=20 > request.yaml
    """
    called = known_as or cluster_name(target)
    check_name(called)
    hard = flags.parse_quota(quotas)

    async def ask(client: Client) -> PeerRequest:
        wanted = Dial(dial) if dial else Dial.HOME
        spec = PeerRequestSpec(home_id=await cluster_id_of(client), dial=wanted, quota=Quota(hard=hard))
        return PeerRequest(metadata=ObjectMeta(name=called), spec=spec)

    output.print_objects([output.whole(session.run(target, ask))], form or "yaml", single=True)


# -- files --------------------------------------------------------------------------------------


def read_file(file: str, kind: type[F]) -> F:
    """Return what a file contains.

    Args:
        file: The path; "-" is stdin.
        kind: The expected kind.

    Raises:
        InputError: The file cannot be read, or is none of the kind.
    """
    from tenantry.controllers.peering.guests import invitations

    source = "stdin" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}") from error
    try:
        return invitations.read(data, kind)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
