"""Packages that several kinds use know none of their users: a rule on whole words of code, comments and strings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("src/tenantry/hosting", "src/tenantry/mirror", "go/hosted")
USERS = {"virtual", "vcp"}
KUBERNETES: set[str] = set()
"""Names of Kubernetes itself that contain such a word."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words(text: str) -> set[str]:
    """Return the words of a text in lower case, those of identifiers apart."""
    for name in KUBERNETES:
        text = text.replace(name, "")
    return {word.lower() for word in _WORD.findall(text)}


@pytest.mark.parametrize(
    "file",
    [
        str(file.relative_to(ROOT))
        for place in PLACES
        for file in sorted((ROOT / place).rglob("*"))
        if file.suffix in {".py", ".go"}
    ],
)
def test_no_user_is_named(file: str) -> None:
    """H01: what hosts control planes and what mirrors objects get everything specific as an input."""
    assert not words((ROOT / file).read_text()) & USERS


def test_the_rule_sees_words_inside_identifiers() -> None:
    """The test itself."""
    assert words("VirtualNode vcp_name isVCP") == {"virtual", "node", "vcp", "name", "is"}
    assert words("virtually VCPs") & USERS == set()
