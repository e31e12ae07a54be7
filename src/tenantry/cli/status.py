"""`tenantry status`: whether Tenantry works in a cluster, in one screen, and the components of a local cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ConfigError, LocalError, TenantryError, Unreachable
from tenantry.cli import durations, output, session
from tenantry.cli.local import status as local
from tenantry.cli.target import DEFAULT_NAME, Target, may_take_target, read_environment
from tenantry.local.cluster import LocalCluster
from tenantry.local.state import Phase

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.clusters import LocalClusterView
    from tenantry.views.health import HealthView, TenantsView

UNHEALTHY = 1
UNKNOWN = 5


@click.command()
@may_take_target
@click.option("--local", "only_local", is_flag=True, help="Only show the local clusters and their components.")
@output.output_option("table", "wide", "json", "yaml", default="table")
@click.pass_context
def status(context: click.Context, find: Callable[[], Target], *, only_local: bool, form: str) -> None:
    r"""Show whether Tenantry works in a cluster, and what to do next.

    Healthy means: a leader of the operator renews its Lease, its replicas are available, the installed policies,
    bindings, kinds and roles are those of this version, and all components of a local cluster are Ready. A tenant that
    is Stalled or not ready leaves the cluster healthy, because the owner's objects can be the cause; the first line
    counts the Stalled ones, and the next steps name both. Each tenant is counted in one state. Exit code: 0 healthy, 1
    not, 5 a part could not be checked or may not be read; 3 there is no cluster. With --local: 0, or 4 if a named
    cluster is not Ready.

    \b
      tenantry status
      tenantry status --context prod -o json
      tenantry status --local
    """
    environment = read_environment()
    name = str(context.params.get("name") or environment.name)
    if only_local:
        _show_local(context, name, form)
        return
    try:
        target = find()
    except (ConfigError, LocalError) as error:
        stopped = LocalCluster(name or DEFAULT_NAME)
        if not stopped.exists():
            raise
        _print(None, _read_local(stopped), form)
        _end(context, error)
    view = _read_local(LocalCluster(target.local_name)) if target.local_name else None
    try:
        health = session.run(target, lambda client: _health(client, is_local=view is not None))
    except Unreachable as error:
        if view is None:
            raise
        # The API server is one of the components, which show why it does not answer.
        _print(None, view, form)
        _end(context, error)
    if view is not None and view.phase is not Phase.READY:
        problem = f"the local cluster {view.name!r} is {view.phase}"
        health = msgspec.structs.replace(health, healthy=False, problems=(problem, *health.problems))
    _print(health, view, form)
    if not health.healthy:
        context.exit(UNKNOWN if health.healthy is None else UNHEALTHY)


def _end(context: click.Context, error: TenantryError) -> NoReturn:
    output.talk(f"tenantry: {error}")
    context.exit(UNHEALTHY)


async def _health(client: Client, *, is_local: bool) -> HealthView:
    from tenantry.views import health

    return await health.read(client, is_local=is_local)


def _read_local(cluster: LocalCluster) -> LocalClusterView:
    from tenantry.views.clusters import local_clusters

    (view,) = asyncio.run(local_clusters([cluster]))
    return view


def _show_local(context: click.Context, name: str, form: str) -> None:
    """Show the local clusters, or the named one."""
    from tenantry.local.clusters import list_clusters
    from tenantry.views.clusters import local_clusters

    views = asyncio.run(local_clusters([LocalCluster(name)] if name else list_clusters()))
    if form == "json":
        output.write(output.to_json(views))
    elif form == "yaml":
        output.write(output.to_yaml([views]))
    elif not views:
        output.talk("no local clusters; `tenantry up` creates one")
    else:
        output.show(*(part for view in views for part in local.lines(view, wide=form == "wide")))
    if name and views[0].phase is not Phase.READY:
        context.exit(LocalError.exit_code)


def _print(health: HealthView | None, view: LocalClusterView | None, form: str) -> None:
    if form in {"json", "yaml"}:
        whole = {
            **(msgspec.to_builtins(health) if health is not None else {"healthy": False}),
            **({"local": msgspec.to_builtins(view)} if view is not None else {}),
        }
        output.write(output.to_json(whole) if form == "json" else output.to_yaml([whole]))
        return
    groups: list[list[Part]] = [lines(health, datetime.now(UTC), wide=form == "wide")] if health is not None else []
    groups += [local.lines(view, wide=form == "wide")] if view is not None else []
    output.show(*output.paragraphs(groups))


def lines(health: HealthView, now: datetime, *, wide: bool) -> list[Part]:
    """Return the screen about a cluster.

    Args:
        health: The health of the cluster.
        now: The time, with an offset.
        wide: Show all differences of the installed objects.
    """
    word = "Unknown" if health.healthy is None else "Healthy" if health.healthy else "Not healthy"
    installed = f"Tenantry {health.installed or '(unknown version)'}" if health.installed else "no Tenantry"
    rows = [("operator", _operator(health, now)), ("installed objects", _installed(health))]
    if health.tenants is not None:
        rows.append(("tenants", _tenants(health.tenants)))
    if health.pending_requests is not None:
        rows.append(("requests", f"{health.pending_requests} wait for a decision"))
    return [
        f"{word}: {installed} on Kubernetes {health.kubernetes}{_stalled(health.tenants)}",
        *([output.indented(output.pairs(rows))] if health.installed else []),
        *(f"  problem: {each}" for each in health.problems),
        *(f"  differs: {each}" for each in health.differences or () if wide),
        *(f"  next: {each}" for each in health.next),
    ]


def _operator(health: HealthView, now: datetime) -> str:
    operator = health.operator
    if not operator.leader:
        return "no leader"
    version = f"version {operator.version}, " if operator.version else ""
    renewed = f"Lease renewed {durations.age(operator.renewed, now)} ago"
    replicas = f", {operator.available_replicas} of {operator.replicas} replicas" if operator.replicas else ""
    return f"{version}leader {operator.leader}, {renewed}{replicas}"


def _installed(health: HealthView) -> str:
    if health.differences is None:
        return "not compared"
    if health.differences:
        return f"{len(health.differences)} differ from version {health.installed}"
    return f"intact: policies, bindings, kinds and roles are those of version {health.installed}"


def _tenants(tenants: TenantsView) -> str:
    states = [f"{number} {name}" for name, number in tenants.states.items() if name != reasons.READY]
    conditions = [f"{number} {name}" for name, number in tenants.conditions.items()]
    counted = f"{tenants.total}: {', '.join([f'{tenants.ready} Ready', *states])}"
    return f"{counted}; conditions: {', '.join(conditions)}" if conditions else counted


def _stalled(tenants: TenantsView | None) -> str:
    number = tenants.states.get(reasons.STALLED, 0) if tenants is not None else 0
    return f"; {number} of {tenants.total} tenants Stalled" if tenants is not None and number else ""
