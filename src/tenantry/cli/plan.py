"""`tenantry plan`: what applying files would do, step by step, and what follows from it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.wording import visible
from tenantry.cli import output, session
from tenantry.cli.diff import DIFFERENCES
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.views.drift.files import FilesPlan
    from tenantry.views.drift.steps import PlannedStep

_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
_LONGEST = 100
"""Characters of a value that one line shows."""


@click.command()
@takes_target
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|-",
    help="File with objects of Tenantry's kinds, or folder of such files; - is stdin. May be repeated.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="Also delete what the files have no longer: objects of the same Argo CD application, Flux Kustomization or"
    " Helm release, or those that -l selects.",
)
@click.option(
    "-l",
    "--selector",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the objects that --prune may delete. May be repeated.",
)
@output.output_option("json")
def plan(target: Target, *, files: tuple[str, ...], prune: bool, labels: tuple[str, ...], form: str | None) -> None:
    r"""Print what applying files would do, step by step, with the consequences.

    The API server tries each object in a dry run. The consequences are what is deleted, what shrinks, which users lose
    access, which pods no longer fit, and which namespaces are drained. Nothing is written. Exit code: 0 nothing would
    change, 1 something would, more than 1 an error.

    \b
      tenantry plan -f tenants/
      tenantry plan -f tenants/ --prune
    """
    if labels and not prune:
        raise InputError("-l selects what --prune may delete: give --prune, or leave -l out")
    selected = dict(_label(each) for each in labels)
    from tenantry.cli.documents import read_objects
    from tenantry.views.drift import files as planned
    from tenantry.views.drift import own

    wanted = read_objects(files)

    found = session.run(target, lambda client: planned.plan(client, wanted, selected if prune else None))
    if found.is_partial:
        output.talk(own.PRUNES_NOTE if prune else own.NOTE)
    if form:
        output.write(output.to_json(found))
    else:
        output.write_lines(_lines(found))
    for each in found.blocked:
        output.talk(f"tenant {each.tenant!r}: {each.reason}: {each.message}")
    if found.steps or found.blocked:
        sys.exit(DIFFERENCES)


def _label(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise InputError(f"-l must be KEY=VALUE; it is {text!r}")
    return key, value


def _lines(found: FilesPlan) -> Iterator[str]:
    quiet: Counter[str] = Counter()
    for step in found.steps:
        if step.by == "Operator" and not step.consequences:
            quiet[step.action] += 1
            continue
        yield from _step(step)
    if quiet:
        many = ", ".join(f"{count} to {action}" for action, count in sorted(quiet.items()))
        yield f"The operator then has {many} without consequences; `tenantry diff -f` shows them."
    if found.steps:
        yield _summary(found.steps)


def _summary(steps: Sequence[PlannedStep]) -> str:
    own = Counter(str(each.action) for each in steps if each.by != "Operator")
    return f"Plan: {own['create']} to create, {own['update']} to update, {own['delete']} to delete."


def _step(step: PlannedStep) -> Iterator[str]:
    sign, color = _SIGNS[step.action]
    key = f"{step.namespace}/{step.name}" if step.namespace else step.name
    by = "" if step.by == "Apply" else f" ({step.by.lower()})"
    yield _styled(f"{sign} {step.kind} {key}{by}", color)
    if step.by != "Operator":
        for each in step.fields:
            yield f"    {each.path}: {_value(each.before)} -> {_value(each.after)}"
    for consequence in step.consequences:
        yield _styled(f"    {consequence.effect}: {consequence.message}", "bold")


def _styled(text: str, look: str) -> str:
    plain = visible(text)
    if not output.has_color():
        return plain
    return click.style(plain, bold=True) if look == "bold" else click.style(plain, fg=look)


def _value(value: object) -> str:
    if value is None:
        return "(not set)"
    text = msgspec.json.encode(value).decode()
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
