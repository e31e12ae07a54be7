"""`tenantry tenant`: makes tenants from flags, suspends them, lets them go on, and renews them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ConditionStatus, ObjectMeta
from tenantry.api.runtime import Runtime
from tenantry.api.tenant import Isolation, NamespaceRules, NetworkIsolation, Tenant, TenantQuota, TenantSpec
from tenantry.cli import complete, flags, kinds, output, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import Goal, parse_goal, wait_for_all
from tenantry.world.validation import validate_tenant

if TYPE_CHECKING:
    from tenantry.kube.client import Client

Json = dict[str, Any]


@click.group()
def tenant() -> None:
    """Make, suspend, resume and renew tenants."""


@tenant.command()
@takes_target
@click.argument("tenant_name", metavar="NAME")
@flags.owner_option("Who owns it: ada, User:ada, Group:devs or ServiceAccount:NAMESPACE/NAME.", required=True)
@flags.quota_option("What it may use in all, as in cpu=4,memory=8Gi,pods=50.")
@flags.choice_option("--network", NetworkIsolation.ISOLATED, "How far its pods are from everybody else's.")
@click.option(
    "--runtime",
    type=click.Choice([each.value for each in Runtime], case_sensitive=False),
    help="Whether its pods run in the cluster's sandbox; left out: where it has one.",
)
@click.option("--max-subnamespaces", type=click.IntRange(min=0), default=0, help="How many, in all; 0: no limit.")
@click.option("--max-depth", type=click.IntRange(min=0), default=0, help="How deep they may be; 0: no limit.")
@click.option(
    "--expires", default="", metavar="DURATION|TIME", help="When it is suspended: 720h, or 2027-01-31T18:00:00Z."
)
@flags.dry_run_option
@flags.wait_option
@flags.timeout_option
@output.output_option("json", "yaml", "name")
def create(
    target: Target,
    *,
    tenant_name: str,
    owners: tuple[str, ...],
    quotas: tuple[str, ...],
    network: str,
    runtime: str | None,
    max_subnamespaces: int,
    max_depth: int,
    expires: str,
    dry_run: bool,
    waits: bool,
    timeout: int,
    form: str | None,
) -> None:
    r"""Make a tenant.

    \b
      tenantry tenant create acme --owner ada --quota cpu=4,memory=8Gi --wait
      tenantry tenant create acme --owner Group:devs --dry-run > acme.yaml
    """
    spec = TenantSpec(
        owners=tuple(flags.parse_owner(owner) for owner in owners),
        quota=TenantQuota(hard=flags.parse_quota(quotas)),
        isolation=Isolation(
            network=NetworkIsolation(network), runtime=Runtime(runtime) if runtime is not None else UNSET
        ),
        namespaces=NamespaceRules(max_count=max_subnamespaces, max_depth=max_depth),
        expires_at=flags.parse_expiry("--expires", expires),
    )
    wanted = Tenant(metadata=ObjectMeta(name=tenant_name), spec=spec)
    create = functools.partial(_create, seconds=timeout if waits else None)
    flags.make(target, wanted, validate_tenant(wanted), create, dry_run=dry_run, form=form)


async def _create(client: Client, wanted: Tenant, *, seconds: int | None) -> Json:
    name = wanted.metadata.name
    try:
        await client.get(Namespace, name)
    except (NotFound, Forbidden):
        pass  # whoever may not look gets the operator's own condition
    else:
        raise InputError(
            f"metadata.name: there is a namespace {name!r} already, and the tenant's own must have that name: choose"
            " another name for the tenant, or delete or rename what is in that namespace"
        )
    made: Json = msgspec.json.decode(await client.create(wanted))
    output.talk(f"{kinds.full_name(Tenant, name)} created")
    if seconds is not None:
        await wait_for_all(client, [Asked(Tenant, (name,))], parse_goal("ready"), seconds=seconds)
    return made


@tenant.command()
@takes_target
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete.tenants)
@flags.wait_option
@flags.timeout_option
def suspend(target: Target, *, names: tuple[str, ...], waits: bool, timeout: int) -> None:
    """Close tenants: nothing new can be made, nobody but administrators gets in, nothing is lost."""
    goal = Goal(reasons.SUSPENDED)
    _switch(target, names, suspended=True, goal=goal, seconds=timeout if waits else None)


@tenant.command()
@takes_target
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete.tenants)
@flags.wait_option
@flags.timeout_option
def resume(target: Target, *, names: tuple[str, ...], waits: bool, timeout: int) -> None:
    """Let suspended tenants go on as they were."""
    goal = Goal(reasons.SUSPENDED, ConditionStatus.FALSE)
    _switch(target, names, suspended=False, goal=goal, seconds=timeout if waits else None)


def _switch(target: Target, names: Sequence[str], *, suspended: bool, goal: Goal, seconds: int | None) -> None:
    asked = Asked(Tenant, tuple(dict.fromkeys(names)))

    async def work(client: Client) -> None:
        # All of them are there, or none is touched.
        before = {name: await client.get(Tenant, name) for name in asked.names}
        for name, live in before.items():
            word = "suspended" if suspended else "resumed"
            if live.spec.suspended is suspended:
                output.talk(f"{kinds.full_name(Tenant, name)} is {word} already")
                continue
            await client.merge_patch(Tenant.resource, "", name, {"spec": {"suspended": suspended}})
            output.talk(f"{kinds.full_name(Tenant, name)} {word}")
        if seconds is not None:
            await wait_for_all(client, [asked], goal, seconds=seconds, reached=lambda _: None)

    session.run(target, work)


@tenant.command()
@takes_target
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete.tenants)
@flags.renewal_option
def renew(target: Target, *, names: tuple[str, ...], until: str) -> None:
    r"""Let tenants last longer, or end sooner; one that has ended goes on.

    \b
      tenantry tenant renew acme --for 720h
      tenantry tenant renew acme --for never
    """
    expires_at = flags.parse_renewal(until)
    asked = Asked(Tenant, tuple(dict.fromkeys(names)))
    session.run(target, lambda client: flags.renew(client, asked, expires_at))
