"""`tenantry tenant convert`, `tenantry sub convert`: show what a conversion moves, request it, wait for its outcome."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import UNDONE_BY_SPEC, Conversion, ConversionStep
from tenantry.api.errors import Forbidden, InputError, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import OWNER_ROLE, SUSPENDED
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import controlplane, flags, kinds, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.delete import read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACED_NAME, TENANT_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.engine.conditions import find, is_true
from tenantry.kube import wire

if TYPE_CHECKING:
    from tenantry.controllers.conversion.plan import ConversionPlan
    from tenantry.controllers.conversion.scope import ConversionScope
    from tenantry.kube.client import Client

CANNOT_MOVE = 1
"""The exit code of a dry run if nothing would be converted: that of a refused conversion."""

_HEADERS = ("KIND", "NAME", "FATE", "REASON")


class ConversionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to convert.

    Args:
        kind: Tenant or Subnamespace.
        name: Its name.
        namespace: The parent namespace of a Subnamespace; "" for a Tenant.
        choice: What it becomes.
    """

    kind: type[Tenant | Subnamespace]
    name: str
    namespace: str = ""
    choice: ControlPlaneChoice

    @property
    def told(self) -> str:
        """Return the object in words."""
        return kinds.told(self.kind, self.name, self.namespace)

    async def read(self, client: Client) -> Tenant | Subnamespace:
        """Return the object.

        Raises:
            NotFound: It does not exist.
        """
        return await read_existing(client, self.kind, self.name, self.namespace)


class ConversionEnded(WaitCondition):
    """The conversion has ended, or is refused."""

    def __init__(self, choice: ControlPlaneChoice) -> None:
        super().__init__("")
        self._choice = choice
        self.journal: Conversion | None = None

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether it has."""
        if not isinstance(value, Tenant | Subnamespace):
            return False
        found = value.status.conversion
        if not isinstance(found, Conversion) or found.to is not self._choice:
            return False
        self.journal = found
        conditions = value.status.conditions
        if found.step is ConversionStep.CONVERTED and self._choice is ControlPlaneChoice.VIRTUAL:
            # Its kubeconfig is written last.
            return is_true(conditions, reasons.CONTROL_PLANE_READY)
        if found.step is ConversionStep.CONVERTED:
            # The controller of the owner gives the owners their rights on the host after this step, and only then
            # reports that there is no control plane.
            return find(conditions, reasons.CONTROL_PLANE_READY) is None
        return found.step in (ConversionStep.REFUSED, ConversionStep.CONVERTED)

    def __str__(self) -> str:
        """Return it in words."""
        return "converted"


_to_option = click.option(
    "--to",
    # Nothing is moved into a cluster with nodes of its own.
    type=click.Choice([ControlPlaneChoice.SHARED.value, ControlPlaneChoice.VIRTUAL.value], case_sensitive=False),
    default=ControlPlaneChoice.VIRTUAL.value,
    show_default=True,
    help="What it becomes, or is again if nothing has moved.",
)
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only list what happens to each object; exit code 1 if one cannot move."
)


@click.command("convert")
@takes_target
@click.argument("tenant_name", metavar="NAME", type=TENANT_NAME, shell_complete=candidates.tenants)
@_to_option
@_dry_run_option
@flags.takes_wait(timeout="10m")
def convert_tenant(target: Target, *, tenant_name: str, to: str, dry_run: bool, seconds: int | None) -> None:
    r"""Give a tenant a control plane of its own, or take it back to the API server of the host; its pods run on.

    \b
      tenantry tenant convert acme --dry-run
      tenantry tenant convert acme --wait
      tenantry tenant convert acme --to shared --dry-run
    """
    asked = ConversionRequest(kind=Tenant, name=tenant_name, choice=ControlPlaneChoice(to))
    _convert(target, asked, dry_run=dry_run, seconds=seconds)


@click.command("convert")
@takes_target
@click.argument("child", metavar="NAME", type=NAMESPACED_NAME, shell_complete=candidates.subnamespaces)
@place.parent_option
@_to_option
@_dry_run_option
@flags.takes_wait(timeout="10m")
def convert_subnamespace(
    target: Target, *, child: str, namespace: str, to: str, dry_run: bool, seconds: int | None
) -> None:
    r"""Give a subnamespace a control plane of its own, or take it back to the API server of the host; its pods run on.

    Of a Subtenant, only its own owners and administrators see what would move.

    \b
      tenantry sub convert web -n acme --dry-run
      tenantry sub convert web -n acme --wait
      tenantry sub convert web -n acme --to shared --dry-run
    """
    parent = place.parent(target, namespace)
    asked = ConversionRequest(kind=Subnamespace, name=child, namespace=parent, choice=ControlPlaneChoice(to))
    _convert(target, asked, dry_run=dry_run, seconds=seconds)


def _convert(target: Target, asked: ConversionRequest, *, dry_run: bool, seconds: int | None) -> None:
    if not dry_run and session.run(target, lambda client: _take_back(client, asked)):
        return
    if not dry_run:
        controlplane.prepare(target, asked.choice)
    try:
        plan = session.run(target, lambda client: _plan(client, asked))
    except Forbidden:
        if dry_run:
            raise
        plan = None
        output.talk(f"you may not list what is in {asked.told}: the operator checks whether it can move")
    if dry_run and plan is not None:
        rows = [(each.kind, each.name, str(each.fate), each.reason) for each in plan.objects]
        if rows:
            output.show(output.table(_HEADERS, rows))
        else:
            output.talk(f"{asked.told} can be converted: it has no objects that have to move")
        if plan.refusal:
            sys.exit(CANNOT_MOVE)
        return
    if plan is not None and plan.refusal:
        raise TenantryError(f"{asked.told} {plan.refusal}; --dry-run lists all of it")
    session.run(target, lambda client: _request(client, asked, seconds))


async def _plan(client: Client, asked: ConversionRequest) -> ConversionPlan:
    import datetime as dt

    from tenantry.controllers.conversion.scope import ConversionScope
    from tenantry.world.leases import with_lease

    found = await asked.read(client)
    if found.spec.isolation.control_plane is asked.choice and not _is_on_its_way(found):
        raise InputError(f"{asked.told} has isolation.controlPlane {asked.choice} already")
    if isinstance(found, Tenant):
        is_suspended = with_lease(found, dt.datetime.now(dt.UTC)).spec.suspended
    elif not found.status.namespace:
        raise InputError(f"{asked.told} has no namespace yet: nothing can move")
    else:
        # Owners of a Subnamespace may not read the Tenant.
        is_suspended = SUSPENDED in (await client.get(Namespace, found.status.namespace)).metadata.labels
    scope = ConversionScope(owner=found, is_suspended=is_suspended)
    return await (_plan_in if asked.choice is ControlPlaneChoice.VIRTUAL else _plan_out)(client, scope)


def _is_on_its_way(found: Tenant | Subnamespace) -> bool:
    journal = found.status.conversion
    return isinstance(journal, Conversion) and journal.step in UNDONE_BY_SPEC


async def _plan_in(client: Client, scope: ConversionScope) -> ConversionPlan:
    from tenantry.controllers.conversion import objects, sides
    from tenantry.controllers.conversion.plan import plan
    from tenantry.engine.reader import Reader

    name = scope.namespace
    host = await sides.listed(Reader(client), objects.EVERY, name)
    return plan(scope, host, await client.list(Subnamespace, namespace=name))


async def _plan_out(client: Client, scope: ConversionScope) -> ConversionPlan:
    import tempfile
    from pathlib import Path

    from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
    from tenantry.cli.vcp import read_kubeconfig
    from tenantry.controllers.conversion import inventory, objects, outplan, returns
    from tenantry.engine.reader import Reader
    from tenantry.hosting.placement import RESPONSE_BYTES
    from tenantry.kube import kubeconfig
    from tenantry.kube.client import Client as InsideClient
    from tenantry.mirror.profile import Profile
    from tenantry.mirror.shapes import items

    name, plane_name = scope.namespace, scope.owner.metadata.name
    plane = await client.get(VirtualControlPlane, plane_name, name)
    profile = Profile(owner_uid=plane.metadata.uid, namespace=name, prefix=PREFIX)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(await read_kubeconfig(client, plane_name, name))
        # A tenant may route kinds inside to programs of its own.
        connection = msgspec.structs.replace(kubeconfig.load([path]), max_bytes=RESPONSE_BYTES)
    children = {each.metadata.name: each for each in await client.list(Subnamespace, namespace=name)}
    async with InsideClient(connection) as inside_client:
        inside = Reader(inside_client)
        obstacles = await inventory.obstacles(inside, name)
        found = await returns.listed_sides(
            profile, Reader(client), inside, children, lambda child: child.status.namespace, is_whole=True
        )
    data = msgspec.json.decode(await client.request("GET", wire.path(objects.CLUSTER_ROLES, "", OWNER_ROLE)))
    rules = items(data, "rules")
    return outplan.plan(scope, found.root, obstacles, rules, others=found.others, children=children)


async def _request(client: Client, asked: ConversionRequest, seconds: int | None) -> None:
    await _write(client, asked)
    output.talk(f"{asked.told} is being converted: status.conversion reports the progress")
    if seconds is None:
        return
    condition = ConversionEnded(asked.choice)
    selection = ObjectSelection(asked.kind, (asked.name,), asked.namespace)
    await wait_for_all(client, [selection], condition, seconds=seconds, quiet=True)
    journal = condition.journal
    if journal is not None and journal.step is ConversionStep.REFUSED:
        raise TenantryError(f"{asked.told} is not converted: {journal.message}")
    is_virtual = asked.choice is ControlPlaneChoice.VIRTUAL
    told = "has a control plane of its own" if is_virtual else "shares the API server of the host"
    output.talk(f"{asked.told} {told}")


async def _take_back(client: Client, asked: ConversionRequest) -> bool:
    """Undo a conversion to the other choice that has not begun to move; return whether there is one."""
    found = await asked.read(client)
    journal = found.status.conversion
    if found.spec.isolation.control_plane is asked.choice or not _is_on_its_way(found):
        return False
    if not isinstance(journal, Conversion) or journal.to is asked.choice:
        return False
    await _write(client, asked)
    output.talk(f"{asked.told}: the conversion is undone")
    return True


async def _write(client: Client, asked: ConversionRequest) -> None:
    body: Json = {"spec": {"isolation": {"controlPlane": asked.choice.value}}}
    await client.merge_patch(asked.kind.resource, asked.namespace, asked.name, body)
