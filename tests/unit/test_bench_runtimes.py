"""`tenantry bench runtimes`: which runtimes are measured, the medians, and the table."""

from __future__ import annotations

import pytest

from tenantry.api.errors import InputError
from tenantry.bench.runtimes import (
    RuntimeFigures,
    RuntimeRates,
    RuntimeRound,
    RuntimesLoad,
    RuntimesResult,
    absent,
    chosen_of,
    figures,
)
from tenantry.cli.bench.runtimes import lines

LOAD = RuntimesLoad(rounds=3, starts=2, seconds=1, mebibytes=8)


def rates(value: float) -> RuntimeRates:
    """Return rates that are all the same."""
    return RuntimeRates(**dict.fromkeys(RuntimeRates.__struct_fields__, value))


def round_of(start: float, alone: float, beside: float) -> RuntimeRound:
    """Return a round of two pods that started equally fast."""
    return RuntimeRound(
        starts=(start, start), memory=(start * 10, start * 10), alone=rates(alone), beside=rates(beside)
    )


@pytest.mark.parametrize(
    ("classes", "only", "chosen"),
    [
        ({}, (), ("",)),
        ({"gvisor": "runsc"}, (), ("", "gvisor")),
        ({"a": "runsc", "plain": "runc", "kata": "kata-qemu"}, (), ("plain", "a", "kata")),
        ({"a": "runsc", "plain": "runc"}, ("a", "a"), ("a",)),
    ],
)
def test_the_first_is_what_shares_the_kernel(
    classes: dict[str, str], only: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    """Without a RuntimeClass of runc, it is a pod that names none."""
    assert chosen_of(classes, only) == chosen


def test_a_runtime_that_does_not_exist_is_refused_before_anything_is_created() -> None:
    with pytest.raises(InputError, match=r"--runtime 'kata': the cluster has no such RuntimeClass; it has: a, b"):
        chosen_of({"b": "runc", "a": "runsc"}, ("a", "kata"))


@pytest.mark.parametrize(
    ("handlers", "expected"),
    [
        ((), ("gVisor", "gVisor with KVM", "Kata Containers")),
        (("runc", "runsc"), ("gVisor with KVM", "Kata Containers")),
        (("runsc-kvm", "kata-clh"), ()),
    ],
)
def test_kinds_that_the_cluster_does_not_have_are_named(handlers: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert absent(handlers) == expected


def test_figures_are_medians_over_rounds() -> None:
    rounds = [round_of(1.0, 100.0, 50.0), round_of(9.0, 900.0, 90.0), round_of(2.0, 200.0, 60.0)]
    found = figures("gvisor", "runsc", rounds, "")
    assert (found.start_seconds, found.memory_mebibytes, found.rates) == (2.0, 20.0, rates(200.0))
    # Of the shares of each round, not the share of two medians.
    assert (found.beside_processor, found.beside_kernel) == (0.3, 0.3)


def test_a_runtime_that_failed_in_any_round_has_no_figures() -> None:
    """Medians of fewer rounds would be compared with those of all."""
    found = figures("kata", "kata", [round_of(1.0, 1.0, 1.0)], "the pod does not run")
    assert found == RuntimeFigures(runtime="kata", handler="kata", not_measured="the pod does not run")


def test_the_table_has_a_column_for_each_runtime_with_its_ratio_to_the_first() -> None:
    result = RuntimesResult(
        node="node-1",
        kernel="6.1",
        container_runtime="containerd://2",
        runtimes=(
            figures("", "", [round_of(1.0, 5000.0, 2500.0)], ""),
            figures("gvisor", "runsc", [round_of(1.5, 1000.0, 500.0)], ""),
            figures("kata", "kata", [], "no handler kata"),
        ),
        absent=("gVisor with KVM",),
        load=LOAD,
    )
    table = lines(result)
    found = {name: [each.strip() for each in text.split("  ") if each] for name, text in table}
    assert found["node"] == ["node-1, containerd://2, Linux 6.1"]
    assert table[1][1].split("  ")[0] == "no RuntimeClass (default)"
    assert found["start"] == ["1 s", "1.5 s (1.50)", "not measured"]
    assert found["system calls"] == ["5,000 /s", "1,000 /s (0.20)", "not measured"]
    assert found["beside others"] == ["0.5 of hashes", "0.5 of hashes (1.00)", "not measured"]
    assert ("kata", "not measured: no handler kata") in table
    assert table[-1] == ("absent", "gVisor with KVM: no RuntimeClass has such a handler")
