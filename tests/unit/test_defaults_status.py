"""What the status of TenancyDefaults reports, from several controllers, in a world without I/O."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.flowcontrol import PriorityLevelConfiguration
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.controllers.fairness.desired import TENANTS
from testkit.model import Json, World
from testkit.treeworld import operator, settle, world_of


def _condition(world: World, type_: str) -> Json:
    conditions: list[Json] = world.get(TenancyDefaults.resource, "default")["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


def _defaults(world: World, **spec: object) -> None:
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})


def test_rules_with_an_invalid_quantity_are_reported_until_they_are_corrected() -> None:
    """E15: the rules in force stay, so nothing else shows that the new ones are not."""
    world = world_of()
    _defaults(world, rules={"containers": {"max": {"cpu": "much"}}})
    cluster = settle(world)
    ready = _condition(world, reasons.READY)
    assert (ready["status"], ready["reason"]) == ("False", reasons.INVALID_SPEC)
    assert "much" in ready["message"]
    world.patch(TenancyDefaults.resource, "default", {"spec": {"rules": {"containers": {"max": {"cpu": "1"}}}}})
    cluster.settle(5)
    assert _condition(world, reasons.READY)["status"] == "True"


def test_a_level_that_another_client_created_is_reported_until_it_is_gone() -> None:
    """H06: without the level, no user is served as the settings require."""
    world = world_of()
    level: Json = {"metadata": {"name": "tenantry-reserved-acme", "labels": {}}, "spec": {"type": "Exempt"}}
    world.put_in(PriorityLevelConfiguration.resource, level)
    _defaults(world, fairness={"reserved": [{"tenant": "acme"}]})
    settle(world)
    blocked = _condition(world, reasons.LEVELS_BLOCKED)
    assert (blocked["status"], blocked["reason"]) == ("True", reasons.OBJECT_EXISTS)
    assert "tenantry-reserved-acme" in blocked["message"]
    world.delete(PriorityLevelConfiguration.resource, "tenantry-reserved-acme")
    settle(world)
    assert _condition(world, reasons.LEVELS_BLOCKED) == {}


def test_a_request_that_is_lost_once_is_not_reported() -> None:
    """H06: conditions do not flap."""
    world = world_of()
    _defaults(world)
    settle(world)
    world.delete(PriorityLevelConfiguration.resource, TENANTS)
    operator(world).settle(1)
    assert (PriorityLevelConfiguration.resource, TENANTS) in world.objects
    assert _condition(world, reasons.LEVELS_BLOCKED) == {}
