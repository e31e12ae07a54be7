"""A suspension of a tree in which some objects cannot be changed, or are being deleted: a world without I/O."""

from __future__ import annotations

import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine.request import ApiRequest, Verb
from testkit.model import Json, World
from testkit.treeworld import add_subnamespace, settle, world_of
from testkit.worlds import tenant

CARL: list[Json] = [{"kind": "User", "name": "carl"}]


class PickyWorld(World):
    """A world in which the API server refuses to change some objects."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.error: type[Forbidden | NotFound] = Forbidden

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request; see `World.answer`."""
        if asked.verb is Verb.PATCH and f"{asked.namespace}/{asked.name}" in self.refused:
            raise self.error(f"{asked.name} cannot be changed", status=403)
        return super().answer(asked)


def _bind(world: World, namespace: str, **metadata: object) -> str:
    meta = {"name": "guests", "namespace": namespace, **metadata}
    world.put_in(RoleBinding.resource, {"metadata": meta, "roleRef": {}, "subjects": CARL})
    return f"{namespace}/guests"


def _suspend(world: World, *, suspended: bool = True) -> None:
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": suspended}})
    settle(world)


def _end(world: World, child: str) -> None:
    """Delete the Subnamespace; an object with a finalizer keeps its namespace there."""
    world.delete(Subnamespace.resource, "acme/team")
    settle(world)
    assert "deletionTimestamp" in world.get(Namespace.resource, child)["metadata"]


def _condition(world: World, kind: str) -> Json:
    found: list[Json] = world.get(Tenant.resource, "acme")["status"]["conditions"]
    none: Json = {}
    return next((each for each in found if each["type"] == kind), none)


def _subjects(world: World, binding: str) -> list[Json]:
    return world.get(RoleBinding.resource, binding).get("subjects") or []


def test_a_child_that_cannot_end_is_suspended_and_resumed_with_the_tree() -> None:
    """E02: an owner's finalizer neither keeps the namespace open nor the tenant from being Suspended."""
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    guests = _bind(world, child, finalizers=["example.com/stays"])
    _end(world, child)
    _suspend(world)
    assert world.get(Namespace.resource, child)["metadata"]["labels"][marks.SUSPENDED] == "true"
    assert _subjects(world, guests) == []
    assert _condition(world, reasons.SUSPENDED)["status"] == "True"
    _suspend(world, suspended=False)
    assert marks.SUSPENDED not in world.get(Namespace.resource, child)["metadata"]["labels"]
    assert _subjects(world, guests) == CARL
    assert not _condition(world, reasons.SUSPENDED)


def test_a_binding_that_is_being_deleted_grants_nothing_during_a_suspension() -> None:
    """E02: RBAC obeys a binding until it is gone, and its finalizer is the owner's."""
    world = world_of()
    guests = _bind(world, "acme", finalizers=["example.com/stays"])
    world.delete(RoleBinding.resource, guests)
    settle(world)
    _suspend(world)
    assert _subjects(world, guests) == []
    assert _condition(world, reasons.SUSPENDED)["status"] == "True"
    _suspend(world, suspended=False)
    assert _subjects(world, guests) == CARL


def test_a_namespace_of_an_earlier_tenant_of_the_name_does_not_hold_the_suspension_up() -> None:
    """E02: it has another uid, and is not of this tree."""
    world = world_of()
    labels = {marks.TENANT: "acme", marks.TENANT_UID: "earlier", marks.MANAGED_BY: marks.MANAGER}
    world.put_in(Namespace.resource, {"metadata": {"name": "old", "labels": labels}})
    _suspend(world)
    assert _condition(world, reasons.SUSPENDED)["status"] == "True"


@pytest.mark.parametrize("refused", ["/{child}", "acme/guests"])
@pytest.mark.parametrize("error", [Forbidden, NotFound])
def test_one_refused_write_does_not_keep_the_rest_of_the_tree_open(
    refused: str, error: type[Forbidden | NotFound]
) -> None:
    """E02: all other bindings lose their subjects, the rest of the tenant is kept, and the refusal is reported."""
    world = PickyWorld()
    world.create(tenant("acme"))
    settle(world)
    child = add_subnamespace(world)
    settle(world)
    here, there = _bind(world, "acme"), _bind(world, child)
    settle(world)
    world.refused, world.error = {refused.format(child=child)}, error
    _suspend(world)
    labels = world.get(Namespace.resource, "acme")["metadata"]["labels"]
    assert labels[marks.SUSPENDED] == "true"
    open_ = {each for each in (here, there, "acme/tenantry-owner") if _subjects(world, each)}
    assert open_ == world.refused & {here}
    if error is Forbidden:
        assert _condition(world, reasons.READY)["status"] == "False"
        assert "cannot be changed" in _condition(world, reasons.READY)["message"]
    world.refused = set()
    settle(world)
    assert _condition(world, reasons.SUSPENDED)["status"] == "True"
    assert not _subjects(world, here)
