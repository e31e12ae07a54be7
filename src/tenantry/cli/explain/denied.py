"""`tenantry explain denied`: what is in the way of an object, who set that, and what would pass."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, place, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli.explain.judge import Explained
    from tenantry.kube.client import Client

Json = dict[str, Any]

DENIED = 1
"""The exit code when something is in the way."""


@click.command()
@takes_target
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help='Manifests; "-" is stdin.'
)
@place.takes_namespace("Where they are to be; the manifest's, or the context's, where it is not given.")
@click.option("--as", "user", default="", metavar="USER", help="Asked as this user.  [default: with these credentials]")
@click.option("--as-group", "groups", multiple=True, metavar="GROUP", help="With --as: in this group. Repeatable.")
@click.option("--fix", is_flag=True, help="Print the manifests such that they pass, where that can be told.")
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
    r"""Tell what refuses an object: which rule, who set it and where, and what would pass.

    Rights, rules, quotas, suspensions and Kubernetes' own checks are looked at, of the object and of the pods that
    would come of it. Nothing is made: the API server is asked by a dry run, as the user. Exit code: 0 it passes, 1
    something is in the way, more than 1 an error.

    \b
      tenantry explain denied -f pod.yaml -n acme --as ada
      tenantry explain denied -f pod.yaml -n acme --fix > fixed.yaml
    """
    from tenantry.cli.documents import documents_in

    if groups and not user:
        raise InputError("--as-group needs --as")
    documents = [document for file in files for document in documents_in(file, "manifests")]
    elsewhere = place.context_namespace(target)

    async def work(client: Client) -> list[Explained]:
        from tenantry.cli.explain.judge import explained
        from tenantry.cli.explain.reads import asking

        async with asking(client, user, groups) as asker:
            return [await explained(asker, each, namespace, elsewhere) for each in documents]

    answers = session.run(target, work)
    left = _print(answers, form, fix=fix)
    if left:
        sys.exit(DENIED)


def _print(answers: Sequence[Explained], form: str | None, *, fix: bool) -> bool:
    """Print answers, and tell whether something is left in the way."""
    from tenantry.policy.explain.refusal import lines as told

    if form:
        output.write(output.to_json({"objects": answers}))
    elif not fix:
        output.write_lines(line for each in answers for line in lines(each))
    if not fix:
        return any(each.denied for each in answers)
    passing = [each for each in answers if not each.denied or each.fixed is not None]
    if not form:
        if passing:
            output.write(output.to_yaml([each.fixed or each.manifest for each in passing]))
        for each in answers:
            if each.left:
                output.talk("\n".join([_head(each), *(f"  {line}" for line in told(each.left))]))
    return any(each.left for each in answers)


def _head(answer: Explained) -> str:
    where = f" in {answer.namespace!r}" if answer.namespace else ""
    return f"{answer.kind} {answer.name!r}{where}, as {answer.user!r}: {'denied' if answer.denied else 'passes'}"


def lines(answer: Explained) -> list[str]:
    """Return what is told of one manifest."""
    from tenantry.policy.explain.refusal import lines as told

    found = [_head(answer)]
    found += [f"  {line}" for line in told(answer.causes)]
    if answer.fixed is not None:
        found.append("  what would pass: the same command with --fix prints it")
    return [*found, *(f"  note: {note}" for note in answer.notes)]
