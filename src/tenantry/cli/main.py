"""The command's entry: verbs are imported only when they are called, so that `tenantry --help` stays fast."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from typing_extensions import override

from tenantry import __version__
from tenantry.api.errors import TenantryError
from tenantry.cli.groupflags import add_flags, check_flags

# task -> verb -> (module below tenantry.cli, attribute, one line of help). The help is here so that listing the verbs
# imports none of them.
TASKS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Manage tenants": {
        "tenant": ("tenant", "tenant", "Create, show, suspend, renew and delete tenants, add and remove owners."),
        "quota": ("quota", "quota", "Show how tenants' quotas are divided, and adjust them for a limited time."),
        "approve": ("approve", "approve", "Approve requests of others."),
        "deny": ("approve", "deny", "Deny requests of others."),
        "delete": ("delete", "delete", "Delete objects of Tenantry's kinds, with everything in them."),
        "kubeconfig": ("kubeconfig", "kubeconfig", "Print a kubeconfig for an administrator, or for a tenant's user."),
        "oidc": ("oidc", "oidc", "Print what a cluster and its users need for logins at an OIDC provider."),
        "adopt": ("adopt", "adopt", "Give the namespaces of a restored cluster back to their tenants."),
        "import": ("imports.command", "import_", "Adopt the namespaces that another tool has created."),
    },
    "Work inside a tenant": {
        "my": ("my", "my", "Show your own tenants, namespaces, quota, requests and rights."),
        "sub": ("sub", "sub", "Create, show, move, renew and delete subnamespaces, add and remove owners."),
        "request": ("request", "request", "Request a tenant or a role, and show the requests."),
        "vcp": ("vcp", "vcp", "Create, show and delete virtual control planes, and print their kubeconfigs."),
        "cluster": ("cluster.group", "cluster", "Create, scale and delete clusters with nodes of their own."),
        "name": ("name", "name", "Print the name of a subnamespace's namespace."),
    },
    "Nodes": {
        "slice": ("slice", "slice_", "Claim nodes for one tenant, and release them."),
        "node": ("local.node", "node", "Show the tenant of each node; add and remove nodes of a local cluster."),
        "peer": ("peer.group", "peer", "Connect clusters: pods of one run on the other."),
    },
    "Look and explain": {
        "status": ("status", "status", "Show whether Tenantry works in a cluster, and what to do next."),
        "get": ("get", "get", "Print tenants and subnamespaces as a table, JSON or YAML."),
        "describe": ("describe.command", "describe", "Show everything about a tenant or a subnamespace on one page."),
        "tree": ("tree", "tree", "Draw the tenants, their namespaces and the use of their quotas."),
        "wait": ("wait", "wait", "Wait until tenants or subnamespaces are ready, or gone."),
        "explain": ("explain.group", "explain", "Explain denied objects, rights, quotas and claims of nodes."),
        "diff": ("diff", "diff", "Print what the operator would change, without changing it."),
        "plan": ("plan", "plan", "Print what applying files would do, with the consequences."),
        "render": ("render", "render", "Print the objects that tenants in a file become; no cluster needed."),
        "audit": ("audit", "audit", "Try, as a tenant, what a tenant must not be able to do."),
    },
    "Local clusters": {
        "up": ("local.up", "up", "Start a local cluster: a Kubernetes control plane with Tenantry in it."),
        "down": ("local.down", "down", "Stop a local cluster."),
        "logs": ("local.logs", "logs", "Print the log of a local cluster's component."),
        "image": ("local.image", "image", "Build container images from local files, and load them into real nodes."),
        "local": ("local.builds", "local", "Build the binaries of local clusters, list and clean their caches."),
        "kubectl": ("local.kubectl", "kubectl", "Run kubectl against the chosen cluster."),
    },
    "Install": {
        "install": ("install", "install", "Install Tenantry in a cluster: kinds, rights, policies and the operator."),
        "uninstall": ("uninstall", "uninstall", "Remove Tenantry from a cluster."),
        "operator": ("processes.operator", "operator", "Run the operator, as the Deployment and local clusters do."),
        "bench": ("bench.group", "bench", "Measure a cluster, beside the API server's own speed."),
        "support-bundle": (
            "support",
            "support_bundle",
            "Collect what helps to find a problem, without Secrets.",
        ),
        "completion": ("completion.script", "completion", "Print the completion script for a shell."),
    },
}

VERBS = {verb: entry for verbs in TASKS.values() for verb, entry in verbs.items()}

HIDDEN = {
    "netpol-agent": ("processes.netpol_agent", "netpol_agent", "Enforce NetworkPolicies on a node."),
    "node-agent": ("processes.node_agent", "node_agent", "Clean a node."),
    "node-tunnel": ("processes.node_tunnel", "node_tunnel", "Keep the tunnel of a node open."),
}
"""Commands that components run, in the form of VERBS."""

OLD = {"nodes": ("node", "list"), "requests": ("request", "list")}
"""Old spellings of verbs: the noun and the verb that they became. They work for one release; see `spellings`."""


class LazyVerbs(click.Group):
    """A group that lists its commands by their names and help, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as click.Group takes them
        listed = [click.Command(verb, help=text) for verb, (_, _, text) in VERBS.items()]
        hidden = [click.Command(verb, help=text, hidden=True) for verb, (_, _, text) in HIDDEN.items()]
        hidden += [click.Command(verb, hidden=True) for verb in OLD]
        super().__init__(commands=[*listed, *hidden], **attributes)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *HIDDEN, *OLD]

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        command = load(name) if name else command
        if command is not None and not ctx.resilient_parsing:
            check_flags(ctx, command)
        return name, command, rest

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for task, verbs in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(verb, text) for verb, (_, _, text) in verbs.items()])


def load(verb: str) -> click.Command:
    """Import a verb's command."""
    if verb in OLD:
        from tenantry.cli.spellings import moved

        noun, inner = OLD[verb]
        group = load(noun)
        if not isinstance(group, click.Group):
            raise TypeError(f"tenantry {noun} is not a group")
        return moved(group.commands[inner], verb, f"tenantry {noun} {inner}")
    module, attribute, _ = {**VERBS, **HIDDEN}[verb]
    command = getattr(importlib.import_module(f"tenantry.cli.{module}"), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"tenantry.cli.{module}.{attribute} is not a command")
    keep_examples(command)
    if isinstance(command, click.Group):
        add_flags(command)
    return command


def keep_examples(command: click.Command) -> None:
    r"""Let examples in help keep their lines: docstrings are raw, and have click's mark "\b" as two characters."""
    # Docstrings are raw: an escape sequence in an example must not become a control character.
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        keep_examples(inner)


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tenantry")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path to the kubeconfig, of every verb.")
@click.option("--context", help="Context to use, of every verb; a flag after the verb goes before this one.")
def tenantry(*, kubeconfig: Path | None, context: str | None) -> None:
    """Kubernetes multitenancy: one Tenant API, isolation as a field."""


def main() -> None:
    """Run the command; errors that a person can act on become one line on stderr and an exit code."""
    program = Path(sys.argv[0]).name
    prog_name = "kubectl tenantry" if program == "kubectl-tenantry" else "tenantry"
    try:
        # Not standalone: errors become one line and an exit code here.
        sys.exit(_command().main(prog_name=prog_name, standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("tenantry: interrupted", err=True)
        sys.exit(130)
    except TenantryError as error:
        _end_with([error])
    except ExceptionGroup as group:
        told = reportable(group)
        if not told:
            raise
        _end_with(told)
    except BrokenPipeError:
        # The reader has ended (`tenantry … | head`). The interpreter would print an error when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _command() -> click.Group:
    # A pipe gets plain text, so the import of rich would be wasted.
    if not sys.stdout.isatty():
        return tenantry
    from tenantry.cli.help import with_rich_help

    return with_rich_help(tenantry)


def reportable(group: ExceptionGroup[Exception]) -> list[TenantryError]:
    """Return the errors of a group to report, each message once; [] if one of them is a bug."""
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
