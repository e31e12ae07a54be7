"""Lists: the flags of every command that lists objects, and how it prints rows, objects and changes.

read(client) ─► ListedObjects: headers, rows, objects ─► sorted ─► a table, or -o json | yaml | name | jsonpath=… |
                      ▲                                     custom-columns=…
                      └── with -w again after each change
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
import msgspec

from tenantry.api.errors import Forbidden, InputError
from tenantry.cli import jsonpath, output, session
from tenantry.cli.kinds import Kind
from tenantry.cli.output import Json

if TYPE_CHECKING:
    from rich.text import Text

    from tenantry.cli.target import Target
    from tenantry.kube.client import Client

F = TypeVar("F", bound=Callable[..., Any])


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of a list.

    Args:
        form: The format of -o; "table" if it is not given.
        has_headers: Print the headers of tables.
        sort_by: A JSONPath; "" keeps the order.
        watches: Print changes until interrupted.
    """

    form: str = "table"
    has_headers: bool = True
    sort_by: str = ""
    watches: bool = False

    @property
    def is_table(self) -> bool:
        """Return whether rows are printed."""
        return self.form in {"table", "wide"}

    def check(self) -> None:
        """Reject flags that do not fit together.

        Raises:
            InputError: There are such flags, or --sort-by is no JSONPath.
        """
        if self.watches and self.sort_by:
            raise InputError("--sort-by may not be given with --watch: changes are printed in the order of their time")
        if self.sort_by:
            self.key()

    def key(self) -> Callable[[Json], tuple[bool, bool, float, str]]:
        """Return the function by whose result objects are sorted: numbers, then texts, then those without the field."""
        text = self.sort_by.removeprefix("{").removesuffix("}")
        steps = jsonpath.path(text if text.startswith((".", "[")) else f".{text}")

        def key(value: Json) -> tuple[bool, bool, float, str]:
            values = jsonpath.found(steps, value, value)
            if not values:
                return (True, True, 0.0, "")
            is_number = isinstance(values[0], int | float)
            return (False, not is_number, float(values[0]) if is_number else 0.0, jsonpath.shown(values[0]))

        return key


class ListedObjects(NamedTuple):
    """What a list has.

    Args:
        headers: Of its table.
        rows: A row for each object.
        objects: The objects, as JSON values.
        names: The full name of each object, as `-o name` prints it.
        keys: What tells the objects apart.
        notes: What could not be read.
        versions: For each object, what differs after a change of it; () for the objects themselves.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    objects: Sequence[Json]
    names: Sequence[str]
    keys: Sequence[str]
    notes: Sequence[str] = ()
    versions: Sequence[object] = ()


def takes_options(*forms: str) -> Callable[[F], F]:
    """Give a command -o, --no-headers, --sort-by and -w, and the argument `listing`: a `ListOptions`.

    Args:
        forms: The formats beside json, yaml, name, jsonpath and custom-columns.
    """

    def decorate(command: F) -> F:
        @output.output_option("json", "yaml", "name", *forms, *output.TEMPLATES)
        @click.option("--no-headers", is_flag=True, help="Print no headers above the columns.")
        @click.option("--sort-by", default="", metavar="JSONPATH", help="Field to sort by, as in .metadata.name.")
        @click.option("-w", "--watch", "watches", is_flag=True, help="Print changes until interrupted.")
        @functools.wraps(command)
        def listing(
            *args: object,
            form: str | None = None,
            no_headers: bool = False,
            sort_by: str = "",
            watches: bool = False,
            **given: object,
        ) -> object:
            options = ListOptions(form=form or "table", has_headers=not no_headers, sort_by=sort_by, watches=watches)
            options.check()
            return command(*args, listing=options, **given)

        return cast("F", listing)

    return decorate


def show(found: ListedObjects, options: ListOptions, empty: str = "", *, single: bool = False) -> None:
    """Print a list.

    Args:
        found: The list.
        options: The flags.
        empty: The message if it has no object and is printed as a table.
        single: One object was requested by name, and is printed without a List around it.
    """
    lines = _lines(found)
    if options.sort_by:
        key = options.key()
        lines.sort(key=lambda line: key(msgspec.to_builtins(line.value)))
    if lines or not single:
        _print(lines, found.headers, options, has_headers=options.has_headers, single=single)
    if not lines and options.is_table and empty:
        output.talk(empty)


class _Line(NamedTuple):
    """An object of a list, and what differs after a change of it."""

    row: Sequence[str | Text]
    value: Json
    name: str
    version: object


def _lines(found: ListedObjects) -> list[_Line]:
    columns = (found.rows, found.objects, found.names, found.versions or found.objects)
    return [_Line(*each) for each in zip(*columns, strict=True)]


def _print(
    lines: Sequence[_Line],
    headers: Sequence[str],
    options: ListOptions,
    *,
    has_headers: bool,
    single: bool = False,
    like: Sequence[Sequence[str]] = (),
) -> None:
    values = [line.value for line in lines]
    if options.form == "name":
        output.write_lines(line.name for line in lines)
    elif options.form.startswith("custom-columns="):
        output.print_columns(values, options.form.partition("=")[2], has_header=has_headers)
    elif not options.is_table:
        output.print_objects(values, options.form, single=single)
    elif lines:
        output.show(output.table(headers, [line.row for line in lines], like=like, has_header=has_headers))


class ChangePrinter:
    """Prints a list, and then each object that changes in it.

    An object that is gone is printed once more, as it was last: `kubectl get --watch` does the same.

    Args:
        options: The flags.
    """

    def __init__(self, options: ListOptions) -> None:
        self._options = options
        self._seen: dict[str, _Line] = {}
        self._like: Sequence[Sequence[str]] = ()
        self._has_headers = options.has_headers

    def take(self, found: ListedObjects) -> None:
        """Print what is new or changed in a list since it was read last, and what is gone."""
        lines = dict(zip(found.keys, _lines(found), strict=True))
        gone = [line for key, line in self._seen.items() if key not in lines]
        changed = [line for key, line in lines.items() if self._is_new(key, line)]
        self._seen = lines
        self._write(found.headers, [*gone, *changed])

    def change(self, found: ListedObjects, *, gone: bool = False) -> None:
        """Print objects of the list that have changed, or are gone; the others stay as they are."""
        for key, line in zip(found.keys, _lines(found), strict=True):
            is_printed = key in self._seen if gone else self._is_new(key, line)
            if gone:
                self._seen.pop(key, None)
            else:
                self._seen[key] = line
            if is_printed:
                self._write(found.headers, [line])

    def _is_new(self, key: str, line: _Line) -> bool:
        return key not in self._seen or self._seen[key].version != line.version

    def _write(self, headers: Sequence[str], lines: Sequence[_Line]) -> None:
        form = self._options.form
        if form in {"json", "yaml"} or form.startswith("jsonpath="):
            for line in lines:
                if form == "yaml":
                    output.write("---")
                _print([line], headers, self._options, has_headers=False, single=True)
        elif lines:
            # Later rows keep to the columns of the first ones.
            self._like = self._like or [[str(cell) for cell in line.row] for line in lines]
            _print(lines, headers, self._options, has_headers=self._has_headers, like=self._like)
            self._has_headers = False


def run(
    target: Target,
    options: ListOptions,
    read: Callable[[Client], Coroutine[Any, Any, ListedObjects]],
    *,
    empty: str,
    kinds: Sequence[tuple[Kind, str]],
) -> None:
    """Read a list and print it; with -w also what changes in it, until interrupted.

    Args:
        target: The cluster.
        options: The flags.
        read: Reads the list.
        empty: The message if it has no object.
        kinds: The kinds, with their namespaces, whose changes may change the list.
    """

    async def work(client: Client) -> None:
        found = await read(client)
        for note in found.notes:
            output.talk(note)
        if not options.watches:
            show(found, options, empty)
            return
        await _watch(client, found, options, functools.partial(read, client), kinds)

    session.run(target, work)


async def _watch(
    client: Client,
    first: ListedObjects,
    options: ListOptions,
    read: Callable[[], Awaitable[ListedObjects]],
    kinds: Sequence[tuple[Kind, str]],
) -> None:
    """Print a list, and each object of it again after it has changed or is gone."""
    changed = asyncio.Event()
    printer = ChangePrinter(options)
    printer.take(first)
    async with asyncio.TaskGroup() as group:
        for kind, namespace in kinds:
            group.create_task(_signal(client, kind, namespace, changed))
        while True:
            # A change of any kind: the API server's watches set it.
            await changed.wait()  # conventions: no deadline, it ends when the user interrupts
            changed.clear()
            printer.take(await read())


async def _signal(client: Client, kind: Kind, namespace: str, changed: asyncio.Event) -> None:
    """Set an event after each change of a kind; a kind that may not be listed changes nothing."""
    from tenantry.cli.following import follow

    try:
        async with aclosing(follow(client, kind, namespace=namespace)) as batches:
            async for _ in batches:
                changed.set()
    except Forbidden:
        return
