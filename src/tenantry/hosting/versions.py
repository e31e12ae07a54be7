"""The versions of Kubernetes that hosted control planes run, and the way from one to the next: pure.

    1.35.4 ─► 1.36.3   the next minor version, or another patch release of the same one
    1.35.4 ─► 1.37.0   refused: Kubernetes does not skip minor versions
    1.36.3 ─► 1.35.4   refused: an earlier API server does not read what a later one has written

A minor version has one patch release: the one that this version of Tenantry is built with.

Source: Kubernetes, "Version Skew Policy" (supported component upgrade order).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.wording import shortened

MUTATING_POLICIES = "1.36"
"""The first version that serves MutatingAdmissionPolicy v1."""

_FULL = re.compile(r"v?(\d{1,3})\.(\d{1,4})(\.\d{1,4})?")


class HostedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version that control planes can have.

    Args:
        name: The minor version, as in "1.36".
        kubernetes: The patch release, as in "1.36.3".
        is_default: Whether new control planes have it.
        emulates: The minor version that its process behaves as; "" for its own.
    """

    name: str
    kubernetes: str
    is_default: bool = False
    emulates: str = ""


def minor(text: str) -> str:
    """Return the minor version of a version, "1.36" of "1.36.3" or "v1.36".

    Raises:
        InputError: It is not a version.
    """
    return "{}.{}".format(*_numbers(text))


def find(versions: Sequence[HostedVersion], text: str) -> HostedVersion:
    """Return a version by its name.

    Args:
        versions: Those that there are, the oldest first.
        text: The name, as in "1.36"; "" for the default.

    Raises:
        InputError: There is none of this name: the message lists those that there are.
    """
    known = next((each for each in versions if (each.name == text if text else each.is_default)), None)
    if known is None:
        names = shortened(each.name for each in reversed(versions))
        raise InputError(f"{text!r} is not a version of Kubernetes that control planes can have here: choose {names}")
    return known


def following(versions: Sequence[HostedVersion], running: str) -> HostedVersion | None:
    """Return the version that a control plane can be upgraded to; None if it has the last one.

    Args:
        versions: Those that there are.
        running: The patch release that it has.
    """
    return next((each for each in versions if _step(running, each.kubernetes) == 1), None)


def is_before(first: str, second: str) -> bool:
    """Return whether the minor version of a version is before that of another one."""
    return _numbers(first) < _numbers(second)


def minors_between(first: str, second: str) -> int:
    """Return how many minor versions later the second version is; a large number for another major version.

    Raises:
        InputError: One is not a version.
    """
    return _step(first, second)


def minor_before(text: str, count: int) -> str:
    """Return the minor version that is so many before another one of the same major version.

    Raises:
        InputError: The text is not a version.
    """
    major, number = _numbers(text)
    return f"{major}.{max(number - count, 0)}"


def check_way(running: str, wanted: str) -> None:
    """Check that a control plane may go from one version to another.

    Args:
        running: The patch release that it has.
        wanted: The patch release that it is to have.

    Raises:
        InputError: It may not: what to do.
    """
    step = _step(running, wanted)
    if step < 0:
        raise InputError(
            f"Kubernetes {wanted} does not read objects of {running}: to go back, restore a snapshot that was taken"
            f" with {minor(wanted)}, in one step with the version"
        )
    if step > 1:
        major, number = _numbers(running)
        raise InputError(
            f"Kubernetes {running} is upgraded one minor version at a time: choose {major}.{number + 1} first"
        )


def _step(running: str, wanted: str) -> int:
    """Return how many minor versions later another one is; another major version is far away."""
    (before, first), (after, second) = _numbers(running), _numbers(wanted)
    return (after - before) * 1000 + second - first


def _numbers(text: str) -> tuple[int, int]:
    found = _FULL.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is not a version of Kubernetes, as 1.36 is")
    return int(found[1]), int(found[2])
