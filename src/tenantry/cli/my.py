"""`tenantry my`: the user's own tenants, namespaces, quota, requests and rights in one screen."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.paths import TENANT_OR_PATH
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client
    from tenantry.views.mine import MineView, PlaceView

NOTHING = 1


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", type=TENANT_OR_PATH, shell_complete=candidates.tenants)
@place.takes_namespace("Only show this namespace, and the namespaces below it.")
@output.output_option("json", "yaml")
def my(target: Target, *, names: tuple[str, ...], namespace: str, form: str | None) -> None:
    r"""Show your own tenants, namespaces, quota, requests and rights.

    No right is needed that an owner or a requester does not have. Without a name, the command shows the tenant of the
    namespace of your context, and those of your own requests. Exit code: 0 something is shown, 1 you have nothing, 5 a
    named tenant may not be read.

    \b
      tenantry my
      tenantry my acme
      tenantry my acme/web
      tenantry my -n web-d5903d54abcc14f1 -o json
    """
    if names and namespace:
        raise InputError("give either names of tenants or --namespace, not both")
    named = (namespace,) if namespace else names
    context = place.context_namespace(target)

    async def read(client: Client) -> MineView:
        from tenantry.views import mine

        return await mine.read(client, named, context)

    view = session.run(target, read)
    if form:
        output.write(output.to_json(view) if form == "json" else output.to_yaml([view]))
    elif view.places or view.requests:
        output.show(*lines(view, datetime.now(UTC), blocks=output.has_blocks(sys.stdout.encoding)))
    if not view.places:
        output.talk(
            f"no tenant of {view.user!r} is found: name it, as in `tenantry my acme`, or request one with"
            " `tenantry request create tenant NAME --quota cpu=4,memory=8Gi`"
        )
    if not view.places and not view.requests:
        click.get_current_context().exit(NOTHING)


def lines(view: MineView, now: datetime, *, blocks: bool) -> list[Part]:
    """Return the screen.

    Args:
        view: What is the user's.
        now: The time, with an offset.
        blocks: Draw bars as blocks instead of ASCII.
    """
    from tenantry.cli import request

    rows = [request.row(each, now) for each in view.requests]
    return output.paragraphs(
        [
            [f"user {view.user}, groups {', '.join(view.groups) or 'none'}"],
            *([*_drawn(each, blocks=blocks), *_rights(each)] for each in view.places),
            [output.table(request.HEADERS, rows)] if rows else [],
        ]
    )


def _drawn(found: PlaceView, *, blocks: bool) -> list[Part]:
    from tenantry.cli import tree

    if found.summary is not None:
        return [*tree.draw([found.summary], blocks=blocks)]
    return [f"tenant {found.tenant}, of which you may read:", tree.draw_namespace(found.tree, blocks=blocks)]


def _rights(found: PlaceView) -> list[Part]:
    told = [("may", found.may), ("may not", found.may_not)]
    return [f"in {found.namespace} you {word}: {', '.join(rights)}" for word, rights in told if rights]
