"""The protocol between the operator and the cleaning agent of a node, between two tenants of the node.

Both write annotations of the Node: the operator requests a cleaning (`marks.CLEANING`), the agent reports its result
(`marks.CLEANED`). A policy of the API server permits that result only from the node itself and from administrators.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MOST_LEFT = 10
"""How many things an answer names."""

MAX_TEXT = 200

BY_HAND = "by-hand"
"""Instead of an answer: an administrator has cleaned the node."""


class CleaningResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cleaning, as JSON in the annotation.

    Args:
        request: The value of `marks.CLEANING`.
        removed: The number of removed items by type, for example "images".
        left: What remains; () if the node is clean.
    """

    request: Annotated[str, Meta(max_length=MAX_TEXT)]
    removed: Annotated[dict[Annotated[str, Meta(max_length=40)], int], Meta(max_length=10)] = {}
    left: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(max_length=MOST_LEFT)] = ()


def request_of(slice_name: str, moment: str) -> str:
    """Return a cleaning request.

    Args:
        slice_name: The slice whose data is to be removed.
        moment: RFC 3339 with microseconds, so that no two requests are the same.
    """
    return f"{slice_name}/{moment}"


def slice_of_request(request: str) -> str:
    """Return the slice whose data is to be removed."""
    return request.partition("/")[0]


def asked_at(request: str) -> str:
    """Return the time of the request, in RFC 3339."""
    return request.partition("/")[2]
