"""How a hosted control plane in a Pod reaches its datastore."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from tenantry.api.model import Json


class StoreWay(msgspec.Struct, frozen=True, kw_only=True):
    """How a control plane reaches a datastore that is not in its own volume: through one Unix socket.

    Args:
        socket: The name of the socket.
        address: Where a container forwards it to, as "ADDRESS:PORT"; "" if the datastore is in the Pod.
        allowed: CIDRs of addresses that the forwarder refuses otherwise.
        containers: The init containers that are the datastore; none if it is elsewhere.
        volumes: Theirs.
        labels: Of the Pod, by which a NetworkPolicy admits it to the datastore.
        files: Of the process, by their keys in its Secret.
        own: Those of the datastore in the Pod, in a Secret of its own.
        renewal: When a certificate among these files is renewed; None for never.
    """

    socket: str
    address: str = ""
    allowed: tuple[str, ...] = ()
    containers: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    labels: Mapping[str, str] = {}
    files: Mapping[str, bytes]
    own: Mapping[str, bytes] = {}
    renewal: dt.datetime | None = None


def is_elsewhere(way: StoreWay | None) -> bool:
    """Return whether a datastore is outside of the Pod, which then has no volume; SQLite, None, is in one."""
    return way is not None and bool(way.address)
