"""Simulated nodes: from flags and files to Node objects."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.errors import InputError
from tenantry.api.marks import HANDOVER_RECORD
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.local import nodes
from tenantry.local.nodes import ZONE


def test_flags_make_nodes_in_zones_in_turn() -> None:
    plan = nodes.plan_from_flags(3, cpu="4", memory="0.5Gi", labels=("a=b,c=d", "e="), zones="x,y")
    found = nodes.desired(plan)
    assert list(found) == ["node-1", "node-2", "node-3"]
    assert [node.metadata.labels[ZONE] for node in found.values()] == ["x", "y", "x"]
    first = found["node-1"]
    assert first.status.capacity == {"cpu": "4", "memory": "512Mi", "pods": "110", "ephemeral-storage": "200Gi"}
    assert first.metadata.labels["c"] == "d"
    assert first.metadata.labels["e"] == ""
    assert first.metadata.annotations["kwok.x-k8s.io/node"] == first.metadata.labels["kwok.x-k8s.io/node"] == "fake"


def test_a_file_makes_groups() -> None:
    text = """
    - {name: big, count: 2, capacity: {cpu: 64, nvidia.com/gpu: 8}, zone: a}
    - {name: own, labels: {disk: ssd}, taints: [{key: dedicated, effect: NoSchedule}]}
    """
    found = nodes.desired(nodes.plan_from_yaml(text, "nodes.yaml"))
    assert list(found) == ["big-1", "big-2", "own-1"]
    assert found["big-2"].status.capacity["nvidia.com/gpu"] == "8"
    assert found["own-1"].spec.taints[0].key == "dedicated"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: A}", r'\$\[0\]\.name: "A" must be a DNS label'),
        ("- {name: a}\n- {name: a}", r'\$\[1\]\.name: "a" must not be there twice'),
        ("- {cpu: 3}", r"unknown field `cpu`"),
        ("- {count: -1}", r"`int` >= 0"),
        ("- {capacity: {cpu: many}}", r"\$\[0\]\.capacity\.cpu: 'many' is not a quantity"),
        ("- {capacity: {cpu: -1}}", r'\$\[0\]\.capacity\.cpu: "-1" must not be negative'),
        ("- {labels: {a b: c}}", r'\$\[0\]\.labels: "a b" must be a label key'),
        ("- {labels: {a: 'c d'}}", r'the value "c d" must be'),
        ("- {zone: 'a b'}", r'\$\[0\]\.zone: the value "a b" must be'),
        ("- {taints: [{key: a, effect: Never}]}", r"taints\[0\]\.effect"),
        ("name: a", r"must be a list of groups"),
        ("- {name: a", r"must be YAML"),
        ("- {name: a, count: 3000}\n- {name: b, count: 3000}", r"at most 5000 nodes"),
    ],
)
def test_bad_files_are_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nodes.plan_from_yaml(text, "nodes.yaml")


@pytest.mark.parametrize(
    ("count", "flags", "message"),
    [
        (-1, {}, "--nodes -1 must be"),
        (1, {"labels": ("a",)}, '--node-labels "a" must be KEY=VALUE'),
        (1, {"cpu": "x"}, "'x' is not a quantity"),
    ],
)
def test_bad_flags_are_refused(count: int, flags: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        nodes.plan_from_flags(count, **flags)  # pyright: ignore[reportArgumentType] - a table of flags


def test_a_difference_is_empty_where_nothing_differs() -> None:
    wanted = nodes.desired(nodes.plan_from_flags(3))
    assert nodes.difference(wanted, wanted) == ([], [])


def test_nodes_come_and_go_and_are_replaced_when_they_change() -> None:
    found = nodes.desired(nodes.plan_from_flags(3))
    fewer = nodes.desired(nodes.plan_from_flags(2))
    other = nodes.desired(nodes.plan_from_flags(3, cpu="9"))
    gone, new = nodes.difference(fewer, found)
    assert ([node.metadata.name for node in gone], new) == (["node-3"], [])
    gone, new = nodes.difference(found, fewer)
    assert (gone, [node.metadata.name for node in new]) == ([], ["node-3"])
    gone, new = nodes.difference(other, found)
    assert len(gone) == len(new) == 3


def test_a_node_that_kubernetes_taints_is_read() -> None:
    """E19: the taint of a node that lost power says since when."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-21T16:58:46Z"}
    node = msgspec.convert({"metadata": {"name": "real-2"}, "spec": {"taints": [taint]}}, nodes.Node)
    assert [each.key for each in node.spec.taints] == ["node.kubernetes.io/unreachable"]
    assert not node.is_ready


def test_a_start_does_not_wait_for_nodes_that_serve_a_tenants_cluster() -> None:
    """H04, H05: they are Ready there; after a crash of the machine, `up` would never end."""
    away = Node(metadata=ObjectMeta(name="n", annotations={HANDOVER_RECORD: "{}"}))
    assert not nodes.is_late(away)
    assert nodes.is_late(msgspec.structs.replace(away, metadata=ObjectMeta(name="n")))
