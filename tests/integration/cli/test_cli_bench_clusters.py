"""`tenantry bench clusters`: starts its own API servers, so it needs no other cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SECONDS = 300.0


@pytest.mark.long
def test_many_clusters_in_one_process_are_measured() -> None:
    """X12: idle CPU, latencies and memory, with one of three API servers stopped at times."""
    flags = ("--clusters", "3", "--rounds", "2", "--idle-seconds", "1", "-o", "json")
    command = [sys.executable, "-m", "tenantry", "bench", "clusters", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    found = json.loads(done.stdout)
    assert (found["clusters"], found["rounds"]) == (3, 2)
    assert 0 <= found["idle_cpu_cores"] < 1
    assert 0 < found["latency_ms"]["median"] <= found["latency_ms"]["p99"]
    alive, stopped = found["latency_ms"]["median"], found["latency_ms_one_stopped"]["median"]
    assert found["latency_ratio_one_stopped"] == pytest.approx(stopped / alive, abs=0.01)
    assert found["api_server_megabytes"] > 50
