"""`tenantry peer`: connects clusters, lists peers, and removes them from one side."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import AlreadyExists, InputError
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.peercluster import (
    LEASE_SECONDS,
    MAX_NAME,
    PEERS_NAMESPACE,
    AcceptedOffer,
    PeerCluster,
    PeerClusterSpec,
    PeerGuest,
    PeerHost,
    renewer_name,
)
from tenantry.api.quota import Quota
from tenantry.cli import durations, flags, kinds, output, session
from tenantry.cli.describe.command import describe
from tenantry.cli.get import get
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.narrowed import narrowed
from tenantry.cli.target import Target, read_environment, resolve, takes_target
from tenantry.cli.wait import wait, wait_for_all
from tenantry.engine.plan import merge_patch

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_PEER = PeerCluster.names.short[0]
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SECRETS = Resource("", "v1", "secrets", "Secret")
_PODS = 110
"""The pods of a Node whose quota does not name them, as kubelet's default (--max-pods)."""


@click.group()
def peer() -> None:
    """Connect clusters: pods of one run on the other."""


@peer.command()
@click.argument("home", metavar="HOME")
@click.argument("called", metavar="PEER")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig with the contexts HOME and PEER.")
@flags.quota_option("What the pods of HOME may use at PEER together, as in cpu=8,memory=16Gi,pods=50.")
@click.option(
    "--max-namespaces",
    type=click.IntRange(1, 10000),
    default=100,
    show_default=True,
    help="How many namespaces HOME may have at PEER.",
)
@durations.timeout_option("2m", "Deadline for both sides, as in 30s or 5m.")
def connect(
    *, home: str, called: str, kubeconfig: Path | None, quotas: tuple[str, ...], max_namespaces: int, timeout: int
) -> None:
    r"""Let tenants of HOME run pods on PEER.

    HOME and PEER are local clusters, or contexts of the kubeconfig; each gets a PeerCluster with the other one's name.
    You need to be an administrator of both. HOME keeps a token that only serves its own Tenant at PEER; PEER keeps
    nothing of HOME.

    \b
      tenantry peer connect home berlin --quota cpu=4,memory=8Gi,pods=20
      kubectl get node peer-berlin
    """
    for each in (home, called):
        _check_name(each)
    if home == called:
        raise InputError(f"HOME and PEER are both {home!r}: a cluster cannot be its own peer")
    hard = flags.parse_quota(quotas)
    if not hard:
        raise InputError("--quota is needed, as in --quota cpu=4,memory=8Gi,pods=20: it bounds what HOME may use")
    here, there = (_target(each, kubeconfig) for each in (home, called))
    token = session.run(there, lambda client: _serve(client, home, hard, max_namespaces, timeout))
    connection = there.connection()
    if connection.ca is None:
        raise InputError(f"the kubeconfig of {called!r} names no certificate authority: HOME could not know the server")
    if connection.tls_server_name or connection.proxy_url:
        raise InputError(f"the kubeconfig of {called!r} has tls-server-name or proxy-url, which HOME cannot use")
    half = PeerHost(
        server=connection.server,
        ca=connection.ca.decode(),
        guest=home,
        credentials_secret_name=f"{called}-credentials",
        accept=AcceptedOffer(hard=_capacity(hard)),
    )
    session.run(here, lambda client: _use(client, called, half, token, timeout))
    output.talk(
        f"tenants of {home!r} can run pods on {called!r}: add it to spec.isolation.federation.peers of a Tenant, and"
        " create a NamespaceOffloading in its namespace"
    )


def _check_name(name: str) -> None:
    # Before anything is written on either side.
    if not re.fullmatch(DNS_LABEL, name) or len(name) > MAX_NAME:
        raise InputError(
            f"{name!r} is no name of a peer: at most {MAX_NAME} lower-case letters, digits and -; rename the context"
        )


def _target(name: str, kubeconfig: Path | None) -> Target:
    """Return a local cluster, or a context of the kubeconfig."""
    environment = read_environment()
    if kubeconfig is None and name in environment.names():
        return resolve(None, None, name, environment)
    return resolve(kubeconfig, name, None, environment)


def _capacity(hard: dict[str, int | str]) -> dict[str, str]:
    """Return the capacity of the Node: what the quota gives, in the words of a Node."""
    given = {key.removeprefix("requests."): str(value) for key, value in hard.items() if not key.startswith("limits.")}
    kept = {key: value for key, value in given.items() if "count/" not in key and "storageclass" not in key}
    return {"pods": str(_PODS), **kept}


async def _serve(client: Client, home: str, hard: dict[str, int | str], most: int, seconds: int) -> str:
    """Let PEER serve HOME; return the token by which HOME requests others."""
    guest = PeerGuest(quota=Quota(hard=hard), max_namespaces=most)
    await _bring(client, home, PeerClusterSpec(guest=guest), "guest")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (home,))], seconds=seconds, stalls=True)
    return await _token(client, renewer_name(home))


async def _token(client: Client, account: str) -> str:
    from tenantry.engine import request
    from tenantry.engine.writer import Writer

    asked = request.token(_ACCOUNTS, PEERS_NAMESPACE, account, seconds=LEASE_SECONDS)
    answer: Json = msgspec.json.decode(await Writer(client).send(asked))
    return answer["status"]["token"]


async def _use(client: Client, called: str, half: PeerHost, token: str, seconds: int) -> None:
    """Let HOME use PEER."""
    secret: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": half.credentials_secret_name, "namespace": PEERS_NAMESPACE},
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
    await client.apply(_SECRETS, PEERS_NAMESPACE, half.credentials_secret_name, secret)
    await _bring(client, called, PeerClusterSpec(host=half), "host")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (called,))], seconds=seconds, stalls=True)


async def _bring(client: Client, name: str, spec: PeerClusterSpec, half: str) -> None:
    """Create a PeerCluster, or give it a half; the other half stays."""
    wanted = PeerCluster(metadata=ObjectMeta(name=name), spec=spec)
    try:
        await client.create(wanted)
    except AlreadyExists:
        live = msgspec.to_builtins((await client.get(PeerCluster, name)).spec)
        new: Json = msgspec.to_builtins(spec)
        await client.merge_patch(PeerCluster.resource, "", name, {"spec": merge_patch(live, {**live, **new})})
    output.talk(f"{kinds.told(PeerCluster, name)}: spec.{half} is set")


@peer.command()
@takes_target
@click.argument("called", metavar="PEER")
@flags.yes_option
@flags.takes_wait("Wait until it is gone.", default=True, timeout="2m")
def remove(target: Target, *, called: str, yes: bool, seconds: int | None) -> None:
    r"""Remove a peer from one side: pods of this cluster leave it, and what it runs here ends.

    First at home, so that pods leave in order; then at the peer, where nothing of them is left. Each side can also be
    removed alone.

    \b
      tenantry peer remove berlin --name home
      tenantry peer remove home --name berlin
    """
    from tenantry.cli.delete import delete_objects

    asked = [ObjectSelection(PeerCluster, (called,))]
    session.run(target, lambda client: delete_objects(client, asked, yes=yes, seconds=seconds))


_ALIKE = (
    (get, "list", "", "List peers.\n\n\b\n  tenantry peer list"),
    (describe, "describe", "NAME", "Show everything about a peer.\n\n\b\n  tenantry peer describe berlin"),
    (wait, "wait", "[NAME]...", "Wait until peers are usable.\n\n\b\n  tenantry peer wait berlin"),
)
for _command, _name, _metavar, _text in _ALIKE:
    peer.add_command(narrowed(_command, _PEER, name=_name, metavar=_metavar or "[NAME]...", text=_text))
