"""`tenantry quota`: the division of a tenant's quota over its tree, and temporary adjustments of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem
from typing_extensions import override

from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import OnShortage, Tenant
from tenantry.api.tenantresourcequota import (
    Adjustment,
    ClaimKind,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
)
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, kinds, output, place, refusals, session
from tenantry.cli.completion import candidates
from tenantry.cli.groupflags import leading_flags
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import TENANT_NAME, TENANT_OR_PATH
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all
from tenantry.world import quantity
from tenantry.world import quota as keys
from tenantry.world.validation import validate_adjustment

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.quotas import QuotaView, ShareView

_NOUNS = {
    ClaimKind.SLICE_CLAIM: "claim",
    ClaimKind.VIRTUAL_CONTROL_PLANE: "control plane",
    ClaimKind.PEER_CLUSTER: "share at peer",
}
SHOW = "show"
ATTEMPTS = 5


class _Group(click.Group):
    """A group that is a command, too: `tenantry quota acme` means `tenantry quota show acme`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        word = next(iter(args[leading_flags(args) :]), None)
        is_ours = word is not None and (word in self.commands or word in ctx.help_option_names)
        # During completion, an empty line may still become a command or a tenant.
        if not is_ours and (args or not ctx.resilient_parsing):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        tenants = candidates.names(ctx, kinds.find_kind("tenant"), incomplete)
        return [*super().shell_complete(ctx, incomplete), *(CompletionItem(name) for name in tenants)]


@click.group(cls=_Group, subcommand_metavar="[TENANT]... | COMMAND [ARGS]...")
def quota() -> None:
    r"""Show how the quotas of tenants are divided over their namespaces, and adjust them for a limited time.

    The default COMMAND is `show`. For a permanent change, edit the spec of the Tenant or the Subnamespace.

    \b
      tenantry quota
      tenantry quota acme -o json
      tenantry quota adjust acme sale --by cpu=+2,memory=-1Gi --for 24h
    """


# -- show -----------------------------------------------------------------------------------------


@quota.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", type=TENANT_OR_PATH, shell_complete=candidates.tenants)
@place.takes_namespace("Only show this namespace and the namespaces below it.")
@output.output_option("json")
def show(target: Target, *, names: tuple[str, ...], namespace: str, form: str | None) -> None:
    r"""Print what each namespace with all below it is assigned and uses, and what is free.

    OWN FREE can be used in the namespace itself, or granted to another child. The share of a claim of nodes is used by
    the namespaces whose pods run on these nodes, that of a control plane by its process. HELD is what a peer may have
    of the quota: it keeps that while it does not answer. GIVEN is what it should have.

    \b
      tenantry quota show acme
      tenantry quota show acme/web
    """
    if names and namespace:
        raise InputError("give either names of tenants or --namespace, not both")

    async def read(client: Client) -> list[QuotaView]:
        from tenantry.views import owned, quotas

        if namespace:
            part, is_partial = await quotas.read_below(client, namespace)
            if is_partial:
                output.talk(owned.NOTE)
            return [part]
        found = await owned.read(client, names)
        if found.is_partial:
            output.talk(owned.NOTE)
        return quotas.quotas(found)

    views = session.run(target, read)
    if form:
        output.write(output.to_json({"tenants": views}))
        return
    shown = lines(views, datetime.now(UTC))
    if not shown:
        output.talk("no tenant has a quota" if views else "no tenants; make one with `tenantry tenant create`")
    output.show(*shown)
    for view in views:
        if view.omitted:
            output.talk(f"tenant {view.tenant!r}: {view.omitted} more namespaces, not listed")


def lines(views: Sequence[QuotaView], now: datetime) -> list[Part]:
    """Return the table of the shares, and the table of the adjustments if there are any."""
    rows: list[tuple[str, ...]] = []
    for view in views:
        for share in view.tree:
            name = "  " * share.depth + share.namespace
            for key, amount in sorted(share.assigned.items()):
                rest = (output.cell(part.get(key)) for part in (share.used, share.free, share.own_free))
                rows.append((name, key, amount, *rest))
                name = ""
            rows += _claims(share)
    changes = [
        (view.tenant, each.name, _signed(each.resources), durations.expiry(each.expires_at, now))
        for view in views
        for each in view.adjustments
    ]
    headers = ("NAMESPACE", "KEY", "ASSIGNED", "USED", "FREE", "OWN FREE")
    tables = [
        (headers, rows),
        (("NAMESPACE", "PEER", "KEY", "HELD", "GIVEN", "UNREACHABLE"), _remote(views, now)),
        (("TENANT", "ADJUSTMENT", "BY", "EXPIRES"), changes),
    ]
    return output.paragraphs([output.table(*each)] for each in tables if each[1])


def _claims(share: ShareView) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for claim in share.claims:
        name = "  " * (share.depth + 1) + f"{_NOUNS[claim.kind]} {claim.claim}"
        for key, amount in sorted(claim.assigned.items()):
            rows.append((name, key, amount, *[output.cell(None)] * 3))
            name = ""
    return rows


def _remote(views: Sequence[QuotaView], now: datetime) -> list[tuple[str, ...]]:
    """Return what each peer holds, and for how long it has not answered."""
    rows: list[tuple[str, ...]] = []
    for each in (each for view in views for each in view.clusters):
        silent = durations.age(each.unreachable_since, now) if each.unreachable_since else None
        about = (each.namespace, each.peer)
        for key, amount in sorted(each.held.items()):
            rows.append((*about, key, amount, output.cell(each.given.get(key, "0")), output.cell(silent)))
            about = ("", "")
    return rows


def _signed(resources: Mapping[str, str | int]) -> str:
    return ",".join(f"{key}={'' if str(by).startswith('-') else '+'}{by}" for key, by in sorted(resources.items()))


# -- adjust ---------------------------------------------------------------------------------------


@quota.command()
@takes_target
@click.argument("tenant", metavar="TENANT", type=TENANT_NAME, shell_complete=candidates.tenants)
@click.argument("adjustment", metavar="NAME")
@click.option(
    "--by",
    "amounts",
    multiple=True,
    required=True,
    metavar="KEY=±QUANTITY,...",
    help="Difference, as in cpu=+2,memory=-1Gi. May be repeated.",
)
@click.option(
    "--for",
    "until",
    required=True,
    metavar="DURATION|TIME|never",
    help="End: a duration from now such as 24h, a time such as 2027-01-31T18:00:00Z, or never.",
)
@flags.takes_wait()
def adjust(
    target: Target, *, tenant: str, adjustment: str, amounts: tuple[str, ...], until: str, seconds: int | None
) -> None:
    r"""Adjust a tenant's quota for a limited time; an adjustment of the same NAME is replaced.

    \b
      tenantry quota adjust acme sale --by cpu=+2,memory=-1Gi --for 24h
    """
    given = flags.parse_quota(amounts, "--by")
    wanted = Adjustment(name=adjustment, resources=given, expires_at=flags.parse_renewal(until) or "")
    problems = validate_adjustment(wanted, "adjustment")
    if problems:
        raise InputError(refusals.summary(f"Adjustment {adjustment!r}", problems))
    # In the spelling of the quota itself, so that keys and amounts compare equal.
    resources: dict[str, int | str] = {keys.normal_key(key): quantity.canonical(by) for key, by in given.items()}
    wanted = msgspec.structs.replace(wanted, resources=resources)

    async def work(client: Client) -> None:
        await _check_fit(client, await _check_keys(client, tenant, resources), wanted)
        before = await _edit(client, tenant, adjustment, wanted)
        verb = "adjusted" if before is None else "adjusted anew"
        told = f"{kinds.full_name(TenantResourceQuota, tenant)} {verb} by {adjustment!r}: {_signed(resources)}"
        output.talk(f"{told} until {wanted.expires_at}" if wanted.expires_at else told)
        if seconds is not None:
            await _wait(client, tenant, seconds)

    session.run(target, work)


@quota.command()
@takes_target
@click.argument("tenant", metavar="TENANT", type=TENANT_NAME, shell_complete=candidates.tenants)
@click.argument("adjustment", metavar="NAME")
@flags.takes_wait()
def unadjust(target: Target, *, tenant: str, adjustment: str, seconds: int | None) -> None:
    """Remove an adjustment of a tenant's quota before it ends."""

    async def work(client: Client) -> None:
        await _edit(client, tenant, adjustment, None)
        told = kinds.full_name(TenantResourceQuota, tenant)
        output.talk(f"{told} no longer adjusted by {adjustment!r}")
        if seconds is not None:
            await _wait(client, tenant, seconds)

    session.run(target, work)


async def _wait(client: Client, tenant: str, seconds: int) -> None:
    await wait_for_all(client, [ObjectSelection(TenantResourceQuota, (tenant,))], seconds=seconds, stalls=True)


async def _check_keys(client: Client, tenant: str, resources: Mapping[str, int | str]) -> Tenant:
    """Reject keys that the tenant's quota does not have; return the tenant.

    Raises:
        NotFound: There is no such tenant.
        InputError: A key is not in its quota.
    """
    live = await client.get(Tenant, tenant)
    limited = {keys.normal_key(key) for key in live.spec.quota.hard}
    wrong = sorted(set(resources) - limited)
    if wrong:
        has = f"it has {', '.join(sorted(limited))}" if limited else "it has no quota"
        raise InputError(
            f"--by {wrong[0]!r} is not in the quota of tenant {tenant!r} ({has}): only what is limited can be adjusted;"
            " set it in the Tenant's spec.quota.hard first"
        )
    return live


async def _check_fit(client: Client, tenant: Tenant, wanted: Adjustment) -> None:
    """Reject an adjustment that takes away what subnamespaces hold.

    Raises:
        InputError: It does, and the tenant's quota takes nothing back by itself.
    """
    if tenant.spec.quota.on_shortage is OnShortage.RECLAIM:
        return
    try:
        live = await client.get(TenantResourceQuota, tenant.metadata.name)
    except NotFound:
        return  # the quota is not divided yet
    from tenantry.views.quotas import shortages

    short = shortages(tenant, live, wanted, datetime.now(UTC))
    if short:
        raise InputError(
            f"--by does not fit the quota of tenant {tenant.metadata.name!r}: {shortened(short, separator='; ')}"
        )


async def _edit(client: Client, tenant: str, name: str, wanted: Adjustment | None) -> Adjustment | None:
    """Replace or remove the adjustment of a name, and return the one before.

    Raises:
        InputError: There is no adjustment to remove.
        Conflict: Other clients kept writing in between.
    """
    for _ in range(ATTEMPTS):
        try:
            live = await client.get(TenantResourceQuota, tenant)
        except NotFound:
            live = None
        there = live.spec.adjustments if live is not None else ()
        before = next((each for each in there if each.name == name), None)
        if before is None and wanted is None:
            has = f"it has {', '.join(sorted(each.name for each in there))}" if there else "it has none"
            raise InputError(f"tenant {tenant!r} has no adjustment {name!r}: {has}")
        adjustments = tuple(each for each in there if each.name != name) + ((wanted,) if wanted is not None else ())
        try:
            if live is None:
                spec = TenantResourceQuotaSpec(adjustments=adjustments)
                await client.create(TenantResourceQuota(metadata=ObjectMeta(name=tenant), spec=spec))
            else:
                # A merge patch replaces the whole list: the version guards changes by other clients in between.
                version = {"resourceVersion": live.metadata.resource_version}
                patch = {"metadata": version, "spec": {"adjustments": msgspec.to_builtins(adjustments)}}
                await client.merge_patch(TenantResourceQuota.resource, "", tenant, patch)
        except (AlreadyExists, Conflict):
            continue
        return before
    raise Conflict(f"the TenantResourceQuota {tenant!r} is written by others all the time; try again", status=409)
