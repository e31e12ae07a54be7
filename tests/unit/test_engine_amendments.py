"""Changes of objects that others write too: tried at the version seen, then at the one that is read."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import Conflict
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.node import Node
from tenantry.controllers import suspension
from tenantry.engine.apply import Outcome
from tenantry.engine.observed import observe
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
    amendment = Amendment(resource=Node.resource, seen=seen, change=_labelled)
    there.annotate("n-1", "theirs", "1")
    outcome = _apply(there, amendment)
    assert outcome.written == (amendment,)
    assert there.world.get(Node.resource, "n-1")["metadata"]["labels"][MARK] == "ada"
    assert there.notes("n-1")["theirs"] == "1"


def test_nothing_is_written_if_the_object_needs_no_change_any_more_or_is_gone() -> None:
    there, seen = _scene()
    there.world.patch(Node.resource, "n-1", {"metadata": {"labels": {MARK: "eve"}}})
    assert _apply(there, Amendment(resource=Node.resource, seen=seen, change=_labelled)).written == ()
    assert there.world.get(Node.resource, "n-1")["metadata"]["labels"][MARK] == "eve"
    there.world.delete(Node.resource, "n-1")
    outcome = _apply(there, Amendment(resource=Node.resource, seen=seen, change=_labelled))
    assert (outcome.written, outcome.error) == ((), None)


def test_an_object_that_may_no_longer_be_changed_is_a_conflict() -> None:
    there, seen = _scene()
    there.annotate("n-1", "theirs", "1")

    def change(node: Node) -> Json:
        if "theirs" in node.metadata.annotations:
            raise Conflict("taken", status=409)
        return _labelled(node)

    outcome = _apply(there, Amendment(resource=Node.resource, seen=seen, change=change))
    assert isinstance(outcome.error, Conflict)
    assert MARK not in there.world.get(Node.resource, "n-1")["metadata"]["labels"]


@pytest.mark.parametrize("field", ["status", "spec"])
def test_a_patch_with_a_status_goes_to_the_subresource(field: str) -> None:
    there, seen = _scene()
    body: Json = {"status": {"capacity": {"x": "1"}}} if field == "status" else {"spec": {"unschedulable": True}}
    _apply(there, Amendment(resource=Node.resource, seen=seen, change=lambda _: body))
    node = there.world.get(Node.resource, "n-1")
    assert (node["status"]["capacity"].get("x"), node["spec"].get("unschedulable")) == (
        ("1", None) if field == "status" else (None, True)
    )


def test_a_binding_that_changed_between_the_read_and_the_write_is_read_again() -> None:
    """A Conflict of a suspension must not wait for the queue: the binding admits users until it is closed."""
    there, _ = _scene()
    binding = {"metadata": {"name": "b", "namespace": "default"}, "subjects": [{"kind": "User", "name": "eve"}]}
    there.world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    there.world.put_in(RoleBinding.resource, binding)
    live = there.world.get(RoleBinding.resource, "default/b")
    seen = observe(RoleBinding.resource, msgspec.json.encode(live))
    (change,) = suspension.edits([seen], suspended=True, ours="")
    changes = iter(["1"])

    def meddle(found: Json) -> Json:
        for value in changes:
            there.world.patch(RoleBinding.resource, "default/b", {"metadata": {"labels": {"theirs": value}}})
        return change.change(found)

    outcome = _apply(there, msgspec.structs.replace(change, change=meddle))
    assert outcome.error is None
    assert there.world.get(RoleBinding.resource, "default/b").get("subjects") is None
