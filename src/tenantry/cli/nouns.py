"""The nouns of the command line, and the verbs that each of them has.

    tenantry NOUN create | list | get | describe | delete | wait

A noun writes the verbs that need flags of its own. `complete` adds the others: the general verbs `get`, `describe`,
`delete` and `wait`, for the one kind of the noun. A test goes through `NOUNS`, so that no noun lacks a verb.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from tenantry.cli import kinds
from tenantry.cli.completion import candidates
from tenantry.cli.delete import delete
from tenantry.cli.describe.command import describe
from tenantry.cli.get import get
from tenantry.cli.narrowed import narrowed
from tenantry.cli.wait import wait

NOUNS = ("tenant", "sub", "slice", "request", "node", "peer", "vcp", "cluster")
VERBS = ("create", "list", "get", "describe", "delete", "wait")

_GENERAL = {
    "list": (get, "[NAME]...", "List {many}."),
    "get": (get, "[NAME]...", "Show {many} in one line each."),
    "describe": (describe, "NAME...", "Show everything about a {one}."),
    "delete": (delete, "NAME...", "Delete {many}."),
    "wait": (wait, "[NAME]...", "Wait until {many} are ready, gone, or meet another condition."),
}


class Noun(NamedTuple):
    """A noun.

    Args:
        kind: Its kind, as `tenantry get` takes it.
        one: The kind in a sentence, as in "virtual control plane".
        many: Its plural.
        example: The name of an object in examples, as in "web".
    """

    kind: str
    one: str
    many: str
    example: str


def complete(group: click.Group, noun: Noun) -> None:
    """Add the verbs of every noun that a group lacks."""
    for verb, (command, metavar, text) in _GENERAL.items():
        if verb not in group.commands:
            help_ = f"{text.format(one=noun.one, many=noun.many)}\n\n\b\n  {_example(group, verb, noun)}"
            group.add_command(
                narrowed(
                    command,
                    noun.kind,
                    name=verb,
                    metavar=metavar,
                    text=help_,
                    completes=candidates.of_kind(noun.kind),
                    is_namespaced=kinds.find_kind(noun.kind).resource.namespaced,
                )
            )


def _example(group: click.Group, verb: str, noun: Noun) -> str:
    is_namespaced = kinds.find_kind(noun.kind).resource.namespaced
    if verb == "list":
        return f"tenantry {group.name} list{' -A' if is_namespaced else ''}"
    return f"tenantry {group.name} {verb} {noun.example}{' -n acme' if is_namespaced else ''}"
