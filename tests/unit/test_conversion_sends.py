"""How a conversion sends the writes of a stage (H01)."""

from __future__ import annotations

from tenantry.api.errors import Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.controllers.conversion.moves import Move, Side
from tenantry.controllers.conversion.objects import ROLES
from tenantry.controllers.conversion.sides import send
from tenantry.controllers.virtualcontrolplane.connections import PlaneSides
from tenantry.engine import request
from testkit.mirroring import PROFILE
from testkit.model import World
from testkit.worldcluster import WorldCluster


def role(name: str) -> Move:
    body: Json = {"metadata": {"name": name, "namespace": "acme"}, "rules": []}
    return Move(side=Side.INSIDE, request=request.create_json(ROLES, body))


async def test_one_refused_write_leaves_the_others_under_way() -> None:
    world, faults = World(), ["lost"]
    world.create(Namespace(metadata=ObjectMeta(name="acme")))
    world.put_in(ROLES, {"metadata": {"name": "there", "namespace": "acme"}, "rules": []})
    cluster = WorldCluster(world, [], faults=lambda: faults.pop() if faults else "none")
    sides = PlaneSides(profile=PROFILE, upper=cluster, lower=cluster.writer, reader=cluster.live)
    wanted = [role(name) for name in ("a", "b", "there", *(f"c{number}" for number in range(40)))]
    error = await send(wanted, sides)
    assert isinstance(error, Unreachable)
    assert len(world.list(ROLES)) == len(wanted) - 1
    assert await send(wanted, sides) is None
    assert len(world.list(ROLES)) == len(wanted)
