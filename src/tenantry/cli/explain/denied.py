"""`tenantry explain denied`: what denies an object, who set that, and what would pass."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, place, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.explain.denied import DenialReport

DENIED = 1
"""The exit code if something is denied."""

user_option = click.option(
    "--as", "user", default="", metavar="USER", help="User to ask as (default: the user of these credentials)."
)


@click.command()
@takes_target
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help='Manifests; "-" is stdin.'
)
@place.takes_namespace("Namespace of the objects (default: the one in the manifest, or in the context).")
@user_option
@click.option("--as-group", "groups", multiple=True, metavar="GROUP", help="Group of the user of --as. Repeatable.")
@click.option("--fix", is_flag=True, help="Print manifests that would pass, for those that can be fixed.")
@output.output_option("json")
def denied(
    target: Target,
    *,
    files: tuple[str, ...],
    namespace: str,
    user: str,
    groups: tuple[str, ...],
    fix: bool,
    form: str | None,
) -> None:
    r"""Explain what denies an object: which rule, who set it and where, and what would pass.

    The command checks rights, rules, quotas, suspension and Kubernetes' own validation, for the object and for the pods
    that it would create. It changes nothing: it sends a dry run as the user. Exit code: 0 the object passes, 1 it is
    denied, more than 1 an error.

    \b
      tenantry explain denied -f pod.yaml -n acme --as ada
      tenantry explain denied -f pod.yaml -n acme --fix > fixed.yaml
    """
    from tenantry.cli.documents import documents_in

    if groups and not user:
        raise InputError("--as-group needs --as")
    documents = [document for file in files for document in documents_in(file, "manifests")]
    default = place.context_namespace(target)

    async def work(client: Client) -> list[DenialReport]:
        from tenantry.views.acting import acting_as
        from tenantry.views.explain.denied import DenialExplainer
        from tenantry.views.inside import is_inside

        # Inside a control plane, "default" is a namespace like others.
        place_of_context = default or (place.NOWHERE if await is_inside(client) else "")
        # One explainer for all files: it reads each namespace and each source of rules once.
        async with acting_as(client, user, groups) as requester:
            explainer = DenialExplainer(requester)
            return [
                await explainer.explain(each.where, each.value, namespace=namespace, default=place_of_context)
                for each in documents
            ]

    if _print(session.run(target, work), form, fix=fix):
        sys.exit(DENIED)


def _print(reports: Sequence[DenialReport], form: str | None, *, fix: bool) -> bool:
    """Print reports, and return whether something remains denied."""
    from tenantry.policy.explain.refusal import lines

    if form:
        output.write(output.to_json({"objects": reports}))
    elif not fix:
        output.write_lines(line for each in reports for line in _lines(each))
    if not fix:
        return any(each.denied for each in reports)
    passing = [each for each in reports if not each.denied or each.fixed is not None]
    if not form:
        if passing:
            output.write(output.to_yaml([each.fixed or each.manifest for each in passing]))
        for each in reports:
            if each.left:
                notes = [f"  note: {note}" for note in each.notes] if each.fixed is None else []
                output.talk("\n".join([_head(each), *(f"  {line}" for line in lines(each.left)), *notes]))
    return any(each.left for each in reports)


def _head(report: DenialReport) -> str:
    where = f" in {report.namespace!r}" if report.namespace else ""
    return f"{report.kind} {report.name!r}{where}, as {report.user!r}: {'denied' if report.denied else 'passes'}"


def _lines(report: DenialReport) -> list[str]:
    from tenantry.policy.explain.refusal import lines

    found = [_head(report), *(f"  {line}" for line in lines(report.causes))]
    if report.fixed is not None:
        found.append("  what would pass: the same command with --fix prints it")
    return [*found, *(f"  note: {note}" for note in report.notes)]
