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
        beside: The init containers that are the datastore, and their volumes; none if it is elsewhere.
        labels: Of the Pod, by which a NetworkPolicy admits it to the datastore.
        files: Of the process, by their keys in its Secret.
        own: Those of the datastore in the Pod, in a Secret of its own.
        renewal: When one of them is to be renewed; None for never.
    """

    socket: str
    address: str = ""
    allowed: tuple[str, ...] = ()
    beside: tuple[tuple[Json, ...], tuple[Json, ...]] = ((), ())
    labels: Mapping[str, str] = {}
    files: Mapping[str, bytes]
    own: Mapping[str, bytes] = {}
    renewal: dt.datetime | None = None
