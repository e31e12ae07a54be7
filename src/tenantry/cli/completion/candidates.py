"""The candidates for a word: kinds, and the names of objects in the cluster.

Completion never prints an error, and a cluster that does not answer within a second has no candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import click
from click.shell_completion import CompletionItem

from tenantry.api import marks
from tenantry.api.errors import TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Model, ObjectMeta
from tenantry.cli import kinds
from tenantry.cli.kinds import Kind
from tenantry.cli.target import named

SECONDS = 1.0


class _Named(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta


def names(context: click.Context, kind: Kind, prefix: str) -> list[str]:
    """Return the names of a kind's objects that have a prefix; [] if the cluster does not answer in time."""
    try:
        return asyncio.run(_names(context, kind, prefix))
    except (TenantryError, TimeoutError, OSError):
        return []


async def _names(context: click.Context, kind: Kind, prefix: str) -> list[str]:
    from tenantry.kube.client import Client

    target = named(context)
    async with asyncio.timeout(SECONDS), Client(target.connection(), max_connections=1) as client:
        # Only the namespaces of tenants: a Subnamespace in another one is an error.
        ours = {"labelSelector": marks.TENANT} if kind is Namespace else {}
        place = context.params.get("namespace") or ""
        # One page is enough to choose from.
        found = await anext(client.pages(kind.resource, _Named, namespace=place, selectors=ours))
    return [item.metadata.name for item in found.items if item.metadata.name.startswith(prefix)]


def objects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the candidates for the next word of `KIND NAME…` or `KIND/NAME…`."""
    given = _given(context, parameter)
    word, slash, prefix = incomplete.partition("/")
    try:
        if slash:
            return [CompletionItem(f"{word}/{name}") for name in names(context, kinds.find_kind(word), prefix)]
        if given and "/" not in given[0]:
            return [CompletionItem(name) for name in names(context, kinds.find_kind(given[0]), incomplete)]
    except TenantryError:
        return []
    words = [kinds.words_of(kind)[0] for kind in kinds.KINDS]
    return [CompletionItem(each) for each in words if each.startswith(incomplete)]


def of_kind(word: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the function that returns the names of the objects of a kind."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = _given(context, parameter)
        found = names(context, kinds.find_kind(word), incomplete)
        return [CompletionItem(name) for name in dict.fromkeys(found) if name not in given]

    return complete


def tenants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of tenants."""
    given = _given(context, parameter)
    found = names(context, kinds.find_kind("tenant"), incomplete)
    return [CompletionItem(name) for name in found if name not in given]


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the namespaces of tenants."""
    return [CompletionItem(name) for name in names(context, Namespace, incomplete) if parameter.name]


def subnamespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of Subnamespaces, in the namespace of -n if it comes before."""
    given = _given(context, parameter)
    found = names(context, kinds.find_kind("subnamespace"), incomplete)
    return [CompletionItem(name) for name in dict.fromkeys(found) if name not in given]


def _given(context: click.Context, parameter: click.Parameter) -> tuple[str, ...]:
    value: object = context.params.get(parameter.name or "")
    return cast("tuple[str, ...]", value) if isinstance(value, tuple) else ()
