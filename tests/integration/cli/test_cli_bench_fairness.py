"""`tenantry bench fairness` on a real control plane: what it says, and that it leaves nothing behind."""

from __future__ import annotations

import signal
import time

import pytest
from cli_command import SECONDS, Cli

SMALL = ("--connections", "8", "--objects", "20", "--seconds", "0.5", "--rounds", "1")


def nothing_is_left(cli: Cli) -> None:
    for kind in ("namespaces", "tenants", "flowschemas"):
        assert "bench-" not in cli.kubectl("get", kind, "-o", "name").stdout


@pytest.mark.long
def test_a_flood_is_measured_at_both_levels(cli: Cli) -> None:
    """H06, X12: with the level of all tenants, and where Kubernetes would serve them without it."""
    found = cli.json("bench", "fairness", *SMALL, "-o", "json")
    ours, theirs = found["with_level"], found["without_level"]
    assert (ours["level"], theirs["level"]) == ("tenantry-tenants", "global-default")
    assert (found["ratio"], found["ratio_without"]) == (ours["ratio"], theirs["ratio"])
    for side in (ours, theirs):
        assert side["flood_per_second"] > 0
        assert side["exempt_ratio"] > 0
        both = side["flooded"]["p99_seconds"] / side["alone"]["p99_seconds"]
        assert side["ratio"] == pytest.approx(both, abs=0.01)
    nothing_is_left(cli)


def test_an_interrupted_one_cleans_up(cli: Cli) -> None:
    """X12: Ctrl-C while the flood rises."""
    process = cli.start("bench", "fairness", "--seconds", "60", *SMALL[:4])
    try:
        end = time.monotonic() + SECONDS
        while (
            "bench-"
            not in cli.kubectl(
                "get",
                "configmaps",
                "-A",
                "-o",
                "name",
                "--field-selector=metadata.name=c0",
                "-o",
                "custom-columns=N:.metadata.namespace",
            ).stdout
        ):
            assert time.monotonic() < end
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    nothing_is_left(cli)
