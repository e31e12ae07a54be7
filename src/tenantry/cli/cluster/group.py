"""`tenantry cluster`: creates, shows, scales and deletes clusters of tenants, and prints their kubeconfigs."""

from __future__ import annotations

import contextlib
import io
import sys
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
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_DCL = DedicatedCluster.names.short[0]


@click.group()
def cluster() -> None:
    """Create, scale and delete clusters of tenants, and print their kubeconfigs.

    Exit code of each command: 0 it is done; 1 it is not, or not before the deadline; 2 the input is wrong, or the
    cluster has not started yet; 3 no host cluster is reachable; 5 the cluster does not exist, or the API server
    refuses.
    """


@cluster.command()
@takes_target
@click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
@in_tenant
@output.output_option("json", "yaml")
def kubeconfig(target: Target, *, called: str, namespace: str, form: str | None) -> None:
    r"""Print the kubeconfig of a cluster; its user is an administrator inside.

    Exit code: 0 it is printed; 2 it has not started yet; 5 there is no such cluster.

    \b
      tenantry cluster kubeconfig acme > acme.kubeconfig
      kubectl --kubeconfig acme.kubeconfig get nodes
    """
    where = namespace or called

    async def work(client: Client) -> str:
        from tenantry.cli.controlplane import is_of_cluster_api, renamed
        from tenantry.cli.delete import read_existing
        from tenantry.cli.vcp import read_cluster_kubeconfig, read_kubeconfig

        found = await read_existing(client, DedicatedCluster, called, where)
        if is_of_cluster_api(found):
            return renamed(await read_cluster_kubeconfig(client, found), called)
        # Its control plane has its name.
        return renamed(await read_kubeconfig(client, called, where, DedicatedCluster), called)

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
    option = output.output_option("json", "yaml", "name", *output.TEMPLATES)

    def call(words: tuple[str, ...], namespace: str, **options: Any) -> object:  # noqa: ANN401 - whatever the command takes
        # A path has its namespace in it.
        if not namespace and not any("/" in word for word in words):
            if len(words) == 1:
                namespace = words[0]
            elif "everywhere" in options:
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


def _printing(command: click.Command) -> click.Command:
    """Return a command about one cluster with the option -o, by which it prints the cluster when it is done.

    What the command prints itself then goes to stderr; if it fails, to stdout, because it may be a patch for Git.

    Args:
        command: Has the arguments `called` and `namespace`.
    """
    inner = command.callback
    option = output.output_option("json", "yaml", "name", *output.TEMPLATES)
    others = [each for each in command.params if each.name != "form"]
    # An upgrade that prints its plan has the option for the plan.
    prints_plan = len(others) < len(command.params)

    def call(called: str, namespace: str, form: str | None, **options: Any) -> None:  # noqa: ANN401 - what it takes
        if inner is None or get.callback is None:
            raise TypeError(f"{command.name} has no callback")
        if prints_plan:
            options["form"] = form if options.get("plan") else None
        if not form or options.get("plan"):
            inner(called=called, namespace=namespace, **options)
            return
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(told):
                inner(called=called, namespace=namespace, **options)
        except BaseException:
            sys.stdout.write(told.getvalue())
            raise
        sys.stderr.write(told.getvalue())
        where = "" if "/" in called else namespace or called
        get.callback(words=(_DCL, called), namespace=where, everywhere=False, form=form, watches=False, selector="")

    params = [*others, *getattr(option(lambda: None), "__click_params__", [])]
    return click.Command(command.name, params=params, callback=call, help=command.help)


_LIST = """List clusters of all namespaces, or with -n of one.

Exit code: 0 they are listed, also if there are none; 5 they may not be.

\b
  tenantry cluster list
  tenantry cluster list -o json
"""
_GET = """Show clusters in one line each.

Exit code: 0 they are shown; 5 one does not exist, or may not be read.

\b
  tenantry cluster get acme -o yaml
"""
_DESCRIBE = """Show everything about a cluster: its template and version, pools, conditions and events.

Exit code: 0 it is shown; 5 it does not exist, or may not be read.

\b
  tenantry cluster describe acme
"""
_WAIT = """Wait until clusters are ready.

Exit code: 0 they are; 1 one of them is not before the deadline; 5 one does not exist.

\b
  tenantry cluster wait acme
"""
_ALIKE = (
    (get, "list", "", _LIST),
    (get, "get", "[NAME]...", _GET),
    (describe, "describe", "NAME", _DESCRIBE),
    (wait, "wait", "[NAME]...", _WAIT),
)
for _command in (create, delete):
    cluster.add_command(_command)
for _command in (scale, sleep, wake, upgrade, rotate, backup, restore):
    cluster.add_command(_printing(_command))
for _verb, _name, _metavar, _text in _ALIKE:
    cluster.add_command(
        _placed(narrowed(_verb, _DCL, name=_name, metavar=_metavar or "[NAME]...", text=_text), shows=_verb is describe)
    )
