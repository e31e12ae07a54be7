"""Commands that work on objects of any kind, as commands of a group for one kind."""

from __future__ import annotations

from typing import Any

import click


def narrowed(command: click.Command, kind: str, *, name: str, metavar: str, text: str) -> click.Command:
    """Return a command that does for one kind what another one does for all.

    Args:
        command: Has an argument `words`, which begins with a kind.
        kind: The kind.
        name: The name of the new command.
        metavar: How the help shows the arguments that are left; required unless it begins with "[".
        text: The help.
    """
    rest = click.Argument(["words"], nargs=-1, metavar=metavar, required=not metavar.startswith("["))
    own = [rest if each.name == "words" else each for each in command.params]

    def call(words: tuple[str, ...], **options: Any) -> object:  # noqa: ANN401 - whatever the command takes
        return command.callback(words=(kind, *words), **options) if command.callback is not None else None

    return click.Command(name, params=own, callback=call, help=text)
