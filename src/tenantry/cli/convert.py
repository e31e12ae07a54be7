"""`tenantry tenant convert`: shows what a conversion moves, requests it, and waits for its outcome."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import UNDONE_BY_SPEC, Conversion, ConversionStep
from tenantry.api.errors import InputError
from tenantry.api.model import Json, KubernetesObject, Resource
from tenantry.api.tenant import Tenant
from tenantry.cli import controlplane, flags, kinds, output, session
from tenantry.cli.completion import candidates
from tenantry.cli.delete import read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all

if TYPE_CHECKING:
    from tenantry.controllers.conversion.plan import ConversionPlan
    from tenantry.kube.client import Client

CANNOT_MOVE = 1
"""The exit code of a dry run if the tenant would not be converted."""

_HEADERS = ("KIND", "NAME", "FATE", "REASON")


class _Concluded(WaitCondition):
    """The conversion has ended, or is refused."""

    def __init__(self) -> None:
        super().__init__("")
        self.journal: Conversion | None = None

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether it has."""
        found = value.status.conversion if isinstance(value, Tenant) else None
        if not isinstance(found, Conversion):
            return False
        self.journal = found
        return found.step in (ConversionStep.REFUSED, ConversionStep.CONVERTED)

    def __str__(self) -> str:
        """Return it in words."""
        return "converted"


@click.command()
@takes_target
@click.argument("tenant_name", metavar="NAME", shell_complete=candidates.tenants)
@flags.choice_option("--to", ControlPlaneChoice.VIRTUAL, "What the tenant becomes; shared: undo what has not begun.")
@click.option("--dry-run", is_flag=True, help="Only list what happens to each object; exit code 1 if one cannot move.")
@flags.takes_wait(timeout="10m")
def convert(target: Target, *, tenant_name: str, to: str, dry_run: bool, seconds: int | None) -> None:
    r"""Give a tenant a control plane of its own; its pods run on.

    \b
      tenantry tenant convert acme --dry-run
      tenantry tenant convert acme --wait
    """
    if to == ControlPlaneChoice.SHARED:
        session.run(target, lambda client: _take_back(client, tenant_name))
        return
    if not dry_run:
        controlplane.prepare(target, to)
    plan = session.run(target, lambda client: _plan(client, tenant_name))
    if dry_run:
        rows = [(each.kind, each.name, str(each.fate), each.reason) for each in plan.objects]
        output.show(output.table(_HEADERS, rows))
        if plan.refusal:
            sys.exit(CANNOT_MOVE)
        return
    if plan.refusal:
        raise InputError(f"{kinds.full_name(Tenant, tenant_name)} {plan.refusal}; --dry-run lists all of it")
    session.run(target, lambda client: _request(client, tenant_name, seconds))


async def _plan(client: Client, name: str) -> ConversionPlan:
    import datetime as dt

    from tenantry.api.subnamespace import Subnamespace
    from tenantry.controllers.conversion import objects
    from tenantry.controllers.conversion.plan import plan
    from tenantry.world.leases import with_lease

    found = await read_existing(client, Tenant, name)
    if found.spec.isolation.control_plane is ControlPlaneChoice.VIRTUAL:
        raise InputError(f"{kinds.full_name(Tenant, name)} has isolation.controlPlane Virtual already")
    of: dict[Resource, Sequence[Json]] = {
        resource: [msgspec.json.decode(each) async for each in client.items(resource, msgspec.Raw, namespace=name)]
        for resource in objects.EVERY
    }
    children = await client.list(Subnamespace, namespace=name)
    return plan(with_lease(found, dt.datetime.now(dt.UTC)), objects.Holdings(of=of), children)


async def _request(client: Client, name: str, seconds: int | None) -> None:
    body: Json = {"spec": {"isolation": {"controlPlane": ControlPlaneChoice.VIRTUAL.value}}}
    await client.merge_patch(Tenant.resource, "", name, body)
    output.talk(f"{kinds.full_name(Tenant, name)} is converted: status.conversion reports the progress")
    if seconds is None:
        return
    condition = _Concluded()
    await wait_for_all(client, [ObjectSelection(Tenant, (name,))], condition, seconds=seconds, quiet=True)
    journal = condition.journal
    if journal is not None and journal.step is ConversionStep.REFUSED:
        raise InputError(f"{kinds.full_name(Tenant, name)} is not converted: {journal.message}")
    output.talk(f"{kinds.full_name(Tenant, name)} has a control plane of its own")


async def _take_back(client: Client, name: str) -> None:
    found = await read_existing(client, Tenant, name)
    journal = found.status.conversion
    if found.spec.isolation.control_plane is ControlPlaneChoice.SHARED:
        raise InputError(f"{kinds.full_name(Tenant, name)} has isolation.controlPlane Shared already")
    if not isinstance(journal, Conversion) or journal.step not in UNDONE_BY_SPEC:
        raise InputError(
            f"{kinds.full_name(Tenant, name)} has its objects in a control plane of its own, and they cannot move back"
            " yet: create another tenant, and move the objects yourself"
        )
    body: Json = {"spec": {"isolation": {"controlPlane": ControlPlaneChoice.SHARED.value}}}
    await client.merge_patch(Tenant.resource, "", name, body)
    output.talk(f"{kinds.full_name(Tenant, name)}: the conversion is undone")
