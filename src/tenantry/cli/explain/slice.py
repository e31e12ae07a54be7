"""`tenantry explain slice`: why a claim has its nodes, and why each other node is not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.cli import output, place, session
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.explain.slices import SliceExplanation


@click.command("slice")
@takes_target
@click.argument("claim", metavar="NAME", type=NAMESPACED_NAME)
@place.takes_namespace("Namespace of the claim (default: the namespace of the context).")
@output.output_option("json")
def slice_(target: Target, *, claim: str, namespace: str, form: str | None) -> None:
    r"""Explain why a claim has its nodes, what it lacks, and why each other node is not taken.

    The command reads all nodes and pods, so it needs an administrator's credentials.

    \b
      tenantry explain slice fast -n acme
    """
    where = place.parent(target, namespace)

    async def work(client: Client) -> SliceExplanation:
        from tenantry.views.explain import slices

        return await slices.explain(client, claim, where)

    found = session.run(target, work)
    if form:
        output.write(output.to_json(found))
        return
    for note in found.notes:
        output.talk(note)
    output.show(*_lines(found))


def _lines(found: SliceExplanation) -> list[Part]:
    lines: list[Part] = [f"{found.claim} is {found.state}", f"has: {', '.join(found.has) or 'no nodes'}"]
    if found.message:
        lines.append(f"reports: {found.message}")
    if found.would_take:
        lines.append(f"would take: {', '.join(found.would_take)}")
    if found.short:
        lines.append(f"lacks: {found.short}")
    if found.unapproved:
        lines.append(f"not approved: {', '.join(found.unapproved)}; an administrator runs `tenantry slice approve`")
    return [*lines, "", output.table(("NODE", "NOT TAKEN BECAUSE"), list(found.refused.items()))]
