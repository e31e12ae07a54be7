"""`tenantry approve` and `tenantry deny`: deciding what others have asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError, NotFound
from tenantry.api.requests import REQUESTS, Decision
from tenantry.cli import complete, flags, kinds, output, place, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import parse_goal, wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_words = click.argument("words", nargs=-1, required=True, metavar="KIND/NAME...", shell_complete=complete.objects)
_namespace = place.takes_namespace("Of RoleRequests: the namespace that they are in.")
_reason = click.option("--reason", default="", metavar="TEXT", help="What to say of it, for whoever asked.")


@click.command()
@takes_target
@_words
@_namespace
@_reason
@flags.wait_option
@flags.timeout_option
def approve(target: Target, *, words: tuple[str, ...], namespace: str, reason: str, waits: bool, timeout: int) -> None:
    r"""Approve requests: what they ask for is given. A decision never changes.

    You must not have asked for it yourself, and must be able to give it yourself: make tenants, or bind the role.

    \b
      tenantry approve treq/acme-0f3a9c21
      tenantry approve rreq/edit-77b1d2e4 -n acme --reason "for tonight"
    """
    _decide(target, words, namespace, Decision.APPROVED, reason, seconds=timeout if waits else None)


@click.command()
@takes_target
@_words
@_namespace
@_reason
def deny(target: Target, *, words: tuple[str, ...], namespace: str, reason: str) -> None:
    r"""Deny requests. A decision never changes.

    \b
      tenantry deny treq/acme-0f3a9c21 --reason "ask for less"
    """
    _decide(target, words, namespace, Decision.DENIED, reason, seconds=None)


def _decide(
    target: Target, words: Sequence[str], namespace: str, decision: Decision, reason: str, *, seconds: int | None
) -> None:
    asked = kinds.parse(words)
    for each in asked:
        if each.kind not in REQUESTS:
            known = ", ".join(f"{kinds.names_of(kind).short[0]}/NAME" for kind in REQUESTS)
            raise InputError(f"{each.kind.resource.plural} are no requests; name one as {known}")
        if not each.names:
            raise InputError(
                f"name the {each.kind.resource.plural} to decide; `tenantry requests --pending` lists them"
            )
    settled = place.settle(target, asked, namespace)
    session.run(target, lambda client: _write(client, settled, decision, reason, seconds=seconds))


async def _write(
    client: Client, asked: Sequence[Asked], decision: Decision, reason: str, *, seconds: int | None
) -> None:
    patch = {"status": {"decision": decision.value, **({"reason": reason} if reason else {})}}
    for each in asked:
        for name in each.names:
            told = kinds.told(each.kind, name, each.namespace)
            try:
                await client.merge_patch(each.kind.resource, each.namespace, name, patch, subresource="status")
            except NotFound as error:
                raise NotFound(f"{told} is not there; `tenantry requests` lists them") from error
            output.talk(f"{told} {decision.value.lower()}")
    if seconds is not None:
        await wait_for_all(client, asked, parse_goal("ready"), seconds=seconds)
