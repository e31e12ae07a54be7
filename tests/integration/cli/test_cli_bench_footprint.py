"""`tenantry bench footprint`: starts its own control planes, so it needs no other cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tenantry.local.paths import home

SECONDS = 500.0


@pytest.mark.long
def test_a_control_plane_with_tenantry_is_measured_beside_one_without() -> None:
    """X12: memory, idle CPU and the CPU of writes, and nothing stays behind."""
    before = _clusters()
    flags = ("--writes", "16", "--rounds", "1", "--idle-seconds", "2", "-o", "json")
    command = [sys.executable, "-m", "tenantry", "bench", "footprint", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    found = json.loads(done.stdout)
    assert found["plain_megabytes"] > 50
    assert found["added_megabytes"] > 0
    assert found["idle_cpu_ratio"] > 0
    counted = {each["kind"] for each in found["kinds"] if each["counted"]}
    assert (found["write_cost_ratio"] is None) == (len(counted) == len(found["kinds"]))
    assert (found["counted_write_cost_ratio"] is None) == (not counted)
    parts = ("one_key_write_cost_ratio", "same_quota_write_cost_ratio", "counted_above_same_quota_ratio")
    assert all((found[part] is None) == (not counted) for part in parts)
    assert _clusters() == before


def _clusters() -> list[Path]:
    """Return the folders of the user's clusters."""
    return sorted(home().glob("clusters/*"))
