"""Changes of objects that others write too: tried at the version seen, then at the one that is read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenantry.api.errors import Conflict
from tenantry.api.node import Node
from tenantry.engine.apply import Outcome
from tenantry.engine.plan import Amendment, Plan
from testkit.sliceworld import SliceWorld

Json = dict[str, Any]
MARK = "tenantry.dev/owner"


def _labelled(node: Node) -> Json:
    return {} if MARK in node.metadata.labels else {"metadata": {"labels": {MARK: "ada"}}}


def _scene() -> tuple[SliceWorld, Node]:
    there = SliceWorld()
    there.node("n-1")
    there.settle()
    (node,) = there.cluster.cache(Node.resource)
    return there, node


def _apply(there: SliceWorld, amendment: Amendment) -> Outcome:
    return asyncio.run(there.cluster.writer.apply(Plan(writes=(amendment,))))


def test_an_object_that_changed_meanwhile_is_read_and_looked_at_again() -> None:
    there, seen = _scene()
    amendment = Amendment(seen=seen, change=_labelled)
    there.annotate("n-1", "theirs", "1")
    outcome = _apply(there, amendment)
    assert outcome.written == (amendment,)
    assert there.world.get(Node.resource, "n-1")["metadata"]["labels"][MARK] == "ada"
    assert there.notes("n-1")["theirs"] == "1"


def test_nothing_is_written_if_the_object_needs_no_change_any_more_or_is_gone() -> None:
    there, seen = _scene()
    there.world.patch(Node.resource, "n-1", {"metadata": {"labels": {MARK: "eve"}}})
    assert _apply(there, Amendment(seen=seen, change=_labelled)).written == ()
    assert there.world.get(Node.resource, "n-1")["metadata"]["labels"][MARK] == "eve"
    there.world.delete(Node.resource, "n-1")
    outcome = _apply(there, Amendment(seen=seen, change=_labelled))
    assert (outcome.written, outcome.error) == ((), None)


def test_an_object_that_may_no_longer_be_changed_is_a_conflict() -> None:
    there, seen = _scene()
    there.annotate("n-1", "theirs", "1")

    def change(node: Node) -> Json:
        if "theirs" in node.metadata.annotations:
            raise Conflict("taken", status=409)
        return _labelled(node)

    outcome = _apply(there, Amendment(seen=seen, change=change))
    assert isinstance(outcome.error, Conflict)
    assert MARK not in there.world.get(Node.resource, "n-1")["metadata"]["labels"]


@pytest.mark.parametrize("field", ["status", "spec"])
def test_a_patch_with_a_status_goes_to_the_subresource(field: str) -> None:
    there, seen = _scene()
    body: Json = {"status": {"capacity": {"x": "1"}}} if field == "status" else {"spec": {"unschedulable": True}}
    _apply(there, Amendment(seen=seen, change=lambda _: body))
    node = there.world.get(Node.resource, "n-1")
    assert (node["status"]["capacity"].get("x"), node["spec"].get("unschedulable")) == (
        ("1", None) if field == "status" else (None, True)
    )
