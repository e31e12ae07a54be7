"""`tenantry tenant`: makes tenants from flags, suspends them and lets them go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ConditionStatus, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Isolation, NetworkIsolation, Tenant, TenantQuota, TenantSpec
from tenantry.cli import complete, durations, kinds, output, refusals, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import Goal, parse_goal, wait_for_all
from tenantry.world.validation import validate_tenant

if TYPE_CHECKING:
    from tenantry.kube.client import Client

Json = dict[str, Any]


@click.group()
def tenant() -> None:
    """Make, suspend and resume tenants."""


_wait = click.option("--wait", "waits", is_flag=True, help="Wait until it is so.")
_timeout = click.option(
    "--timeout", default="60s", show_default=True, type=durations.DURATION, help="With --wait: as in 30s or 5m."
)


@tenant.command()
@takes_target
@click.argument("tenant_name", metavar="NAME")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    required=True,
    metavar="[KIND:]NAME",
    help="Who owns it: ada, User:ada, Group:devs or ServiceAccount:NAMESPACE/NAME. May be repeated.",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="KEY=QUANTITY,...",
    help="What it may use in all, as in cpu=4,memory=8Gi,pods=50. May be repeated.",
)
@click.option(
    "--network",
    type=click.Choice([mode.value for mode in NetworkIsolation], case_sensitive=False),
    default=NetworkIsolation.ISOLATED.value,
    show_default=True,
    help="How far its pods are from everybody else's.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be made (YAML where -o says nothing else).")
@_wait
@_timeout
@output.output_option("json", "yaml", "name")
def create(
    target: Target,
    *,
    tenant_name: str,
    owners: tuple[str, ...],
    quotas: tuple[str, ...],
    network: str,
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
        owners=tuple(parse_owner(owner) for owner in owners),
        quota=TenantQuota(hard=parse_quota(quotas)),
        isolation=Isolation(network=NetworkIsolation(network)),
    )
    wanted = Tenant(metadata=ObjectMeta(name=tenant_name), spec=spec)
    problems = validate_tenant(wanted)
    if problems:
        raise InputError(refusals.summary(f"Tenant {tenant_name!r}", problems))
    if dry_run:
        _print(whole(wanted), form or "yaml")
        return
    made = session.run(target, lambda client: _create(client, wanted, seconds=timeout if waits else None))
    if form:
        _print(made, form)


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
@_wait
@_timeout
def suspend(target: Target, *, names: tuple[str, ...], waits: bool, timeout: int) -> None:
    """Close tenants: nothing new can be made, nobody but administrators gets in, nothing is lost."""
    goal = Goal(reasons.SUSPENDED)
    _switch(target, names, suspended=True, goal=goal, seconds=timeout if waits else None)


@tenant.command()
@takes_target
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete.tenants)
@_wait
@_timeout
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


def whole(value: Tenant) -> Json:
    """Return a tenant as a person writes it, with its apiVersion and kind."""
    resource = value.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(value)}


def _print(value: Json, form: str) -> None:
    if form == "name":
        output.write(kinds.full_name(Tenant, value["metadata"]["name"]))
    else:
        output.print_objects([value], form, single=True)


def parse_owner(text: str) -> Owner:
    """Return the owner that `--owner` names: a User where it says no kind.

    A prefix that is no kind belongs to the name: identity providers give names such as oidc:ada.

    Raises:
        InputError: The kind has no name after it, or a ServiceAccount no namespace.
    """
    prefix, colon, rest = text.partition(":")
    kind = next((kind for kind in OwnerKind if colon and kind.lower() == prefix.lower()), None)
    if kind is None:
        kind, rest = OwnerKind.USER, text
    if not rest:
        raise InputError(f"--owner {text!r} must have a name, as in User:ada, Group:devs or ServiceAccount:ci/deployer")
    if kind is not OwnerKind.SERVICE_ACCOUNT:
        return Owner(kind=kind, name=rest)
    namespace, slash, name = rest.partition("/")
    if not slash or not namespace or not name:
        raise InputError(f"--owner {text!r} must name the service account's namespace: ServiceAccount:NAMESPACE/NAME")
    return Owner(kind=kind, name=name, namespace=namespace)


def parse_quota(texts: Sequence[str]) -> dict[str, int | str]:
    """Return the quota of `--quota`; what the keys and quantities must be is told by the validation of the tenant.

    Raises:
        InputError: A part is not KEY=QUANTITY, or a key is given twice.
    """
    hard: dict[str, int | str] = {}
    for text in texts:
        for part in text.split(","):
            key, equals, value = part.strip().partition("=")
            if not equals or not key or not value:
                raise InputError(f"--quota {text!r}: {part!r} must be KEY=QUANTITY, as in cpu=4,memory=8Gi")
            if key in hard:
                raise InputError(f"--quota gives {key!r} twice; keep one")
            hard[key] = value
    return hard
