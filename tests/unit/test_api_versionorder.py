"""The order of Tenantry's own versions."""

from __future__ import annotations

import pytest

from tenantry.api.versionorder import is_later, order

ORDERED = ["0.1.0", "0.2.0a1", "0.2.0a2", "0.2.0b1", "0.2.0rc1", "0.2.0rc10", "0.2.0", "0.2.1", "0.10.0", "1.0.0"]


def test_versions_are_in_the_order_of_pep_440() -> None:
    """X08: the operator, the command and the release script have one order."""
    assert sorted(sorted(ORDERED), key=lambda each: order(each) or ()) == ORDERED
    pairs = [(one, other) for one in range(len(ORDERED)) for other in range(len(ORDERED))]
    assert all(is_later(ORDERED[one], ORDERED[other]) is (one > other) for one, other in pairs)


@pytest.mark.parametrize("text", ["", "v0.2.0", "0.2", "0.2.0-rc1", "0.2.0 ", "0.2.0.dev1", "9" * 5000])
def test_a_text_that_is_no_version_is_neither_later_nor_earlier(text: str) -> None:
    """X06: a label with a foreign value keeps the operator from no repair."""
    assert order(text) is None
    assert (is_later(text, "0.1.0"), is_later("0.1.0", text)) == (False, False)
