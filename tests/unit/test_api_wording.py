"""Shortened lists."""

from __future__ import annotations

import pytest

from tenantry.api.wording import shortened


@pytest.mark.parametrize(
    ("items", "options", "text"),
    [
        ([], {}, ""),
        (["b", "a"], {}, "a, b"),
        (["c", "b", "a"], {}, "a, b, c"),
        (["d", "c", "b", "a"], {}, "a, b, c and 1 more"),
        (["d", "c", "b", "a", "e"], {"in_order": True}, "d, c, b and 2 more"),
        (["b wrong", "a wrong"], {"separator": "; "}, "a wrong; b wrong"),
        (["d", "c", "b", "a"], {"separator": "; "}, "a; b; c; and 1 more"),
        (["d", "c", "b", "a"], {"separator": "\n  "}, "a\n  b\n  c\n  and 1 more"),
        (["a", "b", "c"], {"total": 7}, "a, b, c and 4 more"),
        (["a", "b"], {"total": 2}, "a, b"),
    ],
)
def test_a_message_names_at_most_three_items_and_counts_the_rest(
    items: list[str], options: dict[str, str | bool | int], text: str
) -> None:
    """STYLE 4: sorted, unless their order has a meaning."""
    assert shortened(items, **options) == text  # pyright: ignore[reportArgumentType] - the table has options of all types
