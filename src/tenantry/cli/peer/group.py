"""`tenantry peer`: connects clusters, lists peers, and removes them from one side."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError, NotFound
from tenantry.api.peercluster import AT_ONCE, MAX_NAME, PeerCluster, is_name
from tenantry.api.peertunnel import Dial
from tenantry.cli import durations, flags, nouns, session, spellings
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.peer import tunnels
from tenantry.cli.peer.allownode import allow_node
from tenantry.cli.peer.dial import dial
from tenantry.cli.peer.discovery import discover, record
from tenantry.cli.peer.giveup import give_up
from tenantry.cli.peer.invitation import (
    Offer,
    accept,
    advise,
    check_name,
    cluster_id_of,
    dial_option,
    invite,
    issue,
    most_namespaces_option,
    request,
    use,
)
from tenantry.cli.target import Target, read_environment, resolve, takes_target
from tenantry.cli.wait import GONE, wait_for_all

if TYPE_CHECKING:
    from tenantry.api.peerinvitation import PeerInvitation, PeerTunnel
    from tenantry.kube.client import Client

_PEER = PeerCluster.names.short[0]


@click.group()
def peer() -> None:
    """Connect clusters: pods of one run on the other."""


@peer.command()
@click.argument("home", metavar="HOME")
@click.argument("called", metavar="PEER")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig with the contexts HOME and PEER.")
@flags.quota_option("What the pods of HOME may use at PEER together, as in cpu=8,memory=16Gi,pods=50.")
@most_namespaces_option
@dial_option
@tunnels.server_option("HOME's")
@durations.timeout_option("2m", "Deadline for both sides, as in 30s or 5m.")
def create(
    *,
    home: str,
    called: str,
    kubeconfig: Path | None,
    quotas: tuple[str, ...],
    max_namespaces: int,
    dial: str | None,
    tunnel_server: str,
    timeout: int,
) -> None:
    r"""Let tenants of HOME run pods on PEER.

    HOME and PEER are local clusters, or contexts of the kubeconfig; each gets a PeerCluster with the other one's name.
    NAME=CONTEXT gives a context another name, which has to be a DNS label of at most 40 characters. You need to be an
    administrator of both. HOME keeps a token that only serves its own Tenant at PEER; PEER keeps no credential of HOME.

    \b
      tenantry peer create home berlin --quota cpu=4,memory=8Gi,pods=20
      kubectl get node peer-berlin
      tenantry peer create home=kubernetes-admin@prod berlin=edge/berlin:443 --quota pods=20
    """
    (home, here), (called, there) = (_side(each, kubeconfig) for each in (home, called))
    if home == called:
        raise InputError(f"HOME and PEER are both {home!r}: a cluster cannot be its own peer")
    hard = flags.parse_quota(quotas)
    offer = Offer(home=home, hard=hard, max_namespaces=max_namespaces, known_as=called)
    offer.check()
    home_id = session.run(here, cluster_id_of)
    offer = msgspec.structs.replace(offer, home_id=home_id, dial=Dial(dial) if dial else Dial.HOME)
    if tunnel_server and offer.dial is Dial.HOME:
        raise InputError("--tunnel-server is only for --dial Peer")
    server = tunnels.server_of(here, tunnel_server) if offer.dial is Dial.PEER else ""
    invitation = session.run(there, lambda client: issue(client, offer, timeout))
    if server:
        _connect_back(here, there, invitation, server, timeout)
    else:
        session.run(here, lambda client: use(client, invitation, called, {}, timeout))
    advise(called)


def _connect_back(here: Target, there: Target, invitation: PeerInvitation, server: str, timeout: int) -> None:
    """Use an invitation at home by a tunnel that the peer opens to a server."""
    called = invitation.metadata.name
    asked = [ObjectSelection(PeerCluster, (called,))]

    async def accepted(client: Client) -> PeerTunnel:
        await use(client, invitation, called, {}, None)
        return await tunnels.issue(client, invitation, called, server, timeout)

    async def dialled(client: Client) -> None:
        await tunnels.use(client, tunnel, await cluster_id_of(client), timeout)

    tunnel = session.run(here, accepted)
    session.run(there, dialled)
    session.run(here, lambda client: wait_for_all(client, asked, seconds=timeout, stalls=True))


def _side(text: str, kubeconfig: Path | None) -> tuple[str, Target]:
    """Return the name of a cluster, and the cluster: a local one, or a context of the kubeconfig.

    Raises:
        InputError: The name is none of a peer, or NAME=CONTEXT lacks one of both.
    """
    environment = read_environment()
    name, mark, context = text.partition("=")
    if mark and not context:
        raise InputError(f"{text[:64]!r} has no context: it must be NAME=CONTEXT")
    if not mark and not is_name(name):
        raise InputError(
            f"{name[:64]!r} is no name of a peer: at most {MAX_NAME} lower-case letters, digits and -; give the context"
            f" a name, as in berlin={name[:64]}"
        )
    check_name(name)
    if not mark and kubeconfig is None and name in environment.names():
        return name, resolve(None, None, name, environment)
    return name, resolve(kubeconfig, context or name, None, environment)


@peer.command()
@takes_target
@click.argument("called", metavar="PEER")
@flags.yes_option
@click.option("--now", "at_once", is_flag=True, help="Delete the pods on the peer without draining it first.")
@flags.takes_wait("Wait until it is gone.", default=True, timeout="2m")
def delete(target: Target, *, called: str, yes: bool, at_once: bool, seconds: int | None) -> None:
    r"""Remove a peer from one side: pods of this cluster leave it, and what it runs here ends.

    First at home, so that pods leave within their disruption budgets; then at the peer, where nothing of them is left.
    Each side can also be removed alone.

    \b
      tenantry peer delete berlin --cluster home
      tenantry peer delete home --cluster berlin
    """
    from tenantry.cli.delete import delete_objects

    asked = [ObjectSelection(PeerCluster, (called,))]

    async def work(client: Client) -> None:
        if not at_once:
            await delete_objects(client, asked, yes=yes, seconds=seconds)
            return
        await delete_objects(client, asked, yes=yes, seconds=None)
        # After the question: a PeerCluster that stays must not lose its drain.
        with suppress(NotFound):
            body = {"metadata": {"annotations": {AT_ONCE: "true"}}}
            await client.merge_patch(PeerCluster.resource, "", called, body)
        if seconds is not None:
            await wait_for_all(client, asked, GONE, seconds=seconds)

    session.run(target, work)


for _each in (invite, accept, request, discover, record, dial, allow_node, give_up):
    peer.add_command(_each)

peer.add_command(spellings.moved(create, "connect", "tenantry peer create"))
peer.add_command(spellings.moved(delete, "remove", "tenantry peer delete"))
nouns.complete(peer, nouns.Noun(_PEER, "peer", "peers", "berlin"))
