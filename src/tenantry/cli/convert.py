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
from tenantry.api.marks import OWNER_ROLE
from tenantry.api.model import Json, KubernetesObject, Resource
from tenantry.api.tenant import Tenant
from tenantry.cli import controlplane, flags, kinds, output, session
from tenantry.cli.completion import candidates
from tenantry.cli.delete import read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.kube import wire

if TYPE_CHECKING:
    from tenantry.controllers.conversion.plan import ConversionPlan
    from tenantry.kube.client import Client

CANNOT_MOVE = 1
"""The exit code of a dry run if the tenant would not be converted."""

_HEADERS = ("KIND", "NAME", "FATE", "REASON")


class _Concluded(WaitCondition):
    """The conversion has ended, or is refused."""

    def __init__(self, choice: ControlPlaneChoice) -> None:
        super().__init__("")
        self._choice = choice
        self.journal: Conversion | None = None

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether it has."""
        found = value.status.conversion if isinstance(value, Tenant) else None
        if not isinstance(found, Conversion) or found.to is not self._choice:
            return False
        self.journal = found
        return found.step in (ConversionStep.REFUSED, ConversionStep.CONVERTED)

    def __str__(self) -> str:
        """Return it in words."""
        return "converted"


@click.command()
@takes_target
@click.argument("tenant_name", metavar="NAME", shell_complete=candidates.tenants)
@flags.choice_option("--to", ControlPlaneChoice.VIRTUAL, "What the tenant becomes, or is again if nothing has moved.")
@click.option("--dry-run", is_flag=True, help="Only list what happens to each object; exit code 1 if one cannot move.")
@flags.takes_wait(timeout="10m")
def convert(target: Target, *, tenant_name: str, to: str, dry_run: bool, seconds: int | None) -> None:
    r"""Give a tenant a control plane of its own, or take it back to the API server of the host; its pods run on.

    \b
      tenantry tenant convert acme --dry-run
      tenantry tenant convert acme --wait
      tenantry tenant convert acme --to shared --dry-run
    """
    choice = ControlPlaneChoice(to)
    if not dry_run and session.run(target, lambda client: _take_back(client, tenant_name, choice)):
        return
    if not dry_run:
        controlplane.prepare(target, to)
    plan = session.run(target, lambda client: _plan(client, tenant_name, choice))
    if dry_run:
        rows = [(each.kind, each.name, str(each.fate), each.reason) for each in plan.objects]
        output.show(output.table(_HEADERS, rows))
        if plan.refusal:
            sys.exit(CANNOT_MOVE)
        return
    if plan.refusal:
        raise InputError(f"{kinds.full_name(Tenant, tenant_name)} {plan.refusal}; --dry-run lists all of it")
    session.run(target, lambda client: _request(client, tenant_name, choice, seconds))


async def _plan(client: Client, name: str, choice: ControlPlaneChoice) -> ConversionPlan:
    import datetime as dt

    from tenantry.world.leases import with_lease

    found = await read_existing(client, Tenant, name)
    if found.spec.isolation.control_plane is choice and not _is_on_its_way(found):
        raise InputError(f"{kinds.full_name(Tenant, name)} has isolation.controlPlane {choice} already")
    counted = with_lease(found, dt.datetime.now(dt.UTC))
    return await (_plan_in if choice is ControlPlaneChoice.VIRTUAL else _plan_out)(client, counted)


def _is_on_its_way(found: Tenant) -> bool:
    journal = found.status.conversion
    return isinstance(journal, Conversion) and journal.step in UNDONE_BY_SPEC


async def _plan_in(client: Client, found: Tenant) -> ConversionPlan:
    from tenantry.api.subnamespace import Subnamespace
    from tenantry.controllers.conversion import objects
    from tenantry.controllers.conversion.plan import plan

    name = found.metadata.name
    host = objects.Holdings(of=await _listed(client, objects.EVERY, name))
    return plan(found, host, await client.list(Subnamespace, namespace=name))


async def _plan_out(client: Client, found: Tenant) -> ConversionPlan:
    import tempfile
    from pathlib import Path

    from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
    from tenantry.cli.vcp import read_kubeconfig
    from tenantry.controllers.conversion import inventory, objects, outplan
    from tenantry.controllers.conversion.moves import Worlds
    from tenantry.engine.reader import Reader
    from tenantry.hosting.placement import RESPONSE_BYTES
    from tenantry.kube import kubeconfig
    from tenantry.kube.client import Client as InsideClient
    from tenantry.mirror.profile import Profile

    name = found.metadata.name
    plane = await client.get(VirtualControlPlane, name, name)
    profile = Profile(owner_uid=plane.metadata.uid, namespace=name, prefix=PREFIX)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(await read_kubeconfig(client, name, name))
        # A tenant may route kinds inside to programs of its own.
        connection = msgspec.structs.replace(kubeconfig.load([path]), max_bytes=RESPONSE_BYTES)
    async with InsideClient(connection) as inside_client:
        obstacles = await inventory.obstacles(Reader(inside_client), name)
        inside = await inventory.holdings(Reader(inside_client), outplan.INSIDE, name)
    host = objects.Holdings(of=await _listed(client, outplan.HOST, name))
    worlds = Worlds(host=host, inside=inside, has_namespace=True, profile=profile)
    data = msgspec.json.decode(await client.request("GET", wire.path(objects.CLUSTER_ROLES, "", OWNER_ROLE)))
    return outplan.plan(found, worlds, obstacles, data.get("rules") or [])


async def _listed(client: Client, resources: Sequence[Resource], namespace: str) -> dict[Resource, Sequence[Json]]:
    return {
        resource: [msgspec.json.decode(each) async for each in client.items(resource, msgspec.Raw, namespace=namespace)]
        for resource in resources
    }


async def _request(client: Client, name: str, choice: ControlPlaneChoice, seconds: int | None) -> None:
    await _write(client, name, choice)
    output.talk(f"{kinds.full_name(Tenant, name)} is converted: status.conversion reports the progress")
    if seconds is None:
        return
    condition = _Concluded(choice)
    await wait_for_all(client, [ObjectSelection(Tenant, (name,))], condition, seconds=seconds, quiet=True)
    journal = condition.journal
    if journal is not None and journal.step is ConversionStep.REFUSED:
        raise InputError(f"{kinds.full_name(Tenant, name)} is not converted: {journal.message}")
    is_virtual = choice is ControlPlaneChoice.VIRTUAL
    told = "has a control plane of its own" if is_virtual else "shares the API server of the host"
    output.talk(f"{kinds.full_name(Tenant, name)} {told}")


async def _take_back(client: Client, name: str, choice: ControlPlaneChoice) -> bool:
    """Undo a conversion to the other choice that has not begun to move; return whether there is one."""
    found = await read_existing(client, Tenant, name)
    journal = found.status.conversion
    if found.spec.isolation.control_plane is choice or not _is_on_its_way(found):
        return False
    if not isinstance(journal, Conversion) or journal.to is choice:
        return False
    await _write(client, name, choice)
    output.talk(f"{kinds.full_name(Tenant, name)}: the conversion is undone")
    return True


async def _write(client: Client, name: str, choice: ControlPlaneChoice) -> None:
    body: Json = {"spec": {"isolation": {"controlPlane": choice.value}}}
    await client.merge_patch(Tenant.resource, "", name, body)
