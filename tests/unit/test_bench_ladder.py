"""`tenantry bench ladder`: the table, and what it says of figures that a cluster does not have."""

from __future__ import annotations

from tenantry.bench.ladder import LadderLoad, LadderRequests, LadderResult, LadderStep
from tenantry.cli.bench.ladder import lines

FAST, SLOW = (
    LadderRequests(per_second=900.0, p99_milliseconds=5.0),
    LadderRequests(per_second=300.0, p99_milliseconds=20.0),
)


def step(level: str, **missing: object) -> LadderStep:
    """Return a level with all figures but those that are given."""
    return LadderStep(
        **{  # type: ignore[arg-type]
            "level": level,
            "isolation_class": "hard",
            "first_answer_seconds": 1.5,
            "first_pod_seconds": 2.5,
            "idle_mebibytes": 180.0,
            "loaded_mebibytes": 220.5,
            "alone": FAST,
            "flooded": SLOW,
            "p99_ratio": 4.0,
            "score": 97,
            "writes": 40,
            "not_measured": (),
            **missing,
        }
    )


def test_each_level_is_a_column() -> None:
    load = LadderLoad(objects=1, seconds=1, idle_seconds=0)
    table = lines(LadderResult(steps=(step("namespace"), step("dedicated")), load=load))
    assert [name for name, _ in table][:4] == ["", "isolation class", "first answer", "first pod runs"]
    found = {name: text.split("  ") for name, text in table}
    assert [each.strip() for each in found["requests flooded"] if each] == ["300 /s, p99 20.0 ms"] * 2
    assert [each.strip() for each in found["memory loaded"] if each] == ["220.5 MiB"] * 2


def test_what_could_not_be_measured_is_named() -> None:
    """A column says so, and a line below the table why."""
    load = LadderLoad(objects=1, seconds=1, idle_seconds=0)
    lacking = step("namespace", idle_mebibytes=None, score=None, not_measured=("memory: no process of its own",))
    table = lines(LadderResult(steps=(lacking,), load=load))
    assert dict(table)["memory idle"] == "not measured"
    assert table[-1] == ("namespace", "not measured: memory: no process of its own")
