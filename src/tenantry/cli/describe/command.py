"""`tenantry describe`: everything about one object on one page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import kinds, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.delete import existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...", shell_complete=candidates.objects
)
@place.namespace_option
def describe(target: Target, *, words: tuple[str, ...], namespace: str) -> None:
    r"""Print the spec and status of an object, the contents and users of its namespace, and its latest events.

    \b
      tenantry describe tenant acme
      tenantry describe subnamespace web -n acme
      tenantry describe trq acme
      tenantry describe vcp web -n acme
      tenantry describe dcl prod -n acme
    """
    asked = kinds.parse(words)
    for each in asked:
        if not each.names:
            plural = each.kind.resource.plural
            raise InputError(f"name what to describe, as in `tenantry describe {plural} NAME`; see `{each.listing}`")
    asked = place.settle(target, asked, namespace)
    # One time for all pages, so that equal ages are shown equal.
    now = datetime.now(UTC)

    async def work(client: Client) -> list[list[Part]]:
        return [await _page(client, each, name, now) for each in asked for name in each.names]

    output.show(*output.paragraphs(session.run(target, work)))


async def _page(client: Client, asked: ObjectSelection, name: str, now: datetime) -> list[Part]:
    from tenantry.api.dedicatedcluster import DedicatedCluster
    from tenantry.api.subnamespace import Subnamespace
    from tenantry.api.tenant import Tenant
    from tenantry.api.tenantresourcequota import TenantResourceQuota
    from tenantry.api.virtualcontrolplane import VirtualControlPlane
    from tenantry.cli.describe import cluster, plain, plane, subnamespace, tenant
    from tenantry.views import description, owned

    if asked.kind is Tenant:
        read = await existing(description.read_tenant(client, name), asked.kind, name)
        if read.is_partial:
            output.talk(owned.NOTE)
        return tenant.page(read, now)
    reading = description.read_object(client, asked.kind, name, asked.namespace)
    found = await existing(reading, asked.kind, name, asked.namespace)
    value = found.value
    if isinstance(value, Subnamespace):
        return subnamespace.subnamespace_page(value, found.events, now)
    if isinstance(value, TenantResourceQuota):
        return subnamespace.quota_page(value, found.events, now)
    if isinstance(value, DedicatedCluster):
        return cluster.page(value, found.events, now)
    if isinstance(value, VirtualControlPlane):
        return plane.page(value, found.events, now, await description.limited_keys(client, asked.namespace))
    return plain.page(value, found.events, now)
