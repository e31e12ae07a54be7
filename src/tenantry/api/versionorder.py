"""The order of Tenantry's own versions, as PEP 440 has it: a candidate comes before its release. Pure.

    0.2.0a1 < 0.2.0a2 < 0.2.0b1 < 0.2.0rc1 < 0.2.0 < 0.10.0

The operator, the command and the release script compare versions by it: with an order that ignores candidates, an
operator of 0.2.0rc1 would undo the installation of 0.2.0.
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"([0-9]{1,9})[.]([0-9]{1,9})[.]([0-9]{1,9})(?:(a|b|rc)([0-9]{1,9}))?")
_RELEASE = "~"
"""The stage of a release: it sorts after a, b and rc."""


def order(version: str) -> tuple[int, int, int, str, int] | None:
    """Return the key by which versions are sorted; None for a text that is no version of Tenantry."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return None
    major, minor, patch, stage, number = found.groups()
    return int(major), int(minor), int(patch), stage or _RELEASE, int(number or 0)


def is_later(version: str, own: str) -> bool:
    """Return whether a version is newer than the own one; False if one of them is no version of Tenantry."""
    there, here = order(version), order(own)
    return there is not None and here is not None and there > here
