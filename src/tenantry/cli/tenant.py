"""`tenantry tenant`: creates tenants from flags, suspends, resumes and renews them, adds and removes owners."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec
from msgspec import UNSET
from typing_extensions import Unpack

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ConditionStatus, Json, ObjectMeta
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import MAX_NODES, OwnNodes
from tenantry.api.tenant import (
    Isolation,
    NamespaceRules,
    NetworkIsolation,
    NodesChoice,
    Tenant,
    TenantQuota,
    TenantSpec,
)
from tenantry.cli import controlplane, flags, kinds, nouns, output, ownership, removal, session
from tenantry.cli.cluster import sizing
from tenantry.cli.completion import candidates
from tenantry.cli.convert import convert_tenant
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import TENANT_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.world.validation import validate_tenant

if TYPE_CHECKING:
    from tenantry.api.owner import Owner
    from tenantry.kube.client import Client


@click.group()
def tenant() -> None:
    """Create, suspend, resume, renew and convert tenants, add and remove owners."""


@tenant.command()
@takes_target
@click.argument("tenant_name", metavar="NAME")
@flags.owner_option("An owner: ada, User:ada, Group:devs or ServiceAccount:NAMESPACE/NAME.", required=True)
@flags.quota_option("Quota of the whole tenant, as in cpu=4,memory=8Gi,pods=50.")
@flags.choice_option("--network", NetworkIsolation.ISOLATED, "Network isolation from other tenants.")
@click.option(
    "--runtime",
    type=click.Choice([each.value for each in RuntimeChoice], case_sensitive=False),
    help="Runtime of the pods (default: the cluster's sandbox if it has one).",
)
@flags.control_plane_option
@click.option(
    "--nodes",
    type=click.IntRange(0, MAX_NODES),
    default=1,
    help="Number of nodes of the cluster of --control-plane Dedicated (default: 1).",
)
@click.option(
    "--own-nodes",
    type=click.IntRange(min=0, max=MAX_NODES),
    default=0,
    help="Number of nodes that only this tenant uses; 0: its pods run on the nodes of all tenants.",
)
@click.option(
    "--max-subnamespaces",
    type=click.IntRange(min=0),
    default=0,
    help="Most subnamespaces in the whole tree; 0: no limit.",
)
@click.option("--max-depth", type=click.IntRange(min=0), default=0, help="Most levels of subnamespaces; 0: no limit.")
@flags.expiry_option("Suspend the tenant")
@flags.dry_run_option
# As `vcp create`: a control plane of its own has processes to start.
@flags.takes_wait(timeout="2m")
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def create(
    target: Target,
    *,
    tenant_name: str,
    owners: tuple[str, ...],
    quotas: tuple[str, ...],
    network: str,
    runtime: str | None,
    control_plane: str,
    nodes: int,
    own_nodes: int,
    max_subnamespaces: int,
    max_depth: int,
    expires: str,
    dry_run: bool,
    seconds: int | None,
    form: str | None,
) -> None:
    r"""Create a tenant.

    \b
      tenantry tenant create acme --owner ada --quota cpu=4,memory=8Gi --wait
      tenantry tenant create acme --owner Group:devs --dry-run > acme.yaml
      tenantry tenant create lab --owner ada --control-plane virtual --wait
      tenantry tenant create shop --owner zoe --control-plane dedicated --nodes 3 --wait
      tenantry tenant create bank --owner eve --quota cpu=32,memory=64Gi --own-nodes 2 --wait
    """
    spec = TenantSpec(
        owners=tuple(flags.parse_owner(owner) for owner in owners),
        quota=TenantQuota(hard=flags.parse_quota(quotas)),
        isolation=Isolation(
            network=NetworkIsolation(network),
            runtime=RuntimeChoice(runtime) if runtime is not None else UNSET,
            control_plane=ControlPlaneChoice(control_plane),
            nodes=NodesChoice.SLICE if own_nodes else NodesChoice.SHARED,
            slice=OwnNodes(count=own_nodes) if own_nodes else UNSET,
        ),
        namespaces=NamespaceRules(max_count=max_subnamespaces, max_depth=max_depth),
        expires_at=flags.parse_expiry("--expires", expires),
    )
    wanted = Tenant(metadata=ObjectMeta(name=tenant_name), spec=spec)
    more = nodes if nodes != 1 else None
    if more is not None and spec.isolation.control_plane is not ControlPlaneChoice.DEDICATED:
        raise InputError("--nodes needs --control-plane Dedicated; --own-nodes gives a tenant nodes without a cluster")
    problems = validate_tenant(wanted)
    if not problems and not dry_run:
        controlplane.prepare(target, control_plane)
    if more is not None and not problems and dry_run and form != "name":
        both = (wanted, sizing.of_tenant(tenant_name, more))
        output.print_documents([output.whole(each) for each in both], form or "yaml")
        return
    create = functools.partial(_create, seconds=seconds, nodes=more)
    flags.make(target, wanted, problems, create, dry_run=dry_run, form=form)


async def _create(client: Client, wanted: Tenant, *, seconds: int | None, nodes: int | None) -> Json:
    name = wanted.metadata.name
    try:
        await client.get(Namespace, name)
    except (NotFound, Forbidden):
        pass  # if the user may not read it, the operator reports the clash in a condition
    else:
        await _refuse_taken(client, name)
    made: Json = msgspec.json.decode(await client.create(wanted))
    output.talk(f"{kinds.full_name(Tenant, name)} created")
    if nodes is not None:
        await sizing.resize_new(client, name, nodes)
    if seconds is not None:
        await wait_for_all(client, [ObjectSelection(Tenant, (name,))], seconds=seconds)
    return made


async def _refuse_taken(client: Client, name: str) -> NoReturn:
    """Reject the name of an existing namespace; the message never advises to delete what may be a live tenant."""
    try:
        await client.get(Tenant, name)
    except (NotFound, Forbidden):
        raise InputError(
            f"metadata.name: the namespace {name!r} exists already, and the tenant's namespace must have that name;"
            " choose another name for the tenant"
        ) from None
    raise InputError(
        f"metadata.name: the tenant {name!r} exists already; choose another name, or change the existing tenant with"
        f" `tenantry kubectl -- edit tenant {name}`"
    )


@tenant.command()
@takes_target
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", type=TENANT_NAME, shell_complete=candidates.tenants
)
@flags.takes_wait()
def suspend(target: Target, *, names: tuple[str, ...], seconds: int | None) -> None:
    """Suspend tenants: only administrators have access, nothing new can be created, nothing is lost."""
    condition = WaitCondition(reasons.SUSPENDED)
    _switch(target, names, suspended=True, condition=condition, seconds=seconds)


@tenant.command()
@takes_target
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", type=TENANT_NAME, shell_complete=candidates.tenants
)
@flags.takes_wait()
def resume(target: Target, *, names: tuple[str, ...], seconds: int | None) -> None:
    """Resume suspended tenants as they were."""
    condition = WaitCondition(reasons.SUSPENDED, ConditionStatus.FALSE)
    _switch(target, names, suspended=False, condition=condition, seconds=seconds)


def _switch(
    target: Target, names: Sequence[str], *, suspended: bool, condition: WaitCondition, seconds: int | None
) -> None:
    asked = ObjectSelection(Tenant, tuple(dict.fromkeys(names)))

    async def work(client: Client) -> None:
        # If one does not exist, none is changed.
        before = {name: await client.get(Tenant, name) for name in asked.names}
        for name, live in before.items():
            word = "suspended" if suspended else "resumed"
            if live.spec.suspended is suspended:
                output.talk(f"{kinds.full_name(Tenant, name)} is {word} already")
                continue
            await client.merge_patch(Tenant.resource, "", name, {"spec": {"suspended": suspended}})
            output.talk(f"{kinds.full_name(Tenant, name)} {word}")
        if seconds is not None:
            await wait_for_all(client, [asked], condition, seconds=seconds, quiet=True)

    session.run(target, work)


@tenant.command()
@takes_target
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", type=TENANT_NAME, shell_complete=candidates.tenants
)
@flags.renewal_option
def renew(target: Target, *, names: tuple[str, ...], until: str) -> None:
    r"""Change when tenants expire; a tenant that has expired resumes.

    \b
      tenantry tenant renew acme --for 720h
      tenantry tenant renew acme --for never
    """
    expires_at = flags.parse_renewal(until)
    asked = ObjectSelection(Tenant, tuple(dict.fromkeys(names)))
    session.run(target, lambda client: flags.renew(client, asked, expires_at))


@tenant.command("add-owner")
@takes_target
@click.argument("tenant_name", metavar="TENANT", type=TENANT_NAME, shell_complete=candidates.tenants)
@flags.owners_argument
@flags.takes_wait()
def add_owner(target: Target, *, tenant_name: str, added: tuple[Owner, ...], seconds: int | None) -> None:
    r"""Add owners to a tenant; those that it has stay.

    \b
      tenantry tenant add-owner acme bob
      tenantry tenant add-owner acme Group:devs ServiceAccount:ci/deployer --wait
    """
    asked = ObjectSelection(Tenant, (tenant_name,))
    session.run(target, lambda client: ownership.add(client, asked, added, seconds=seconds))


@tenant.command("remove-owner")
@takes_target
@click.argument("tenant_name", metavar="TENANT", type=TENANT_NAME, shell_complete=candidates.tenants)
@removal.removal_options
def remove_owner(target: Target, *, tenant_name: str, **choices: Unpack[removal.Choices]) -> None:
    r"""Remove an owner from a tenant, and end the tokens of ServiceAccounts that this owner may hold.

    The command lists the ServiceAccounts of which the owner could request tokens, those that it created first. It ends
    their tokens by creating them again. Running pods with such a token must be restarted.

    \b
      tenantry tenant remove-owner acme ada
      tenantry tenant remove-owner acme Group:devs --end-tokens --yes
    """
    removal.run(target, ObjectSelection(Tenant, (tenant_name,)), **choices)


tenant.add_command(convert_tenant)
nouns.complete(tenant, nouns.Noun("tenant", "tenant", "tenants", "acme"))
