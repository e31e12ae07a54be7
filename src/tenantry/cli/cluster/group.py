"""`tenantry cluster`: creates, shows, scales and deletes clusters of tenants, and prints their kubeconfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.cli import output, session
from tenantry.cli.cluster.changes import delete, scale, sleep, wake
from tenantry.cli.cluster.create import create
from tenantry.cli.cluster.lifecycle import backup, restore, rotate, upgrade
from tenantry.cli.cluster.place import in_tenant
from tenantry.cli.describe.command import describe
from tenantry.cli.get import get
from tenantry.cli.narrowed import narrowed
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_DCL = DedicatedCluster.names.short[0]


@click.group()
def cluster() -> None:
    """Create, scale and delete clusters of tenants, and print their kubeconfigs."""


@cluster.command()
@takes_target
@click.argument("called", metavar="NAME")
@in_tenant
@output.output_option("json", "yaml")
def kubeconfig(target: Target, *, called: str, namespace: str, form: str | None) -> None:
    r"""Print the kubeconfig of a cluster; its user is an administrator inside.

    Exit code: 0 it is printed; 1 there is no such cluster; 2 it has not started yet.

    \b
      tenantry cluster kubeconfig acme > acme.kubeconfig
      kubectl --kubeconfig acme.kubeconfig get nodes
    """
    where = namespace or called

    async def work(client: Client) -> str:
        from tenantry.cli.controlplane import renamed
        from tenantry.cli.delete import read_existing
        from tenantry.cli.vcp import read_kubeconfig

        await read_existing(client, DedicatedCluster, called, where)
        # Its control plane has its name.
        return renamed(await read_kubeconfig(client, called, where), called)

    text = session.run(target, work)
    if form == "json":
        import yaml

        text = output.to_json(yaml.safe_load(text))
    output.write(text.rstrip("\n"))


def _placed(command: click.Command, *, shows: bool = False) -> click.Command:
    """Return a command about one kind whose -n is, if it is left out, the tenant of the cluster's name.

    Args:
        command: Has the arguments `words`, `namespace` and perhaps `everywhere`.
        shows: It gets the option -o, with which it prints objects as `get` does.
    """
    inner = command.callback
    option = output.output_option("json", "yaml", "name")

    def call(words: tuple[str, ...], namespace: str, **options: Any) -> object:  # noqa: ANN401 - whatever the command takes
        if not namespace and len(words) == 1:
            namespace = words[0]
        if not namespace and "everywhere" in options:
            options["everywhere"] = True
        form = options.pop("form") if shows else None
        if form and get.callback is not None:
            return get.callback(
                words=(_DCL, *words), namespace=namespace, everywhere=False, form=form, watches=False, selector=""
            )
        return inner(words=words, namespace=namespace, **options) if inner is not None else None

    params = list(command.params)
    if shows:
        params += getattr(option(lambda: None), "__click_params__", [])
    return click.Command(command.name, params=params, callback=call, help=command.help)


_ALIKE = (
    (get, "list", "", "List clusters of all namespaces, or with -n of one.\n\n\b\n  tenantry cluster list"),
    (
        get,
        "get",
        "[NAME]...",
        "Show clusters in one line each.\n\n\b\n  tenantry cluster get acme -o yaml",
    ),
    (
        describe,
        "describe",
        "NAME",
        "Show everything about a cluster; exit code 1 if there is none.\n\n\b\n  tenantry cluster describe acme",
    ),
    (
        wait,
        "wait",
        "[NAME]...",
        "Wait until clusters are ready; exit code 1 after the deadline.\n\n\b\n  tenantry cluster wait acme",
    ),
)
for _command in (create, scale, upgrade, rotate, backup, restore, sleep, wake, delete):
    cluster.add_command(_command)
for _verb, _name, _metavar, _text in _ALIKE:
    cluster.add_command(
        _placed(narrowed(_verb, _DCL, name=_name, metavar=_metavar or "[NAME]...", text=_text), shows=_verb is describe)
    )
