"""Prints results on stdout and messages on stderr: tables and trees by rich, JSON, YAML, plain lines.

On a terminal a table or a tree is as wide as the terminal and has colours. Everywhere else the same table or tree is
plain text without colours, and no line is wrapped or cut, so that scripts can read it.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
import msgspec
from typing_extensions import override

from tenantry.api.errors import InputError
from tenantry.api.wording import visible
from tenantry.cli import jsonpath

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    from tenantry.api.model import KubernetesObject

    Part = str | Text | Table | Tree | Padding
    """A part of the output of `show`: lines of text, a table or a tree."""

Json = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., object])

NONE = "<none>"
_CONTROL = re.compile(r"(?!\x1b\[[0-9;]*m)[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except line ends, tabs and colours, which this module writes itself."""

_RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""The same, and colours: what a tenant wrote must not hide a part of itself."""

_DIRECTION = re.compile(r"[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that change the direction or the lines of what a terminal shows. In a file, they are data."""

_UNLIMITED = 10**5
"""The width of output that no terminal shows."""


TEMPLATES = ("jsonpath", "custom-columns")
"""Formats that have a value, as in `-o jsonpath='{.metadata.name}'`; `print_objects` prints them."""


class Form(click.Choice[str]):
    """The formats of `-o`."""

    @override
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # kubectl takes -o=json, too.
        value = str(value).removeprefix("=")
        form, equals, text = value.partition("=")
        if form not in TEMPLATES or form not in self.choices:
            return super().convert(value, param, ctx)
        example = "jsonpath='{.metadata.name}'" if form == TEMPLATES[0] else "custom-columns=NAME:.metadata.name"
        if not equals or not text:
            self.fail(f"{form} needs a value, as in -o {example}", param, ctx)
        if form == TEMPLATES[0]:
            jsonpath.template(text)
        else:
            columns(text)
        return value


def columns(text: str) -> list[tuple[str, tuple[jsonpath.Step, ...]]]:
    """Return the headers and paths of `-o custom-columns`.

    Raises:
        InputError: A column is not HEADER:PATH.
    """
    found: list[tuple[str, tuple[jsonpath.Step, ...]]] = []
    for each in text.split(","):
        header, colon, where = each.partition(":")
        if not header or not colon or not where:
            raise InputError(f"custom-columns {each!r} must be HEADER:PATH, as in NAME:.metadata.name")
        where = where.removeprefix("{").removesuffix("}")
        found.append((header, jsonpath.path(where if where.startswith((".", "[")) else f".{where}")))
    return found


def output_option(*choices: str, default: str = "", text: str = "Output format.") -> Callable[[F], F]:
    """Return the decorator of `-o`.

    Args:
        choices: The formats.
        default: The format without `-o`; "" for the human-readable one.
        text: The help.
    """
    return click.option("-o", "--output", "form", type=Form(choices), default=default or None, help=text)


def has_blocks(encoding: str | None) -> bool:
    """Return whether text of this encoding can contain lines and blocks."""
    try:
        "├└│█░▌".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def has_color() -> bool:
    """Return whether stdout takes colours: it is a terminal, and NO_COLOR (no-color.org) is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# -- text -----------------------------------------------------------------------------------------


def write(text: str, *, has_styles: bool = True) -> None:
    """Print text on stdout; characters that its encoding lacks become "?" instead of an error.

    Args:
        text: The text.
        has_styles: Its colours are this program's own.
    """
    encoding = sys.stdout.encoding or "utf-8"
    shown = (_CONTROL if has_styles else _RAW).sub(lambda found: visible(found[0]), text)
    if sys.stdout.isatty():
        shown = _DIRECTION.sub(lambda found: visible(found[0]), shown)
    click.echo(shown.encode(encoding, "replace").decode(encoding), nl=not text.endswith("\n"), color=has_color())


def write_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        write(f"{line}\n")


def talk(text: str) -> None:
    """Print a message on stderr."""
    encoding = sys.stderr.encoding or "utf-8"
    shown = "\n".join(visible(line) for line in text.split("\n"))
    click.echo(shown.encode(encoding, "replace").decode(encoding), err=True)


def cell(value: object) -> str:
    """Return the text of a table's cell, as kubectl writes it."""
    match value:
        case None | "":
            return NONE
        case bool():
            return str(value).lower()
        case _:
            return " ".join(str(value).split())


# -- JSON and YAML --------------------------------------------------------------------------------


def to_json(value: object) -> str:
    """Return indented JSON, in the order of the fields."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def to_yaml(values: Sequence[object]) -> str:
    """Return YAML documents, in the order of the fields."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes no anchors: the same map twice is written twice."""

        def ignore_aliases(self, data: object) -> bool:
            """Return True: nothing becomes an alias."""
            return data is not None or data is None

        def represent_text(self, data: str) -> yaml.ScalarNode:
            """Write text of several lines as such."""
            style = "|" if "\n" in data else None
            return yaml.ScalarNode("tag:yaml.org,2002:str", data, style=style)

    Plain.add_representer(str, Plain.represent_text)
    documents = [msgspec.to_builtins(value) for value in values]
    return yaml.dump_all(documents, Dumper=Plain, sort_keys=False, allow_unicode=True, width=2**16)


def whole(value: KubernetesObject) -> dict[str, Any]:
    """Return an object as JSON values, with its apiVersion and kind, which the typed models leave to the resource."""
    resource = value.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(value)}


def print_documents(objects: Sequence[Json], form: str) -> None:
    """Print whole objects as YAML documents, or as one JSON List."""
    if form == "json":
        print_objects(objects, form, single=False)
    else:
        write(to_yaml(objects))


def print_objects(objects: Sequence[Json], form: str, *, single: bool) -> None:
    """Print whole objects.

    Args:
        objects: The objects, as the API server returned them.
        form: "json", "yaml", or one of `TEMPLATES` with its value.
        single: One object was requested by name, and is printed without a List around it.
    """
    kind, _, text = form.partition("=")
    if kind == "custom-columns":
        print_columns(objects, text)
        return
    listed: Json = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(objects)}
    value = objects[0] if single and len(objects) == 1 else listed
    if kind == "jsonpath":
        write(jsonpath.render(jsonpath.template(text), msgspec.to_builtins(value)), has_styles=False)
        return
    write(to_json(value) if form == "json" else to_yaml([value]), has_styles=False)


def print_columns(
    objects: Iterable[Json], text: str, *, has_header: bool = True, like: Sequence[Sequence[str]] = ()
) -> None:
    """Print a line for each object, with the columns of `-o custom-columns`.

    Args:
        objects: The objects.
        text: The columns, HEADER:PATH,...
        has_header: Print the headers.
        like: Rows of another table; columns are at least as wide as there.
    """
    chosen = columns(text)
    rows = [
        [cell(",".join(map(jsonpath.shown, jsonpath.found(where, each, each)))) for _, where in chosen]
        for each in map(msgspec.to_builtins, objects)
    ]
    show(table([header for header, _ in chosen], rows, like=like, has_header=has_header))


# -- tables and trees -----------------------------------------------------------------------------


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return text from parts; a part is a string, or a string and its style."""
    from rich.text import Text

    shown = [visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts]
    return Text.assemble(*shown)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    like: Sequence[Sequence[str]] = (),
    has_header: bool = True,
) -> Table:
    """Return a table without lines, its columns three spaces apart.

    Args:
        headers: The first line.
        rows: The other lines.
        like: Rows of another table; columns are at least as wide as there.
        has_header: Print the first line.
    """
    from rich.table import Table

    found = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold", show_header=has_header)
    lines = [[styled(each) if isinstance(each, str) else each for each in row] for row in rows]
    measured = [[styled(each) for each in row] for row in (headers, *like)] + lines
    for index, header in enumerate(headers):
        # Only the last column is wrapped: a name in two lines could not be copied.
        wraps = index == len(headers) - 1
        width = None if wraps else max(row[index].cell_len for row in measured)
        found.add_column(styled(header), no_wrap=not wraps, overflow="fold", min_width=width)
    for line in lines:
        found.add_row(*line)
    return found


def pairs(values: Iterable[tuple[str, str]]) -> Table:
    """Return lines of names and values, the values below each other."""
    from rich.table import Table

    found = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in values:
        found.add_row(styled(f"{name}:"), styled(value))
    return found


def tree(label: str | Text) -> Tree:
    """Return a tree with this root; `add` adds a branch."""
    from rich.tree import Tree

    return Tree(styled(label) if isinstance(label, str) else label, guide_style="default")


def indented(part: Part) -> Part:
    """Return a part with two spaces before each of its lines."""
    from rich.padding import Padding

    return Padding(styled(part) if isinstance(part, str) else part, (0, 0, 0, 2), expand=False)


def paragraphs(groups: Iterable[Sequence[Part]]) -> list[Part]:
    """Return the parts of all groups that have some, with an empty line between two groups."""
    return [part for index, group in enumerate(filter(None, groups)) for part in ["", *group][not index :]]


def show(*parts: Part) -> None:
    """Print tables, trees and texts on stdout, one below the other."""
    write("".join(f"{line}\n" for line in _render(_console(sys.stdout, is_terminal=sys.stdout.isatty()), parts)))


def plain(*parts: Part, encoding: str = "utf-8") -> list[str]:
    """Return the lines of parts as a pipe of this encoding gets them."""
    return _render(_console(io.TextIOWrapper(io.BytesIO(), encoding), is_terminal=False), parts)


def _render(console: Console, parts: Iterable[Part]) -> list[str]:
    """Return the lines of parts, as wide as the console or, if words do not fit, wider."""
    from rich.measure import Measurement

    with console.capture() as captured:
        for part in parts:
            given = styled(part) if isinstance(part, str) else part
            least = Measurement.get(console, console.options.update(max_width=_UNLIMITED), given).minimum
            console.print(given, width=max(console.width, least), crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


def _console(file: TextIO, *, is_terminal: bool) -> Console:
    from rich.console import Console

    return Console(
        file=file,
        color_system="auto" if is_terminal and has_color() else None,
        width=None if is_terminal else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )
