"""`tenantry explain who-can`: who may do something in a namespace, by which binding and role."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, place, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.explain.access import Access
    from tenantry.kube.client import Client

HEADERS = ("WHO", "BINDING", "ROLE", "FROM")


@click.command("who-can")
@takes_target
@click.argument("verb")
@click.argument("resource")
@click.argument("object_name", required=False, default="", metavar="[NAME]")
@place.takes_namespace("Where; the context's where it names one.")
@click.option("--as", "user", default="", metavar="USER", help="Asked as this user.  [default: with these credentials]")
@output.output_option("json")
def who_can(
    target: Target, *, verb: str, resource: str, object_name: str, namespace: str, user: str, form: str | None
) -> None:
    r"""Tell who may do something in a namespace: users, groups and service accounts, by which binding and role.

    Bindings that come from a namespace above say from which. What you may not read is said to be left out.

    \b
      tenantry explain who-can get secrets -n acme
      tenantry explain who-can delete deployments.apps web -n acme
    """
    if not re.fullmatch(r"[a-z]+|\*", verb):
        raise InputError(f"{verb!r} must be a verb, as in get, list or create")
    where = place.parent(target, namespace)

    async def work(client: Client) -> Access:
        from tenantry.cli.explain import access
        from tenantry.cli.explain.reads import asking

        async with asking(client, user, ()) as asker:
            return await access.who_can(asker.client, verb, resource, object_name, where)

    found = session.run(target, work)
    if form:
        output.write(output.to_json(found))
    else:
        output.write_lines(lines(found))


def lines(access: Access) -> list[str]:
    """Return the table of those who may, and what could not be read."""
    rows = [
        (
            f"{each.subject}{' (owner)' if each.is_owner else ''}",
            f"{each.binding.kind} {each.binding.name}",
            f"{each.role.kind} {each.role.name}",
            output.cell("the whole cluster" if each.is_cluster_wide else each.inherited_from),
        )
        for each in access.holders
    ]
    found = output.table(HEADERS, rows) if rows else ["nobody may"]
    return [*found, *(f"note: {note}" for note in access.notes)]
