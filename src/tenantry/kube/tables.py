"""Objects as the API server itself prints them: the columns of `kubectl get`, made by the server from the CRD.

Source: Kubernetes, "API concepts", receiving resources as Tables.
"""

from __future__ import annotations

import msgspec

from tenantry.api.model import Model, ObjectMeta
from tenantry.kube.client import Client
from tenantry.kube.wire import ListMeta

ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class TableColumn(Model, frozen=True, kw_only=True):
    """What a column is called; a priority above 0 is for the wide form only."""

    name: str
    priority: int = 0


class TableObject(Model, frozen=True, kw_only=True):
    """The metadata of a row's object."""

    metadata: ObjectMeta


class TableRow(Model, frozen=True, kw_only=True):
    """One object: a cell for each column."""

    cells: tuple[str | int | float | bool | None, ...]
    object: TableObject


class Table(Model, frozen=True, kw_only=True):
    """A page of rows. The events of a watch name the columns only once, in the first of them."""

    metadata: ListMeta = ListMeta()
    column_definitions: tuple[TableColumn, ...] | None = None
    rows: tuple[TableRow, ...] | None = None


class TableClient(Client):
    """A client that is answered with Tables, and with plain JSON if the server makes none."""

    accept = ACCEPT


def decode_table(client: Client, data: bytes | msgspec.Raw) -> Table:
    """Return an answer as a Table.

    Raises:
        ApiError: It is none.
    """
    return client.decode(Table, data)
