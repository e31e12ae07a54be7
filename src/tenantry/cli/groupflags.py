"""The flags of a cluster between a group and its verb, as in `tenantry tenant --context c suspend acme`.

kubectl takes its flags at any place. Groups get theirs here, where a verb is loaded, so that each new group has them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import click

CLUSTER_FLAGS = ("kubeconfig", "context")
"""The flags that verbs take before them, too, as kubectl does; see `target.named`."""


def add_flags(group: click.Group) -> None:
    """Give a group, and the groups in it, the flags of a cluster if any of its verbs uses them."""
    for inner in group.commands.values():
        if isinstance(inner, click.Group):
            add_flags(inner)
    # A verb is loaded more than once in the tools and in tests.
    if uses_cluster(group) or not any(uses_cluster(inner) for inner in group.commands.values()):
        return
    group.params += [
        click.Option(
            ["--kubeconfig"], type=click.Path(path_type=Path), help="Path to the kubeconfig, of each command."
        ),
        click.Option(
            ["--context"], help="Context to use, of every command; a flag after the command goes before this one."
        ),
    ]
    call = group.callback

    @functools.wraps(call or add_flags)
    def checked(**given: object) -> object:
        context = click.get_current_context()
        verb = group.commands.get(context.invoked_subcommand or "")
        if verb is not None:
            check_flags(context, verb)
        return call(**{key: value for key, value in given.items() if key not in CLUSTER_FLAGS}) if call else None

    group.callback = checked


def uses_cluster(command: click.Command) -> bool:
    """Return whether a command takes the flags of a cluster."""
    return CLUSTER_FLAGS[0] in {each.name for each in command.params}


def check_flags(context: click.Context, verb: click.Command) -> None:
    """Refuse flags before a verb that would not use them: a command must not act on another cluster than the named.

    Args:
        context: Of the group of the verb.
        verb: The verb; a group checks its own verbs.

    Raises:
        click.UsageError: There are such flags.
    """
    given = [f"--{flag}" for flag in CLUSTER_FLAGS if any(each.params.get(flag) for each in outwards(context))]
    if not given or isinstance(verb, click.Group) or uses_cluster(verb):
        return
    program, *groups = [each.info_name or "" for each in reversed(list(outwards(context)))]
    words = " ".join([*groups, verb.name or ""])
    raise click.UsageError(
        f"{' and '.join(given)} may not be given before `{words}`: give after it only what"
        f" `{program} {words} --help` lists"
    )


def outwards(context: click.Context) -> Iterator[click.Context]:
    """Yield a context and those around it, the innermost first."""
    found: click.Context | None = context
    while found is not None:
        yield found
        found = found.parent


def leading_flags(words: list[str]) -> int:
    """Return how many words at the start are flags of a cluster, and their values."""
    number = 0
    names = {f"--{flag}" for flag in CLUSTER_FLAGS}
    while number < len(words) and words[number].partition("=")[0] in names:
        number += 1 if "=" in words[number] else 2
    return min(number, len(words))
