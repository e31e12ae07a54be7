"""From any world of claims and nodes, with faults and restarts, slices have their nodes alone or nothing at all."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from testkit import runs
from testkit.examples import examples
from testkit.sliceworld import PART, SliceWorld
from testkit.worldclient import Crash

FAULTS = st.lists(st.sampled_from(runs.FAULTS), max_size=25)
EDITS: dict[str, dict[str, object]] = {
    "none": {},
    "no taints": {"spec": {"taints": None}},
}


def _settle(there: SliceWorld, faults: list[str], seconds: float = 700.0) -> None:
    """Let operators work until one is through; each crash ends one, and the next takes over."""
    while True:
        try:
            there.settle(seconds)
        except Crash:
            there.restart()
        else:
            if not faults:
                return


def _parts_on(there: SliceWorld, name: str) -> set[str]:
    found = there.world.get(Node.resource, name)["status"]["allocatable"]
    return {key.partition(".parts.")[0] for key in found if ".parts." in key}


def _assert_is_settled(there: SliceWorld, slices: dict[str, tuple[str, int]], *, shared: bool) -> None:
    """Each claim has what it asks for, or nothing, as its status says; no node is another's."""
    nodes = [each["metadata"]["name"] for each in there.world.list(Node.resource)]
    for claim, (name, count) in slices.items():
        if shared:
            has = [node for node in nodes if name in _parts_on(there, node)]
        else:
            has = [node for node in nodes if there.marks(node).get("tenantry.dev/slice-reserved") == name]
        is_bound = there.label() == name
        for node in has if is_bound and not shared else ():
            assert there.marks(node)["tenantry.dev/slice"] == name
            assert there.marks(node)["taints"] == ["NoExecute", "NoSchedule"]
        if there.has(SliceClaim.resource, f"acme/{claim}"):
            assert len(has) in {0, count}
            assert there.state(claim)[0] in ({"Bound", "Reserved"} if has else {"Pending"})
        else:
            assert has == []
    before = _without_messages(there)
    there.restart()
    there.settle(100.0)
    assert _without_messages(there) == before, "another operator finds nothing to do"


def _without_messages(there: SliceWorld) -> dict[str, object]:
    """Return everything but the statuses of claims: which nodes others have is news to no claim that waits."""
    return {
        f"{resource.kind} {key}": value
        for (resource, key), value in there.world.objects.items()
        if resource != SliceClaim.resource
    }


class Course(msgspec.Struct, frozen=True):
    """What happens in one example.

    Args:
        counts: Of the claims.
        nodes: How many there are.
        ends: How many claims are deleted later.
        edit: What a person does to the first node meanwhile.
        shared: Nodes are given out in parts.
    """

    counts: list[int]
    nodes: int
    ends: int
    edit: str
    shared: bool


COURSES = st.builds(
    Course,
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from(sorted(EDITS)),
    st.booleans(),
)


@examples(20)
@given(COURSES, FAULTS)
def test_claims_have_all_of_their_nodes_or_nothing_and_give_everything_back(course: Course, faults: list[str]) -> None:
    """E12, E20: whatever is lost or crashes on the way."""
    rest: list[str] = []
    there = SliceWorld(faults=lambda: rest.pop() if rest else "none")
    for number in range(course.nodes):
        there.node(f"n-{number}", shared=course.shared)
        there.pod(f"p-{number}", f"n-{number}")
    there.settle(1.0)
    rest += faults
    slices = {
        f"c-{number}": (there.claim(f"c-{number}", **{**(PART if course.shared else {}), "count": count}), count)
        for number, count in enumerate(course.counts)
    }
    _settle(there, rest)
    _assert_is_settled(there, slices, shared=course.shared)
    there.world.patch(Node.resource, "n-0", EDITS[course.edit])
    rest += faults
    for name in list(slices)[: course.ends]:
        there.world.delete(SliceClaim.resource, f"acme/{name}")
    _settle(there, rest)
    _assert_is_settled(there, slices, shared=course.shared)
