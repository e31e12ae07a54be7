"""The names and marks of lower objects."""

from __future__ import annotations

import re

import pytest

from tenantry.mirror.names import label_value, lower_name
from testkit.mirroring import PROFILE

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def test_a_lower_name_begins_with_the_upper_one() -> None:
    assert re.fullmatch(r"web-0-[0-9a-f]{16}", lower_name("u", "Pod", "shop", "web-0"))


@pytest.mark.parametrize("name", ["a" * 253, "a" * 39 + ".b", "a" * 39 + "-b", "web.shop", "Web_!", "", "...", "a.-b"])
def test_a_lower_name_is_valid_and_short(name: str) -> None:
    lower = lower_name("u", "Pod", "shop", name)
    assert SUBDOMAIN.fullmatch(lower)
    assert len(lower) <= 57


def test_parts_of_a_name_do_not_run_into_each_other() -> None:
    names = {
        lower_name("u", "Pod", "a", "bc"),
        lower_name("u", "Pod", "ab", "c"),
        lower_name("u", "Poda", "", "bc"),
        lower_name("uP", "od", "a", "bc"),
        lower_name("u", "Pod", "a\0b", "c"),
        lower_name("u", "Pod", "a", "b/c"),
    }
    assert len(names) == 6


def test_a_long_label_value_is_hashed() -> None:
    assert label_value("a" * 63) == "a" * 63
    values = {label_value("a" * 64), label_value("a" * 65)}
    assert len(values) == 2
    assert all(len(value) == 63 for value in values)


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("example.dev/name", True),
        ("sub.example.dev/x", True),
        ("Example.DEV/x", True),
        ("tenantry.dev/tenant", True),
        ("a.b.tenantry.dev/x", True),
        ("nottenantry.dev/x", False),
        ("tenantry.dev", False),
        ("tenantry.dev.example.com/x", False),
        ("app", False),
    ],
)
def test_keys_of_marks_are_reserved(key: str, *, reserved: bool) -> None:
    assert PROFILE.is_reserved(key) is reserved
