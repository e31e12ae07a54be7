"""Limits of processes, in real cgroups of this machine."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tenantry.local.limits import LimitedGroup, ProcessLimits
from tenantry.local.real import cgroups

MEBIBYTE = 2**20
LIMITS = ProcessLimits(memory_bytes=64 * MEBIBYTE, cpu_millis=50)
ALLOCATE = "import sys; sys.stdin.readline(); kept = b'x' * int(sys.argv[1]); sys.stdout.write('kept')"


@pytest.fixture
def cluster() -> Iterator[str]:
    """A name that no cluster has."""
    name = f"tnttest{uuid.uuid4().hex[:8]}"
    yield name
    assert not _left(name), "the cgroups are gone"


def _left(cluster: str) -> list[str]:
    return [str(path) for each in cgroups.hierarchies() for path in each.root.glob(f"{cluster}*")]


def _run(group: LimitedGroup, size: int) -> tuple[str, int]:
    """Return what a process said that allocates memory once it is confined, and how it ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", ALLOCATE, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    why = group.confine(process.pid, LIMITS)
    said, _ = process.communicate("go\n")
    group.remove()
    if why:
        pytest.skip(f"no cgroup can be made here: {why}")
    return said, process.returncode


def test_the_kernel_ends_a_process_that_needs_more_memory(cluster: str) -> None:
    """H01: one that stays below goes on."""
    group = LimitedGroup(cluster, "hosted@acme.web")
    assert _run(group, MEBIBYTE) == ("kept", 0)
    assert _run(group, 256 * MEBIBYTE) == ("", -9)


def test_groups_of_others_stay(cluster: str) -> None:
    """Each has a cgroup of its own, and the last removes what they share."""
    one, other = LimitedGroup(cluster, "hosted@acme.web"), LimitedGroup(cluster, "hosted@acme.api")
    sleeper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.readline()"], stdin=subprocess.PIPE)
    try:
        if why := one.confine(sleeper.pid, LIMITS):
            pytest.skip(f"no cgroup can be made here: {why}")
        assert _run(other, MEBIBYTE) == ("kept", 0)
        assert _left(cluster)
    finally:
        sleeper.communicate(b"end\n")
    one.remove()


def test_a_process_that_has_ended_is_no_error(cluster: str) -> None:
    """It may crash before it is confined."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    group = LimitedGroup(cluster, "hosted@acme.web")
    why = group.confine(process.pid, LIMITS)
    group.remove()
    assert "No such process" not in why
