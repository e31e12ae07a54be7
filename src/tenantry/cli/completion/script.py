"""`tenantry completion`: the script that makes a shell complete verbs, options and the names of tenants.

The shell runs the command itself with _TENANTRY_COMPLETE set, and click calls the functions of `candidates`. kubectl
runs `kubectl_complete-tenantry` instead, as for all its plugins.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class
from typing_extensions import override

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_TENANTRY_COMPLETE"
_NO_FILES = ":4"
"""Cobra's ShellCompDirectiveNoFileComp: the last line of what kubectl reads from a plugin's completion."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    r"""Print the completion script for bash, zsh or fish.

    \b
      eval "$(tenantry completion bash)"     # in ~/.bashrc
      eval "$(tenantry completion zsh)"      # in ~/.zshrc, after compinit
      tenantry completion fish > ~/.config/fish/completions/tenantry.fish
    """
    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click has no completion for {shell}")
    click.echo(kind(root, {}, "tenantry", _VARIABLE).source())


class _ForKubectl(ShellComplete):
    """kubectl passes the words as arguments, the last one incomplete, and reads one candidate from each line."""

    name = "kubectl"
    source_template = ""

    @override
    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the whole words and the incomplete one."""
        words = sys.argv[1:]
        return (words[:-1], words[-1]) if words else ([], "")

    @override
    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return one line: the candidate, a tab, and its help."""
        return f"{item.value}\t{item.help}" if item.help else str(item.value)


def complete_for_kubectl() -> None:
    """Answer `kubectl_complete-tenantry WORD…`, which kubectl runs to complete `kubectl tenantry …`."""
    from tenantry.cli.main import tenantry

    found = _ForKubectl(tenantry, {}, "kubectl tenantry", _VARIABLE).complete()
    if found:
        click.echo(found)
    click.echo(_NO_FILES)
