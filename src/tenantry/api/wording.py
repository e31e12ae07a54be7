"""How messages shorten a list to three items, show foreign text, and correct a mistyped word. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

SHOWN = 3
"""How many items a message names."""


def shortened(
    items: Iterable[str], *, separator: str = ", ", in_order: bool = False, total: int = 0, most: int = SHOWN
) -> str:
    """Return at most three items, sorted, and how many more there are: "a, b, c and 2 more".

    Args:
        items: What the message lists.
        separator: Between the items. Any but the comma also stands before "and".
        in_order: The order of the items has a meaning and is kept.
        total: How many items there are if `items` has only the first of them.
        most: How many items to show, if it is not three: for a list that a person works through line by line.
    """
    listed = list(items) if in_order else sorted(items)
    text = separator.join(listed[:most])
    left = max(total, len(listed)) - most
    if left <= 0:
        return text
    return f"{text} {more(left)}" if separator == ", " else f"{text}{separator}{more(left)}"


def more(count: int) -> str:
    """Return how many items a list leaves out."""
    return f"and {count} more"


def visible(text: str) -> str:
    """Return a text with control and direction characters escaped.

    Tenants and other clusters choose much of the text that administrators read, such as the name of a role or the
    reason of a request. Control characters in it could erase a line and write another one.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def suggestion(word: object, known: Sequence[str]) -> str:
    """Return "; did you mean X?" with the known word that resembles a mistyped one; "" if none does."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(str(word).lower(), list(by_lower), n=1)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
