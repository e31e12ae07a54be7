"""A node leaves the host and comes back as it was, wherever an operator ends between two writes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from testkit import runs
from testkit.examples import examples
from testkit.handovers import NODE, HandoverWorld
from testkit.machines import HOST, FakeMachines
from testkit.worldclient import Crash

FAULTS = st.lists(st.sampled_from(runs.FAULTS), max_size=30)

LEAST_WRITES = 12
"""Fewer than one whole life of a handover has: finalizer, marks, pods, status, and all of it back."""


class Course(msgspec.Struct, frozen=True):
    """What happens in one example.

    Args:
        cordoned: An administrator has cordoned the node before.
        pods: How many pods of the slice run there.
        joins: The cluster takes the node up.
        early: Seconds after which the handover is deleted, if the node does not join.
        meddles: An administrator uncordons the node meanwhile.
        ends: The claim ends, instead of the handover alone.
        real: It is a real node, whose machine is moved.
        again: It is rebuilt: it leaves once more, with another version.
    """

    cordoned: bool
    pods: int
    joins: bool
    early: float
    meddles: bool
    ends: bool
    real: bool
    again: bool = False


COURSES = st.builds(
    Course,
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from((0.0, 1.0, 40.0)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def _settle(there: HandoverWorld, seconds: float = 100.0) -> None:
    """Let operators work until one is through; each crash ends one, and the next takes over."""
    while True:
        try:
            there.settle(seconds)
        except Crash:
            there.restart()
        else:
            return


def _shown(there: HandoverWorld) -> object:
    """Return everything of the node that the host gets back."""
    meta, spec = there.host_node["metadata"], there.host_node["spec"]
    taints = sorted((each["key"], each["effect"]) for each in spec.get("taints") or ())
    return meta["labels"], meta["annotations"], taints, bool(spec.get("unschedulable"))


def _objects(there: HandoverWorld) -> dict[str, object]:
    return {f"{resource.kind} {key}": value for (resource, key), value in there.world.objects.items()}


def _join(there: HandoverWorld, machines: FakeMachines | None) -> None:
    if machines is not None:
        assert machines.places[NODE].startswith("wiped for ")
        there.admit()
        _settle(there)
        assert machines.places[NODE].startswith("in ")
    there.join()


def _rebuild(there: HandoverWorld, machines: FakeMachines | None, uid: str) -> None:
    """Take a node that is back to its cluster again, with the next version, and back."""
    there.heal()
    there.hand_over(uid=uid, version="1.36")
    _settle(there, 100.0)
    there.assert_is_away()
    if machines is not None:
        # Kubernetes deletes the record of the token with the NodeHandover that owns it.
        there.forget_token()
        there.admit()
        _settle(there)
        assert machines.versions[-1] == "1.36"
    there.join()
    _settle(there, 0.0)
    there.end()
    _settle(there, 50.0)
    there.let_go()
    _settle(there)
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()
    assert machines is None or machines.places[NODE] == HOST


def _live(course: Course, faults: list[str]) -> bool:  # noqa: C901 - one life, with all that may happen
    """Take a node through a course, compare it with what it was, and return whether all faults have happened."""
    rest: list[str] = []

    def fault() -> str:
        return rest.pop(0) if rest else "none"

    machines = FakeMachines(NODE, faults=fault) if course.real else None
    quota: dict[str, str | int] = {"requests.cpu": "8", "requests.memory": "64Gi"}
    there = HandoverWorld(faults=fault, quota=quota, real=course.real, machines=machines)
    if course.cordoned:
        there.world.patch(Node.resource, NODE, {"spec": {"unschedulable": True}})
        there.settle()
    before, charge = _shown(there), there.world.get(Slice.resource, there.slice)["spec"]
    for number in range(course.pods):
        there.own_pod(f"own-{number}", NODE, there.slice)
    rest += faults
    uid = there.plane()
    there.hand_over(uid=uid)
    _settle(there, 100.0 if course.joins else course.early)
    if course.joins:
        there.assert_is_away()
        _join(there, machines)
    if course.meddles:
        there.world.patch(Node.resource, NODE, {"spec": {"unschedulable": None}})
    _settle(there, 0.0)
    assert there.world.get(Slice.resource, there.slice)["spec"] == charge
    if course.ends:
        there.world.delete(SliceClaim.resource, "acme/web")
    elif there.has(NodeHandover.resource, NODE):
        there.end()
    _settle(there, 50.0 if course.joins else 200.0)
    if course.joins:
        assert there.handed["stage"] == "Returning"
        there.assert_is_away()
        there.let_go()
        _settle(there)
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()
    assert machines is None or machines.places[NODE] == HOST
    if course.again and not course.ends:
        _rebuild(there, machines, uid)
    if not course.ends and not course.meddles:
        assert _shown(there) == before
    assert there.has(Slice.resource, there.slice) is not course.ends
    is_over = not rest
    rest.clear()
    settled = _objects(there)
    there.restart()
    there.settle()
    assert _objects(there) == settled, "another operator finds nothing to do"
    return is_over


@examples(40)
@given(COURSES, FAULTS)
def test_a_node_comes_back_as_it_was(course: Course, faults: list[str]) -> None:
    """H05: whatever is lost or crashes on the way."""
    _live(course, faults)


@pytest.mark.parametrize("real", [False, True])
def test_every_prefix_of_the_writes_can_be_continued(*, real: bool) -> None:
    """H05: an operator ends before each write and each step of a machine in a whole life, and another one continues."""
    course = Course(cordoned=False, pods=1, joins=True, early=0.0, meddles=False, ends=False, real=real, again=True)
    done = 0
    while _live(course, [*["none"] * done, "crash"]):
        done += 1
    assert done >= LEAST_WRITES
