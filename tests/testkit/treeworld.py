"""A tenant's tree in a `testkit.model.World`, with the operator's controllers and what Kubernetes' own ones do."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.controllers.operator import controllers
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

PEOPLE = Inheritance(role_bindings=InheritanceMode.SYNC)


def operator(world: World) -> WorldCluster:
    """Return an operator that has just started."""
    return WorldCluster(world, controllers(CLUSTER_UID))


def settle(world: World, seconds: float = 30) -> WorldCluster:
    """Run one operator, and Kubernetes' own controllers, until nothing changes."""
    cluster = operator(world)
    for _ in range(4):
        cluster.settle(seconds)
        world.count_quotas()
        world.finish_deletions()
    cluster.settle(seconds)
    return cluster


def world_of(**fields: Any) -> World:  # noqa: ANN401 - any argument of `tenant`
    """Return a world with the settled tenant acme."""
    world = World()
    world.create(tenant("acme", **fields))
    settle(world)
    return world


def add_subnamespace(
    world: World,
    name: str = "team",
    namespace: str = "acme",
    *,
    created: str = "2026-01-01T00:00:00Z",
    **fields: Any,  # noqa: ANN401 - of the spec
) -> str:
    """Create a Subnamespace in the tree of acme, a Workspace by default, and return its namespace's name."""
    spec = msgspec.structs.replace(SubnamespaceSpec(mode=Mode.WORKSPACE, inheritance=PEOPLE), **fields)
    world.create(
        Subnamespace(metadata=ObjectMeta(name=name, namespace=namespace, creation_timestamp=created), spec=spec)
    )
    return child_name("acme-uid", namespace, name)


def condition(world: World, type_: str, name: str = "team", namespace: str = "acme") -> Json:
    """Return a condition of a Subnamespace; {} if it has none of that type."""
    conditions: list[Json] = world.get(Subnamespace.resource, f"{namespace}/{name}")["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)
