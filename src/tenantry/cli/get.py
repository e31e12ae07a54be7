"""`tenantry get`: Tenantry's objects as tables, JSON, YAML or names; the columns are the server's own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from tenantry.api.crd import Column
from tenantry.api.errors import Forbidden, Gone, InputError, NotFound
from tenantry.api.model import Json, object_key
from tenantry.api.requests import TenantRequest
from tenantry.api.tenant import Tenant
from tenantry.cli import durations, kinds, listing, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.kinds import Kind, ObjectSelection
from tenantry.cli.listing import ListedObjects, ListOptions
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.argument("words", nargs=-1, metavar="[KIND [NAME]... | KIND/NAME...]", shell_complete=candidates.objects)
@place.namespace_option
@place.everywhere_option
@listing.takes_options("wide")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Label selector, as in tier=gold.")
def get(
    target: Target,
    *,
    words: tuple[str, ...],
    namespace: str,
    everywhere: bool,
    listing: ListOptions,
    selector: str,
) -> None:
    r"""Print tenants or objects of another Tenantry kind; without a KIND, of all kinds.

    \b
      tenantry get tenants
      tenantry get tenant acme -o yaml
      tenantry get tenant/acme tenant/globex
      tenantry get subnamespaces -n acme
    """
    asked = _asked(target, words, namespace, everywhere=everywhere)
    if selector and any(each.names for each in asked):
        raise InputError("--selector may not be given together with names; leave one of them out")
    # Rows of different kinds have different columns.
    watches = listing.watches
    if watches and len(asked) > 1:
        raise InputError("--watch must be about one kind in one namespace, as in `tenantry get tenants -w`")
    reading = _Reading(
        selector=selector,
        form=listing.form,
        watches=watches,
        has_headers=listing.has_headers,
        sort_by=listing.sort_by,
    )
    try:
        missing = session.run(
            target, lambda client: _get(client, asked, reading, lenient=not words), tables=reading.is_table
        )
    except Forbidden as error:
        if asked[0].kind is TenantRequest and not asked[0].names:
            raise Forbidden(f"{error}; `tenantry request list` shows your own") from error
        if asked[0].kind is Tenant and not asked[0].names:
            raise Forbidden(f"{error}; an owner names its tenant, as in `tenantry get tenant acme`") from error
        if len(asked) > 1 or asked[0].kind is not Tenant or not asked[0].names or watches:
            raise
        _get_own(target, asked[0], reading, error)
        return
    if missing:
        raise NotFound(f"not found: {', '.join(missing)}; `{asked[0].listing}` lists all")


def _asked(target: Target, words: Sequence[str], namespace: str, *, everywhere: bool) -> list[ObjectSelection]:
    asked = kinds.parse(words)
    if not asked:
        # All kinds: with -n those that are in namespaces, without it all of them, wherever they are.
        asked = [ObjectSelection(kind, ()) for kind in kinds.KINDS if kind.resource.namespaced or not namespace]
        namespace = namespace or ("" if everywhere else place.context_namespace(target))
        everywhere = not namespace
    return place.settle(target, asked, namespace, everywhere=everywhere, may_be_everywhere=True)


class _Reading(ListOptions, frozen=True, kw_only=True):
    """How objects are read and printed; the API server formats rows as Tables."""

    selector: str


class _Row(NamedTuple):
    """An object: its name and version, and its cells or its JSON."""

    name: str
    namespace: str
    version: int
    cells: tuple[str, ...] = ()
    value: Json = {}

    @property
    def key(self) -> str:
        """Return the key that is unique within its kind."""
        return object_key(self.namespace, self.name)


class _Page(NamedTuple):
    """A list: the headers of a table, the objects, and the resourceVersion to watch from."""

    headers: tuple[str, ...]
    rows: list[_Row]
    version: str


async def _get(client: Client, asked: list[ObjectSelection], reading: _Reading, *, lenient: bool) -> list[str]:
    """Print objects, and return the full names of those that do not exist.

    Args:
        client: The client of the cluster.
        asked: The objects.
        reading: How to read and print them.
        lenient: No kind was named: a kind that the user may not read is reported and left out.
    """
    missing: list[str] = []
    objects: list[ListedObjects] = []
    tables = 0
    for each in asked:
        page = await (_list_if_allowed if lenient else _list)(client, each, reading)
        there = {row.name for row in page.rows}
        absent = [kinds.told(each.kind, name, each.namespace) for name in each.names if name not in there]
        missing += absent
        found = _listed(each.kind, page.headers, page.rows)
        if reading.watches and not absent:
            await _watch(client, each, reading, page)
        elif not reading.is_table and reading.form != "name":
            objects.append(found)
        elif page.rows:
            if reading.is_table and tables:
                output.write("")
            listing.show(found, reading)
            tables += 1
    if objects:
        listing.show(_joined(objects), reading, single=len(asked) == 1 and len(asked[0].names) == 1)
    elif reading.is_table and not tables and not missing:
        output.talk(f"no {' or '.join(each.kind.resource.plural for each in asked)} found")
    return missing


def _listed(kind: Kind, headers: Sequence[str], rows: Sequence[_Row]) -> ListedObjects:
    return ListedObjects(
        headers=headers,
        rows=[row.cells for row in rows],
        objects=[row.value for row in rows],
        names=[kinds.full_name(kind, row.name) for row in rows],
        keys=[row.key for row in rows],
        # Rows of the API server's tables have cells that change with the time, and no object.
        versions=[row.version for row in rows],
    )


def _joined(lists: Sequence[ListedObjects]) -> ListedObjects:
    """Return one list of the objects of several kinds, which have no columns in common."""
    return ListedObjects(
        headers=(),
        rows=[row for each in lists for row in each.rows],
        objects=[value for each in lists for value in each.objects],
        names=[name for each in lists for name in each.names],
        keys=[name for each in lists for name in each.names],
    )


async def _watch(client: Client, asked: ObjectSelection, reading: _Reading, page: _Page) -> None:
    """Print the objects of a page, and then each change, until interrupted."""
    printer = listing.ChangePrinter(reading)
    while True:
        printer.take(_listed(asked.kind, page.headers, page.rows))
        async for row, gone in _changes(client, asked, reading, page):
            printer.change(_listed(asked.kind, page.headers, [row]), gone=gone)
        # The API server ends each watch after some minutes. A new list has the changes in between.
        page = await _list(client, asked, reading)


def _get_own(target: Target, asked: ObjectSelection, reading: _Reading, refused: Forbidden) -> None:
    """Print the tenants of an owner, who may not read Tenants."""
    from tenantry.views import owned

    async def read(client: Client) -> list[Tenant]:
        return [await owned.tenant(client, name, refused) for name in asked.names]

    found = session.run(target, read)
    output.talk(owned.NOTE)
    columns = [each for each in Tenant.columns if not each.priority or reading.form == "wide"]
    now = datetime.now(UTC)
    names = [each.metadata.name for each in found]
    listed = ListedObjects(
        headers=("NAME", *(column.name.upper() for column in columns)),
        rows=[(each.metadata.name, *(_cell(each, column, now) for column in columns)) for each in found],
        objects=[output.whole(each) for each in found],
        names=[kinds.full_name(asked.kind, name) for name in names],
        keys=names,
    )
    listing.show(listed, reading, single=len(found) == 1)


_CONDITION = re.compile(r"\.status\.conditions\[\?\(@\.type==\"(?P<type>\w+)\"\)\]\.(?P<field>\w+)")


def _cell(tenant: Tenant, column: Column, now: datetime) -> str:
    """Return what the API server would print of a Tenant in a column."""
    if column.type == "date":
        return durations.age(tenant.metadata.creation_timestamp, now)
    about = _CONDITION.fullmatch(column.json_path)
    if about is not None:
        found = [each for each in tenant.status.conditions if each.type == about["type"]]
        return output.cell(getattr(found[0], about["field"]) if found else None)
    value: Any = tenant
    for part in column.json_path.strip(".").split("."):
        value = getattr(value, part)
    return output.cell(value)


# -- reading --------------------------------------------------------------------------------------


async def _list_if_allowed(client: Client, asked: ObjectSelection, reading: _Reading) -> _Page:
    try:
        return await _list(client, asked, reading)
    except Forbidden:
        output.talk(f"you may not list {asked.kind.resource.plural}")
        return _Page((), [], "")


async def _list(client: Client, asked: ObjectSelection, reading: _Reading) -> _Page:
    return await (_list_tables if reading.is_table else _list_objects)(client, asked, reading)


async def _list_objects(client: Client, asked: ObjectSelection, reading: _Reading) -> _Page:
    rows: list[_Row] = []
    version = ""
    selectors = _selectors(asked.names, reading.selector)
    async for page in client.pages(asked.kind.resource, msgspec.Raw, namespace=asked.namespace, selectors=selectors):
        rows += [_row_of(asked.kind, raw) for raw in page.items]
        version = page.metadata.resource_version or version
    return _Page((), _chosen(rows, asked.names), version)


async def _list_tables(client: Client, asked: ObjectSelection, reading: _Reading) -> _Page:
    from tenantry.kube import tables, wire
    from tenantry.kube.client import PAGE_SIZE

    query = {**_selectors(asked.names, reading.selector), "limit": str(PAGE_SIZE)}
    if reading.sort_by:
        query["includeObject"] = "Object"
    rows: list[_Row] = []
    columns: tuple[tables.TableColumn, ...] = ()
    while True:
        answer = await client.request("GET", wire.path(asked.kind.resource, asked.namespace), query=query)
        table = tables.decode_table(client, answer)
        columns = table.column_definitions or columns
        found = [_row_of_table(asked, row, columns, reading) for row in table.rows or ()]
        if reading.sort_by:
            wholes: list[Json] = [row["object"] for row in msgspec.json.decode(answer)["rows"] or ()]
            found = [row._replace(value=value) for row, value in zip(found, wholes, strict=True)]
        rows += found
        if not table.metadata.continue_:
            break
        query["continue"] = table.metadata.continue_
    headers = tuple(column.name.upper() for column in columns if not column.priority or reading.form == "wide")
    if _is_everywhere(asked):
        headers = ("NAMESPACE", *headers)
    return _Page(headers, _chosen(rows, asked.names), table.metadata.resource_version)


def _is_everywhere(asked: ObjectSelection) -> bool:
    return asked.kind.resource.namespaced and not asked.namespace


async def _changes(
    client: Client, asked: ObjectSelection, reading: _Reading, page: _Page
) -> AsyncIterator[tuple[_Row, bool]]:
    """Yield the objects that change after a page, and whether each is gone, until the API server ends the watch."""
    from tenantry.cli import following
    from tenantry.kube import tables
    from tenantry.kube.watch import EventType

    columns: tuple[tables.TableColumn, ...] = ()
    selectors = _selectors(asked.names, reading.selector)
    resource = asked.kind.resource
    watched = following.changes(client, resource, page.version, selectors=selectors, namespace=asked.namespace)
    try:
        async with watched as batches:
            async for event in (event async for events in batches for event in events):
                if event.type is EventType.BOOKMARK:
                    continue
                if reading.is_table:
                    table = tables.decode_table(client, event.object)
                    columns = table.column_definitions or columns
                    rows = [_row_of_table(asked, row, columns, reading) for row in table.rows or ()]
                else:
                    rows = [_row_of(asked.kind, event.object)]
                for row in _chosen(rows, asked.names):
                    yield row, event.type is EventType.DELETED
    except Gone:
        return


def _row_of(kind: Kind, raw: msgspec.Raw) -> _Row:
    value: Json = msgspec.json.decode(raw, type=Json)
    # The items of a list have no apiVersion and kind.
    whole: Json = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **value}
    meta = whole["metadata"]
    meta.pop("managedFields", None)
    namespace = meta.get("namespace", "")
    return _Row(name=meta["name"], namespace=namespace, version=int(meta["resourceVersion"]), value=whole)


def _row_of_table(asked: ObjectSelection, row: Any, columns: Sequence[Any], reading: _Reading) -> _Row:  # noqa: ANN401 - types of a lazy import
    cells = tuple(
        output.cell(value)
        for value, column in zip(row.cells, columns, strict=True)
        if not column.priority or reading.form == "wide"
    )
    meta = row.object.metadata
    if _is_everywhere(asked):
        cells = (meta.namespace, *cells)
    return _Row(name=meta.name, namespace=meta.namespace, version=int(meta.resource_version), cells=cells)


def _chosen(rows: list[_Row], names: Sequence[str]) -> list[_Row]:
    if not names:
        return rows
    order = {name: index for index, name in enumerate(names)}
    return sorted((row for row in rows if row.name in order), key=lambda row: order[row.name])


def _selectors(names: Sequence[str], selector: str) -> dict[str, str]:
    selectors = {"labelSelector": selector} if selector else {}
    # One name can be selected by the server, several cannot.
    return {**selectors, "fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else selectors
