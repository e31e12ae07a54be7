"""The command's entry: verbs are imported only when they are called, so that `tenantry --help` stays fast."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from tenantry import __version__
from tenantry.api.errors import TenantryError

# verb -> (module below tenantry.cli, attribute, one line of help). The help stands here so that listing
# the verbs imports none of them.
VERBS: dict[str, tuple[str, str, str]] = {
    "up": ("up", "up", "Start a local cluster: a real control plane with Tenantry in it."),
    "down": ("down", "down", "Stop a local cluster."),
    "status": ("status", "status", "Show the local clusters and their components."),
    "logs": ("logs", "logs", "Print the log of a local cluster's component."),
    "kubectl": ("kubectl", "kubectl", "Run kubectl against the chosen cluster."),
    "tenant": ("tenant", "tenant", "Make, suspend, resume and renew tenants."),
    "sub": ("sub", "sub", "Make, move, renew and delete subnamespaces."),
    "get": ("get", "get", "Print tenants and subnamespaces, as a table, JSON or YAML."),
    "describe": ("describe", "describe", "Show everything about a tenant or a subnamespace on one page."),
    "tree": ("tree", "tree", "Draw the tenants, their namespaces and how much of their quotas is used."),
    "quota": ("quota", "quota", "Show how tenants' quotas are divided, and change them for a while."),
    "slice": ("slice", "slice_", "Claim nodes for a tenant alone, and give them back."),
    "nodes": ("nodes", "nodes", "Show which node is whose, which are free, and who waits for some."),
    "explain": ("explain.group", "explain", "Explain denials, rights, quotas and slices."),
    "audit": ("audit", "audit", "Try, as a tenant, what a tenant must not be able to do."),
    "name": ("name", "name", "Print what the namespace of a subnamespace is called."),
    "import": ("imports", "import_", "Take over the namespaces that another tool has made."),
    "request": ("request", "request", "Ask for a tenant or a role."),
    "requests": ("request", "requests", "Print what people ask for, and what was decided."),
    "approve": ("approve", "approve", "Approve what others have asked for."),
    "deny": ("approve", "deny", "Deny what others have asked for."),
    "wait": ("wait", "wait", "Wait until tenants or subnamespaces are ready, or gone."),
    "diff": ("diff", "diff", "Print what the operator would change, without changing it."),
    "render": ("render", "render", "Print what the operator would make of tenants in a file; no cluster needed."),
    "delete": ("delete", "delete", "Delete tenants or subnamespaces, with everything in them."),
    "kubeconfig": ("kubeconfig", "kubeconfig", "Print a kubeconfig: an administrator's, or a tenant's user's."),
    "oidc": ("oidc", "oidc", "Print what a cluster and its people need for logins at an OIDC provider."),
    "bench": ("bench.group", "bench", "Measure a cluster, beside the API server's own speed."),
    "local": ("local", "local", "Build the binaries of the local clusters, list and clean their caches."),
    "node": ("node", "node", "Add, remove, crash and restart the real nodes of a local cluster."),
    "image": ("image", "image", "Make container images from local files, and load them into real nodes."),
    "install": ("install", "install", "Put Tenantry into a cluster: kinds, rights, policies and the operator."),
    "uninstall": ("uninstall", "uninstall", "Take Tenantry out of a cluster."),
    "completion": ("completion", "completion", "Print the completion script for a shell."),
    "operator": ("operator", "operator", "Run the operator (what the Deployment and local clusters run)."),
}

HIDDEN = {"netpol-agent": ("netpol_agent", "netpol_agent"), "node-agent": ("node_agent", "node_agent")}
"""What machines call: verb -> (module below tenantry.cli, attribute)."""


class LazyVerbs(click.Group):
    """A group whose commands are imported when they are called."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS and cmd_name not in HIDDEN:
            return None
        module, attribute = HIDDEN[cmd_name] if cmd_name in HIDDEN else VERBS[cmd_name][:2]
        command = getattr(importlib.import_module(f"tenantry.cli.{module}"), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"tenantry.cli.{module}.{attribute} is not a command")
        keep_examples(command)
        return command

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        # The base would import every verb for its help.
        offers = [
            CompletionItem(verb, help=text) for verb, (_, _, text) in VERBS.items() if verb.startswith(incomplete)
        ]
        return offers if offers and not incomplete.startswith("-") else super().shell_complete(ctx, incomplete)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, _, text) in VERBS.items()])


def keep_examples(command: click.Command) -> None:
    r"""Let examples in help keep their lines: docstrings are raw, and have click's mark "\b" as two characters."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        keep_examples(inner)


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tenantry")
def tenantry() -> None:
    """Kubernetes multitenancy: one Tenant API, isolation as a field."""


def main() -> None:
    """Run the command; errors that a person can act on become one line on stderr and an exit code."""
    program = Path(sys.argv[0]).name
    prog_name = "kubectl tenantry" if program == "kubectl-tenantry" else "tenantry"
    try:
        sys.exit(tenantry.main(prog_name=prog_name, standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("tenantry: stopped", err=True)
        sys.exit(130)
    except TenantryError as error:
        _end_with([error])
    except ExceptionGroup as group:
        told = told_by(group)
        if not told:
            raise
        _end_with(told)
    except BrokenPipeError:
        # The reader went away (`tenantry … | head`): leave without the interpreter's complaint about stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def told_by(group: ExceptionGroup[Exception]) -> list[TenantryError]:
    """Return what a person should hear of errors that came together, each message once; [] where one is a bug."""
    ours, others = group.split(TenantryError)
    found: dict[str, TenantryError] = {}
    for error in _leaves(ours) if ours is not None and others is None else ():
        found.setdefault(str(error), error)
    return list(found.values())


def _leaves(group: ExceptionGroup[TenantryError]) -> Iterator[TenantryError]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _end_with(errors: Sequence[TenantryError]) -> NoReturn:
    from tenantry.cli.output import talk

    for error in errors:
        talk(f"tenantry: {error}")
    sys.exit(errors[0].exit_code)
