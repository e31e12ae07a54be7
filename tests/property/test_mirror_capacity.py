"""Upper nodes have at most what the lower ones have, and what all pods may still take."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.mirror import capacity, nodes
from tenantry.world import quantity
from testkit.mirroring import cached, upper_pod

Json = dict[str, Any]

RESOURCES = ("cpu", "memory", "pods", "example.com/gpu")
texts = st.sampled_from(["0", "100m", "1", "8", "1500m", "512Mi", "16Gi", "110", "1e3"])
amounts = st.fractions(min_value=-5, max_value=2**34, max_denominator=1000)
hosts = st.dictionaries(st.sampled_from(RESOURCES), texts)
lefts = st.dictionaries(st.sampled_from(RESOURCES), amounts)
owns = st.dictionaries(st.sampled_from(RESOURCES), amounts.map(abs))


@given(hosts, lefts, owns)
def test_the_smaller_of_both_counts(host: dict[str, str], left: dict[str, Fraction], own: dict[str, Fraction]) -> None:
    found = capacity.allocatable(host, left, own)
    assert set(found) == set(host)
    for resource, text in found.items():
        value, most = quantity.parse(text), quantity.parse(host[resource])
        if resource in left:
            most = min(most, max(left[resource], Fraction()) + own.get(resource, Fraction()))
        assert 0 <= value <= most
        assert abs(value - most) < Fraction(1, 10**9)


@given(hosts, lefts)
def test_equal_amounts_have_equal_digests(host: dict[str, str], left: dict[str, Fraction]) -> None:
    """So that a Node is written once, however its API server writes the amounts."""
    found = capacity.allocatable(host, left, {})
    respelled = {key: str(int(quantity.parse(text) * 10**9)) + "n" for key, text in found.items()}
    assert capacity.digest(found) == capacity.digest(respelled) != ""
    more = {key: quantity.write(quantity.parse(text) + 1) for key, text in found.items()}
    assert not found or capacity.digest(more) != capacity.digest(found)


def placed(name: str, cpu: str, phase: str = "Running", **spec: object) -> Json:
    """Return a pod that requests CPU."""
    pod = upper_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec)
    pod["metadata"]["name"] = name
    return {**pod, "status": {"phase": phase}}


def test_only_pods_that_are_on_a_node_and_have_not_ended_count() -> None:
    pods = [
        placed("a", "100m", nodeName="n1"),
        placed("b", "200m", "Pending", nodeName="n1", overhead={"cpu": "50m"}),
        placed("c", "1", nodeName="n2"),
        placed("d", "1", "Succeeded", nodeName="n1"),
        placed("e", "1", "Failed", nodeName="n1"),
        placed("f", "1", "Pending"),
        placed("g", "much", nodeName="n1"),
    ]
    found = capacity.used([cached(each) for each in pods], ["cpu", "pods"])
    assert found == {
        "n1": {"cpu": Fraction(350, 1000), "pods": Fraction(2)},
        "n2": {"cpu": Fraction(1), "pods": Fraction(1)},
    }


@pytest.mark.parametrize(
    ("name", "sizes", "is_seen"),
    [
        (nodes.upper_name("o", "rack", "u"), {"cpu": "1"}, True),
        (nodes.upper_name("o", "rack", "u"), {"cpu": "much"}, False),
        (nodes.upper_name("o", "rack", "u"), {str(n): "1" for n in range(100)}, False),
        ("rack-7", {"cpu": "1"}, False),
    ],
)
def test_nodes_of_users_are_not_kept(name: str, sizes: Json, *, is_seen: bool) -> None:
    found = capacity.seen({"metadata": {"name": name}, "status": {"allocatable": sizes}})
    assert bool(found) is is_seen
    assert len(found) <= 16
