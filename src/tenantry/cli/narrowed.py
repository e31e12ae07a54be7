"""Commands that work on objects of any kind, as commands of a group for one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_ABOUT_PLACES: Mapping[str, object] = {"namespace": "", "everywhere": False}
"""The arguments of commands that kinds in no namespace do not have, with their defaults."""


def narrowed(
    command: click.Command,
    kind: str,
    *,
    name: str,
    metavar: str,
    text: str,
    completes: Completion | None = None,
    is_namespaced: bool = True,
) -> click.Command:
    """Return a command that does for one kind what another one does for all.

    Args:
        command: Has an argument `words`, which begins with a kind.
        kind: The kind.
        name: The name of the new command.
        metavar: How the help shows the arguments that are left; required unless it begins with "[".
        text: The help.
        completes: Returns the candidates for the arguments that are left.
        is_namespaced: Without it, the command has no options about namespaces.
    """
    rest = click.Argument(
        ["words"], nargs=-1, metavar=metavar, required=not metavar.startswith("["), shell_complete=completes
    )
    left_out = {} if is_namespaced else {each: _ABOUT_PLACES[each] for each in _ABOUT_PLACES if _has(command, each)}
    own = [rest if each.name == "words" else each for each in command.params if each.name not in left_out]

    def call(words: tuple[str, ...], **options: Any) -> object:  # noqa: ANN401 - whatever the command takes
        if command.callback is None:
            return None
        return command.callback(words=(kind, *words), **left_out, **options)

    return click.Command(name, params=own, callback=call, help=text)


def _has(command: click.Command, name: str) -> bool:
    return any(each.name == name for each in command.params)
