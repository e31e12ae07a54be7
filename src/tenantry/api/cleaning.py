"""What the agent of a node and the operator say to each other between two tenants of the node.

Both write annotations of the Node: the operator asks (`marks.CLEANING`), the agent answers (`marks.CLEANED`). A policy
of the API server lets nobody answer for a node but the node itself and administrators.
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
    """What came of a cleaning; JSON in the annotation.

    Args:
        request: What was asked for, as `marks.CLEANING` had it.
        removed: From what was removed, as in "images", to how many of them.
        left: What is still there; () where the node is clean.
    """

    request: Annotated[str, Meta(max_length=MAX_TEXT)]
    removed: Annotated[dict[Annotated[str, Meta(max_length=40)], int], Meta(max_length=10)] = {}
    left: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(max_length=MOST_LEFT)] = ()


def request_of(slice_name: str, moment: str) -> str:
    """Return what is asked of a node.

    Args:
        slice_name: Whose leftovers are to go.
        moment: RFC 3339 with microseconds: no two requests are the same.
    """
    return f"{slice_name}/{moment}"


def slice_of_request(request: str) -> str:
    """Return the slice whose data is to be removed."""
    return request.partition("/")[0]


def asked_at(request: str) -> str:
    """Return the time of the request, in RFC 3339."""
    return request.partition("/")[2]
