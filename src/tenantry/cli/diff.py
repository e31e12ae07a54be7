"""`tenantry diff`: the operator's plan without the write."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import Forbidden, InputError
from tenantry.cli import output, session
from tenantry.cli.completion import candidates
from tenantry.cli.paths import TENANT_NAME
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.engine.preview import Preview
    from tenantry.kube.client import Client
    from tenantry.views.drift.changes import TenantDrift

DIFFERENCES = 1
"""The exit code when something differs, as that of diff and kubectl diff."""


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", type=TENANT_NAME, shell_complete=candidates.tenants)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE|FOLDER|-",
    help="File with Tenants, Subnamespaces, DedicatedClusters and ClusterTemplates, or folder of such files; - is"
    " stdin. May be repeated.",
)
@output.output_option("json")
def diff(target: Target, *, names: tuple[str, ...], files: tuple[str, ...], form: str | None) -> None:
    r"""Print what the operator would change, without changing it.

    Without -f, this is the difference between the cluster and the specs of all tenants, or of the named ones. With -f,
    it is the change if the objects of the file were applied. Values of Secrets are hidden. Exit
    code: 0 nothing would change, 1 something would, more than 1 an error.

    \b
      tenantry diff
      tenantry diff -f tenants.yaml
    """
    if names and files:
        raise InputError("give either names of tenants or -f, not both")
    from tenantry.cli.documents import read_manifests
    from tenantry.views.drift import changes, own

    manifests = read_manifests(files) if files else None

    async def find(client: Client) -> list[TenantDrift]:
        try:
            return await changes.find(client, names, manifests)
        except Forbidden as error:
            found = await own.find(client, manifests, error)
        output.talk(own.NOTE)
        return found

    found = session.run(target, find)
    if form:
        output.write(output.to_json([_as_json(each) for each in found]))
    else:
        for each in found:
            output.write_lines(line for preview in each.changes for line in unified(preview))
    for each in found:
        for blocked in each.blocked:
            output.talk(f"tenant {each.tenant!r}: {blocked.reason}: {blocked.message}")
    if any(each.changes or each.blocked for each in found):
        sys.exit(DIFFERENCES)


def unified(preview: Preview) -> list[str]:
    """Return the unified diff of an object's YAML."""
    before, after = (_lines(value) for value in (preview.before, preview.after))
    place = f"{preview.kind}/{preview.key}"
    names = ("/dev/null" if not before else f"is/{place}", "/dev/null" if not after else f"would-be/{place}")
    lines = list(difflib.unified_diff(before, after, *names, lineterm=""))
    if not output.has_color():
        return lines
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [click.style(line, fg=colors.get(line[:1])) for line in lines]


def _lines(value: object) -> list[str]:
    return [] if value is None else output.to_yaml([value]).splitlines()


def _as_json(found: TenantDrift) -> dict[str, object]:
    return {
        "tenant": found.tenant,
        "changes": found.changes,
        "blocked": [{"reason": each.reason, "message": each.message} for each in found.blocked],
    }
