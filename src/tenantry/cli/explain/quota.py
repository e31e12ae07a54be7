"""`tenantry explain quota`: whether more fits into a namespace, which ancestor is short, and what to raise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import flags, output, session
from tenantry.cli.completion import candidates
from tenantry.cli.target import Target, takes_target
from tenantry.world.quota import normal

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.explain.quota import QuotaExplanation

DOES_NOT_FIT = 1
"""The exit code if something that is wanted does not fit now."""

HEADERS = ("NAMESPACE", "KEY", "HARD", "USED", "FREE", "NEEDED", "SHORT")


@click.command()
@takes_target
@click.argument("place", metavar="TENANT/NAMESPACE", shell_complete=candidates.tenants)
@click.option(
    "--want",
    "wants",
    multiple=True,
    required=True,
    metavar="KEY=QUANTITY,...",
    help="Quantities to add, as in cpu=2,pods=5.",
)
@output.output_option("json")
def quota(target: Target, *, place: str, wants: tuple[str, ...], form: str | None) -> None:
    r"""Show whether more fits into the quota of a tenant's namespace; if not, which ancestor is short by how much.

    NAMESPACE may also be the name of a Subnamespace that occurs once in the tenant; TENANT alone means its core
    namespace. An owner sees the owner's own namespaces. Exit code: 0 everything fits now, 1 something does not, more
    than 1 an error.

    \b
      tenantry explain quota acme/web --want cpu=2,memory=4Gi
    """
    tenant, slash, namespace = place.partition("/")
    if not tenant or (slash and not namespace):
        raise InputError(f"{place!r} must be TENANT/NAMESPACE, as in acme/web-03b858802008a32a")
    want = normal(flags.parse_quota(wants, "--want"))

    async def work(client: Client) -> QuotaExplanation:
        from tenantry.views.explain import quota as view

        # A tenant's core namespace has the tenant's name.
        return await view.explain(client, tenant, namespace or tenant, want)

    found = session.run(target, work)
    if form:
        output.write(output.to_json({"tenant": found.tenant, "namespace": found.namespace, "keys": found.keys}))
    else:
        output.show(*lines(found))
    if not found.fits:
        sys.exit(DOES_NOT_FIT)


def lines(found: QuotaExplanation) -> list[Part]:
    """Return a table of the namespaces that were compared, and the verdict on each key."""
    rows = [
        (level.namespace, answer.key, level.hard, level.used, level.free, level.needed, level.short)
        for answer in found.keys
        for level in answer.levels
    ]
    table: list[Part] = [output.table(HEADERS, rows), ""] if rows else []
    return [*table, *(line for answer in found.keys for line in found.verdict(answer))]
