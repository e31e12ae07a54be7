"""The life of contributed nodes, from what was agreed on to their end, in a world without I/O."""

from __future__ import annotations

from tenantry.api.contribution import Record, record_of
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.node import Node
from tenantry.controllers.slices.pods import Pod
from testkit.sliceworld import SliceWorld

NODE = "contributed-abc123"


def _scene(data: dict[str, str] | None) -> SliceWorld:
    there = SliceWorld()
    if not there.has(Namespace.resource, SYSTEM_NAMESPACE):
        there.world.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    if data is not None:
        metadata = {"name": record_of(NODE), "namespace": SYSTEM_NAMESPACE}
        there.world.put_in(Record.resource, {"metadata": metadata, "data": data})
    there.node(NODE)
    return there


AGREED = {"tenant": "acme", "owner": "ada", "location": "rome", "device": ""}


def test_a_node_has_the_labels_that_were_agreed_on() -> None:
    """E19: whatever its kubelet says of itself."""
    there = _scene(AGREED)
    there.settle()
    assert there.marks(NODE)["tenantry.dev/contributed-by"] == "acme"
    there.world.patch(Node.resource, NODE, {"metadata": {"labels": {"tenantry.dev/contributed-by": "eve"}}})
    there.settle()
    assert there.marks(NODE)["tenantry.dev/contributed-by"] == "acme"
    assert "unschedulable" not in there.world.get(Node.resource, NODE)["spec"]


def test_a_node_without_an_agreement_gets_no_pods() -> None:
    """E19: it is cordoned, and stays."""
    there = _scene(None)
    there.settle()
    assert there.world.get(Node.resource, NODE)["spec"]["unschedulable"] is True


def test_a_withdrawn_node_leaves_its_slice_then_its_pods_leave_then_it_is_deleted() -> None:
    """E19: in that order."""
    there = _scene(AGREED)
    there.settle()
    name = there.claim()
    there.settle()
    assert there.marks(NODE)["tenantry.dev/slice"] == name
    own, system = there.own_pod("own", NODE, name), there.pod("agent", NODE)
    there.world.patch(
        Pod.resource, system, {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}
    )
    there.withdraw(NODE)
    there.settle()
    assert not there.has(Pod.resource, own)
    assert not there.has(Node.resource, NODE)
    assert there.has(Pod.resource, system)
