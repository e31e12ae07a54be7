"""`tenantry explain who-can`: who may do something in a namespace, by which binding and role."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, place, session
from tenantry.cli.explain.denied import user_option
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.access import AccessReport

HEADERS = ("WHO", "BINDING", "ROLE", "FROM")


@click.command("who-can")
@takes_target
@click.argument("verb")
@click.argument("resource")
@click.argument("object_name", required=False, default="", metavar="[NAME]")
@place.takes_namespace("Namespace (default: the namespace of the context).")
@user_option
@output.output_option("json")
def who_can(
    target: Target, *, verb: str, resource: str, object_name: str, namespace: str, user: str, form: str | None
) -> None:
    r"""List the users, groups and service accounts that may do something in a namespace, by which binding and role.

    A binding that is inherited from a namespace above names that namespace. Notes name what you may not read.

    \b
      tenantry explain who-can get secrets -n acme
      tenantry explain who-can delete deployments.apps web -n acme
    """
    if not re.fullmatch(r"[a-z]+|\*", verb):
        raise InputError(f"{verb!r} must be a verb, as in get, list or create")
    where = place.parent(target, namespace)

    async def work(client: Client) -> AccessReport:
        from tenantry.views import access
        from tenantry.views.acting import acting_as

        async with acting_as(client, user, ()) as requester:
            return await access.who_can(requester.client, verb, resource, object_name, where)

    report = session.run(target, work)
    if form:
        output.write(output.to_json(report))
    else:
        output.show(*_lines(report))


def _lines(report: AccessReport) -> list[Part]:
    rows = [
        (
            f"{each.subject}{' (owner)' if each.is_owner else ''}",
            f"{each.binding.kind} {each.binding.name}",
            f"{each.role.kind} {each.role.name}",
            output.cell("the whole cluster" if each.is_cluster_wide else each.inherited_from),
        )
        for each in report.holders
    ]
    table: Part = output.table(HEADERS, rows) if rows else "no user, group or service account may"
    return [table, *(f"note: {note}" for note in report.notes)]
