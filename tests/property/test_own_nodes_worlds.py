"""From any edits of a Tenant and of its SliceClaim, with faults and restarts, the claim is as it should be."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import OWN_NODES, SLICE, TENANT
from tenantry.api.slice import SliceClaim, slice_name
from tenantry.api.tenant import Tenant
from testkit import runs
from testkit.examples import examples
from testkit.sliceworld import SliceWorld
from testkit.worldclient import Crash

Json = dict[str, Any]
FAULTS = st.lists(st.sampled_from(runs.FAULTS), max_size=25)
KEY = "acme/acme"
HANDS: dict[str, Json] = {
    "nothing": {},
    "more nodes": {"spec": {"count": 3}},
    "other users": {"spec": {"users": "Subnamespaces", "mode": "Manual"}},
    "an end": {"spec": {"expiresAt": "2026-01-02T00:00:00Z"}},
    "no marks": {"metadata": {"labels": None, "ownerReferences": None}},
}
"""What an administrator changes in the claim by hand."""


class Turn(msgspec.Struct, frozen=True):
    """One change, and the state of the Tenant that it leaves.

    Args:
        count: The number of nodes in the Tenant; 0 for nodes of all tenants.
        hand: See `HANDS`; "deleted" deletes the claim.
    """

    count: int
    hand: str


TURNS = st.lists(st.builds(Turn, st.integers(0, 2), st.sampled_from(["deleted", *HANDS])), min_size=1, max_size=3)


def _settle(there: SliceWorld, faults: list[str]) -> None:
    """Let operators work until one is through; each crash ends one, and the next takes over."""
    while True:
        try:
            there.settle(700.0)
        except Crash:
            there.restart()
        else:
            if not faults:
                return


def _assert_is_kept(there: SliceWorld, count: int) -> None:
    labels = there.world.get(Namespace.resource, "acme")["metadata"]["labels"]
    if not count:
        assert not there.has(SliceClaim.resource, KEY)
        assert (labels.get(OWN_NODES), labels.get(SLICE), there.slices) == (None, None, [])
        return
    claim = there.world.get(SliceClaim.resource, KEY)
    spec = {key: value for key, value in claim["spec"].items() if value != {}}
    assert spec.pop("count", 1) == count
    assert spec == {"mode": "Dynamic", "users": "Everybody"}
    assert claim["metadata"]["labels"][TENANT] == "acme"
    assert [each["kind"] for each in claim["metadata"]["ownerReferences"]] == ["Tenant"]
    assert claim["status"]["state"] == "Bound"
    assert (labels[OWN_NODES], labels[SLICE]) == ("true", slice_name("acme", claim["metadata"]["uid"]))
    told = {each["type"]: each["status"] for each in there.world.get(Tenant.resource, "acme")["status"]["conditions"]}
    assert (told["Ready"], told["NodesReady"]) == ("True", "True")


@examples(15)
@given(TURNS, FAULTS)
def test_the_claim_of_a_tenant_is_kept(turns: list[Turn], faults: list[str]) -> None:
    """E13: whatever is lost or crashes on the way, and a second plan is empty."""
    rest: list[str] = []
    there = SliceWorld(faults=lambda: rest.pop() if rest else "none")
    for number in range(2):
        there.node(f"n-{number}")
    for turn in turns:
        rest += faults
        isolation: Json = {"nodes": "Slice", "slice": {"count": turn.count}} if turn.count else {}
        there.world.patch(Tenant.resource, "acme", {"spec": {"isolation": isolation or {"nodes": None, "slice": None}}})
        _settle(there, rest)
        rest += faults
        try:
            if turn.hand == "deleted":
                there.world.delete(SliceClaim.resource, KEY)
            else:
                there.world.patch(SliceClaim.resource, KEY, HANDS[turn.hand])
        except NotFound:
            assert not turn.count
        _settle(there, rest)
        _assert_is_kept(there, turn.count)
    before = dict(there.world.objects)
    there.restart()
    there.settle(100.0)
    assert dict(there.world.objects) == before, "another operator finds nothing to do"
