"""`tenantry tree`: the tenants, their namespaces, and how much of their quotas is used."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from tenantry.api import marks, reasons
from tenantry.api.model import ConditionStatus
from tenantry.api.owner import Owner
from tenantry.api.tenant import Tenant
from tenantry.cli import complete, forest, output, session
from tenantry.cli.forest import ConditionView, NamespaceView, TenantView
from tenantry.cli.seen import NamespaceSeen, QuotaSeen
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client

OURS = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", shell_complete=complete.tenants)
@output.output_option("json")
def tree(target: Target, *, names: tuple[str, ...], form: str | None) -> None:
    """Draw all tenants, or those named."""
    views = session.run(target, lambda client: read(client, names))
    if form:
        output.write(output.to_json({"tenants": views}))
        return
    if not views:
        output.talk("no tenants; make one with `tenantry tenant create`")
    style = forest.Style(draws=output.can_draw(sys.stdout.encoding), color=output.has_color())
    output.write_lines(forest.draw(views, style))


async def read(client: Client, names: tuple[str, ...]) -> list[TenantView]:
    """Return the tenants of these names, all where none are given, sorted by name.

    Raises:
        NotFound: One of the names is no tenant's.
    """
    if names:
        tenants = [await client.get(Tenant, name) for name in dict.fromkeys(names)]
    else:
        tenants = await client.list(Tenant)
    namespaces, quotas = await asyncio.gather(
        client.list(NamespaceSeen, selectors=OURS), client.list(QuotaSeen, selectors=OURS)
    )
    used = {quota.metadata.namespace: quota.uses() for quota in quotas}
    owned: dict[str, list[NamespaceView]] = {}
    for namespace in sorted(namespaces, key=lambda each: each.key):
        uid = namespace.metadata.labels.get(marks.TENANT_UID, "")
        name = namespace.metadata.name
        view = NamespaceView(name=name, phase=namespace.status.phase, quota=used.get(name, ()))
        owned.setdefault(uid, []).append(view)
    return [
        view_of(tenant, tuple(owned.get(tenant.metadata.uid, ())))
        for tenant in sorted(tenants, key=lambda each: each.key)
    ]


def view_of(tenant: Tenant, namespaces: tuple[NamespaceView, ...]) -> TenantView:
    """Return what the tree shows of a tenant. One whose newest spec was not dealt with yet is not ready."""
    conditions = tuple(
        ConditionView(type=each.type, status=each.status, reason=each.reason, message=each.message)
        for each in tenant.status.conditions
    )
    current = tenant.status.observed_generation >= tenant.metadata.generation
    ready = find(tenant.status.conditions, reasons.READY)
    return TenantView(
        name=tenant.metadata.name,
        ready=current and ready is not None and ready.status is ConditionStatus.TRUE,
        suspended=tenant.spec.suspended,
        network=tenant.spec.isolation.network,
        owners=tuple(owner_text(owner) for owner in tenant.spec.owners),
        conditions=conditions,
        namespaces=namespaces,
    )


def owner_text(owner: Owner) -> str:
    """Return an owner as `--owner` takes it."""
    name = f"{owner.namespace}/{owner.name}" if owner.namespace else owner.name
    return f"{owner.kind}:{name}"
