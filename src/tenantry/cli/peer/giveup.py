"""`tenantry peer give-up`: lets the pods of a silent peer go at home.

annotation of the PeerCluster ─► the operator lets pods go ─► condition GivenUp ─► the answer of the command
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound, TenantryError
from tenantry.api.model import Condition, Json
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import GIVE_UP, PeerCluster
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, kinds, session
from tenantry.cli.target import Target, takes_target
from tenantry.engine.clock import SystemClock, rfc3339
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command("give-up")
@takes_target
@click.argument("called", metavar="PEER")
@flags.yes_option
@durations.timeout_option("2m", "Deadline for the answer of the operator, as in 30s or 5m.")
def give_up(target: Target, *, called: str, yes: bool, timeout: int) -> None:
    r"""Let the pods of a silent peer go, so that others replace them here.

    The pods on the Node of the peer are deleted at home without the word of the peer, where they may still run. What
    they may use there stays reserved in the quota of their tenants. When the peer is back, they are deleted there
    before it gets other pods. To stop using a peer, remove it: `tenantry peer delete`.

    \b
      tenantry peer give-up berlin
    """
    session.run(target, lambda client: _give_up(client, called, yes=yes, seconds=timeout))


async def _give_up(client: Client, called: str, *, yes: bool, seconds: int) -> None:
    found = await client.get(PeerCluster, called)
    told = kinds.full_name(PeerCluster, called)
    if found.spec.host is UNSET:
        raise InputError(f"{told} has no spec.host: this cluster sends it no pods")
    reachable = find(found.status.conditions, reasons.REACHABLE)
    if reachable is not None and reachable.status == "True":
        raise TenantryError(f"{told}: the peer answers; to stop using it, remove it: `tenantry peer delete`")
    if not yes:
        from tenantry.cli.delete import confirm

        click.echo(await _losses(client, called, reachable), err=True)
        confirm("Let the pods go?", "nothing was given up")
    requested = found.give_up or rfc3339(SystemClock().now())
    if not found.give_up:
        body: Json = {"metadata": {"uid": found.metadata.uid, "annotations": {GIVE_UP: requested}}}
        await client.merge_patch(PeerCluster.resource, "", called, body)
    last: list[Condition] = []
    try:
        async with asyncio.timeout(seconds):
            done = await _answer(client, called, requested, last)
    except TimeoutError:
        words = last[-1].message if last else "the operator has not answered"
        raise TenantryError(f"{told}: not given up after {durations.text(seconds)}: {words}") from None
    if done.reason == reasons.QUOTA_INSUFFICIENT:
        raise TenantryError(f"{told}: {done.message}")
    click.echo(f"{told}: {done.message}")


async def _losses(client: Client, called: str, reachable: Condition | None) -> str:
    """Return what is let go, and what may go on at the peer."""
    try:
        known = await client.get(NamespaceMap, called)
    except NotFound:
        return "No pods of this cluster are at the peer."
    since = f" since {reachable.last_transition_time}" if reachable is not None else ""
    spaces = sorted({*known.spec.desired, *known.status.current})
    return (
        f"The peer has not answered{since}. Its pods in {shortened(spaces) or 'no namespace'} are deleted here:"
        " pods without a controller are lost. They may run at the peer until it is back."
    )


async def _answer(client: Client, called: str, requested: str, last: list[Condition]) -> Condition:
    """Wait until the operator has let the pods go, or cannot; return what it reports.

    Args:
        client: The client of the home.
        called: The PeerCluster.
        requested: The value of its annotation.
        last: Gets what was reported meanwhile.

    Raises:
        NotFound: The PeerCluster was deleted.
        TenantryError: The peer is back.
    """
    from tenantry.cli.following import follow, only

    told = kinds.full_name(PeerCluster, called)
    async with aclosing(follow(client, PeerCluster, selectors=only((called,)), namespace="")) as changes:
        async for found in changes:
            value = found.get(called)
            if value is None:
                raise NotFound(f"{told} was deleted")
            condition = find(value.status.conditions, reasons.GIVEN_UP)
            if value.give_up != requested or (condition is not None and condition.reason == reasons.PEER_IS_BACK):
                raise TenantryError(f"{told}: the peer answers again; pods that were let go are deleted there")
            if condition is None:
                continue
            last.append(condition)
            if condition.status == "True" or condition.reason == reasons.QUOTA_INSUFFICIENT:
                return condition
    raise NotFound(f"the watch of {told} ended")
