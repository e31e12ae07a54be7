"""`tenantry approve` and `tenantry deny`: decide requests of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import click

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.requests import REQUESTS, Decision, Request
from tenantry.cli import flags, kinds, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_words = click.argument(
    "words", nargs=-1, required=True, metavar="NAME... | KIND/NAME...", shell_complete=candidates.objects
)
_namespace = place.takes_namespace("Namespace of RoleRequests.")
_reason = click.option("--reason", default="", metavar="TEXT", help="Reason, for the requester.")


@click.command()
@takes_target
@_words
@_namespace
@_reason
@flags.takes_wait()
def approve(target: Target, *, words: tuple[str, ...], namespace: str, reason: str, seconds: int | None) -> None:
    r"""Approve requests: the operator grants what they ask for. A decision never changes.

    You need the rights to grant it yourself (to create tenants, or to bind the role), and must not be the requester.

    \b
      tenantry approve acme-0f3a9c21
      tenantry approve rreq/edit-77b1d2e4 -n acme --reason "for tonight"
    """
    _decide(target, words, namespace, Decision.APPROVED, reason, seconds=seconds)


@click.command()
@takes_target
@_words
@_namespace
@_reason
def deny(target: Target, *, words: tuple[str, ...], namespace: str, reason: str) -> None:
    r"""Deny requests. A decision never changes.

    \b
      tenantry deny acme-0f3a9c21 --reason "ask for less"
    """
    _decide(target, words, namespace, Decision.DENIED, reason, seconds=None)


def _decide(
    target: Target, words: Sequence[str], namespace: str, decision: Decision, reason: str, *, seconds: int | None
) -> None:
    asked = selected(target, words, namespace)
    session.run(target, lambda client: _write(client, asked, decision, reason, seconds=seconds))


def selected(target: Target, words: Sequence[str], namespace: str) -> list[ObjectSelection]:
    """Return the requests that `NAME...` or `KIND/NAME...` selects.

    Args:
        target: The cluster, in which names without a kind are looked up.
        words: The words.
        namespace: -n, of RoleRequests; "" for that of the context.

    Raises:
        NotFound: The user sees no request of a name.
        InputError: A name is that of several requests, or a kind is no request.
    """
    if _are_names(words):
        chosen = namespace or place.context_namespace(target)
        # A namespace restricts the search to RoleRequests: the other kinds are cluster-scoped.
        among = [kind for kind in REQUESTS if kind.resource.namespaced or not namespace]

        async def find(client: Client) -> list[ObjectSelection]:
            return [await _find(client, name, chosen, among) for name in dict.fromkeys(words)]

        return session.run(target, find)
    asked = kinds.parse(words)
    for each in asked:
        if each.kind not in REQUESTS:
            known = ", ".join(f"{_short(kind)}/NAME" for kind in REQUESTS)
            raise InputError(f"{each.kind.resource.plural} are no requests; name one as {known}")
        if not each.names:
            raise InputError(
                f"name the {each.kind.resource.plural}, as in `{_short(each.kind)}/NAME`;"
                " `tenantry request list --pending` lists them"
            )
    return place.settle(target, asked, namespace)


def _short(kind: type[Request]) -> str:
    return kinds.names_of(kind).short[0]


def _are_names(words: Sequence[str]) -> bool:
    """Return whether words are names of requests without a kind."""
    if any("/" in word for word in words):
        return False
    try:
        kinds.find_kind(words[0])
    except InputError:
        return True
    return False


async def _find(client: Client, name: str, namespace: str, among: Sequence[type[Request]]) -> ObjectSelection:
    """Return the one request that has a name.

    Raises:
        NotFound: There is none that may be read.
        InputError: There are requests of several kinds.
    """
    found: list[ObjectSelection] = []
    for kind in among:
        where = namespace if kind.resource.namespaced else ""
        if (where or not kind.resource.namespaced) and await _read(client, kind, name, where) is not None:
            found.append(ObjectSelection(kind, (name,), where))
    if len(found) > 1:
        known = " or ".join(f"{kinds.names_of(each.kind).short[0]}/{name}" for each in found)
        raise InputError(f"{name!r} is the name of {len(found)} requests: write {known}")
    if not found:
        where = f" in {namespace!r}" if namespace else "; for RoleRequests say where with -n"
        raise NotFound(f"you see no request {name!r}{where}; `tenantry request list` lists them")
    return found[0]


async def _read(client: Client, kind: type[Request], name: str, namespace: str) -> Request | None:
    """Return a request; None if it does not exist or may not be read."""
    try:
        return await client.get(kind, name, namespace)
    except (NotFound, Forbidden):
        return None


async def _write(
    client: Client, asked: Sequence[ObjectSelection], decision: Decision, reason: str, *, seconds: int | None
) -> None:
    patch = {"status": {"decision": decision.value, **({"reason": reason} if reason else {})}}
    for each in asked:
        for name in each.names:
            told = kinds.told(each.kind, name, each.namespace)
            await _refuse_decided(client, each, name)
            try:
                # Only the status: the spec stays as the requester wrote it.
                await client.merge_patch(each.kind.resource, each.namespace, name, patch, subresource="status")
            except NotFound as error:
                raise NotFound(f"{told} is not there; `tenantry request list` lists them") from error
            output.talk(f"{told} {decision.value.lower()}")
    if seconds is not None:
        await wait_for_all(client, asked, seconds=seconds)


async def _refuse_decided(client: Client, asked: ObjectSelection, name: str) -> None:
    """Refuse a repeated decision, which the API server accepts silently: another approver may have made it.

    Raises:
        Forbidden: An approver has decided.
    """
    found = await _read(client, cast("type[Request]", asked.kind), name, asked.namespace)
    if found is not None and found.status.decision is not Decision.PENDING:
        status, told = found.status, kinds.told(asked.kind, name, asked.namespace)
        raise Forbidden(
            f"{told}: status.decision is {status.decision.value} already, by {status.decided_by}, and never changes:"
            " make a new request",
            status=403,
        )
