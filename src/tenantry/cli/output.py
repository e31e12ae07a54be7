"""What goes to stdout: tables, JSON, YAML; in what the terminal can show."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

Json = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., object])

NONE = "<none>"
_OBEYED = re.compile(r"(?!\x1b\[[0-9;]*m)[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal obeys, but for the ends of lines, tabs, and colours, which are ours."""

MOST_NAMED = 3
"""How many names a table's cell holds."""


def output_option(*choices: str, default: str = "", text: str = "") -> Callable[[F], F]:
    """Return the decorator of `-o`.

    Args:
        choices: What may be asked for.
        default: What it is where nothing is; "" for the form for people.
        text: What to say of the default in the help.
    """
    said = text or "In another form than the one for people."
    return click.option("-o", "--output", "form", type=click.Choice(choices), default=default or None, help=said)


def can_draw(encoding: str | None) -> bool:
    """Tell whether a terminal of this encoding shows lines and blocks."""
    try:
        "├└│█░▌".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def has_color() -> bool:
    """Tell whether stdout takes colours: a terminal, and nobody said NO_COLOR (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    """Print text on stdout; characters that it cannot encode become "?", rather than an error."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = _OBEYED.sub(lambda found: visible(found[0]), text)
    click.echo(shown.encode(encoding, "replace").decode(encoding), nl=not text.endswith("\n"), color=has_color())


def write_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        write(f"{line}\n")


def talk(text: str) -> None:
    """Print a line on stderr: what happens, for people."""
    encoding = sys.stderr.encoding or "utf-8"
    shown = "\n".join(visible(line) for line in text.split("\n"))
    click.echo(shown.encode(encoding, "replace").decode(encoding), err=True)


def visible(text: str) -> str:
    """Return a text with what a terminal obeys, or shows in another order, written out.

    Tenants choose much of what administrators read: a role's name, or why it is asked for, could take a line back and
    write another one.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def to_json(value: object) -> str:
    """Return indented JSON, in the order of the fields."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def to_yaml(values: Sequence[object]) -> str:
    """Return YAML documents, in the order of the fields."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Without anchors: the same map twice is written twice."""

        def ignore_aliases(self, data: object) -> bool:
            """Tell that nothing is an alias."""
            return data is not None or data is None

    documents = [msgspec.to_builtins(value) for value in values]
    return yaml.dump_all(documents, Dumper=Plain, sort_keys=False, allow_unicode=True, width=2**16)


def print_objects(objects: Sequence[Json], form: str, *, single: bool) -> None:
    """Print whole objects.

    Args:
        objects: As the server gave them.
        form: "json" or "yaml".
        single: One object was asked for, by its name: no list is made of it.
    """
    listed: Json = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(objects)}
    value = objects[0] if single and len(objects) == 1 else listed
    write(to_json(value) if form == "json" else to_yaml([value]))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, like: Sequence[Sequence[str]] = ()) -> list[str]:
    """Return lines with columns three spaces apart, the headers first.

    Args:
        headers: The first line.
        rows: The others.
        like: Rows whose widths count too.
    """
    told = [[visible(each) for each in line] for line in (headers, *rows)]
    lines = (*told, *([visible(each) for each in line] for line in like))
    widths = [max(len(line[index]) for line in lines) for index in range(len(headers))]
    return ["   ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip() for line in told]


def some(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def cell(value: object) -> str:
    """Return a table's cell, as kubectl writes it."""
    match value:
        case None | "":
            return NONE
        case bool():
            return str(value).lower()
        case _:
            return " ".join(str(value).split())
