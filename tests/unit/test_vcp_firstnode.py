"""The first node of a control plane: one that its pods can use, and none that others have reserved."""

from __future__ import annotations

import pytest

from tenantry.api.marks import CONTRIBUTED_BY, SLICE, SLICE_RESERVED
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tenantry.controllers.virtualcontrolplane import firstnode

NOT_READY = "node.kubernetes.io/not-ready"


def node(name: str, *taints: str, ready: bool = True, cordoned: bool = False, deleted: str = "", **labels: str) -> Node:
    """Return a node; labels are `slice` and `reserved`."""
    named = {"slice": SLICE, "reserved": SLICE_RESERVED}
    return Node(
        metadata=ObjectMeta(
            name=name, labels={named[key]: value for key, value in labels.items()}, deletion_timestamp=deleted
        ),
        spec=NodeSpec(taints=tuple(Taint(key=each, effect="NoSchedule") for each in taints), unschedulable=cordoned),
        status=NodeStatus(conditions=(NodeCondition(type="Ready", status=str(ready)),)),
    )


@pytest.mark.parametrize(
    ("nodes", "own", "wanted"),
    [
        ([], "", ""),
        ([node("b"), node("a")], "", "a"),
        # Of others, or on the way to others.
        ([node("a", slice="other"), node("b", reserved="other"), node("c")], "", "c"),
        ([node("a", CONTRIBUTED_BY), node("b", "example.com/gpu"), node("c")], "", "c"),
        ([node("a", slice="other")], "", ""),
        ([node("a", slice="other"), node("b")], "own", ""),
        ([node("a"), node("b", SLICE, CONTRIBUTED_BY, slice="own")], "own", "b"),
        # One that works, if there is one.
        ([node("a", NOT_READY, ready=False), node("b", cordoned=True), node("c")], "", "c"),
        ([node("b", NOT_READY, ready=False)], "", "b"),
        ([node("a", deleted="2026-11-24T10:00:00Z"), node("b", ready=False)], "", "b"),
    ],
)
def test_the_first_node_is_one_that_pods_can_use(nodes: list[Node], own: str, wanted: str) -> None:
    assert firstnode.choose(nodes, {SLICE: own} if own else {}) == wanted
