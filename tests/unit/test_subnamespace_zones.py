"""E05, L05: which network zone a child namespace is in: the controllers of the operator in a world without I/O."""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.marks import SYSTEM_NAMESPACE, ZONE
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceIsolation, SubnamespaceSpec, ZoneChoice
from tenantry.controllers.operator import controllers
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

OWN, INHERITED = ZoneChoice.OWN, ZoneChoice.INHERITED


def _sub(namespace: str, name: str, zone: ZoneChoice = INHERITED, mode: Mode = Mode.WORKSPACE) -> Subnamespace:
    meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp="2026-01-01T00:00:00Z")
    spec = SubnamespaceSpec(mode=mode, owners=(user("carl"),), isolation=SubnamespaceIsolation(zone=zone))
    return Subnamespace(metadata=meta, spec=spec)


def _world(*made: tuple[str, str, ZoneChoice]) -> tuple[World, WorldCluster, dict[str, str]]:
    """Return a world with the Subnamespaces that are named by path, and the namespace of each."""
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    world.create(tenant("acme"))
    names = {"": "acme"}
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    cluster.settle(60)
    for above, name, zone in made:
        names[name] = child_name("acme-uid", names[above], name)
        world.create(_sub(names[above], name, zone))
        cluster.settle(60)
    return world, cluster, names


def _zones(world: World, names: dict[str, str]) -> dict[str, str]:
    found: dict[str, Json] = {name: world.get(Namespace.resource, there) for name, there in names.items()}
    return {name: each["metadata"]["labels"][ZONE] for name, each in found.items()}


def _uid(world: World, names: dict[str, str], above: str, name: str) -> str:
    return world.get(Subnamespace.resource, f"{names[above]}/{name}")["metadata"]["uid"]


def test_a_workspace_with_a_zone_of_its_own_takes_along_what_is_below_it() -> None:
    world, _, names = _world(("", "web", OWN), ("web", "deep", INHERITED), ("", "team", INHERITED))
    zone = _uid(world, names, "", "web")
    assert _zones(world, names) == {"": "acme-uid", "web": zone, "deep": zone, "team": "acme-uid"}
    policy = world.get(NetworkPolicy.resource, f"{names['deep']}/tenantry-isolation")
    peers = [each for rule in policy["spec"]["ingress"] for each in rule["from"]]
    assert [each["namespaceSelector"]["matchLabels"] for each in peers] == [{ZONE: zone}]


def test_a_change_of_the_zone_reaches_the_descendants() -> None:
    world, cluster, names = _world(("", "web", INHERITED), ("web", "deep", INHERITED), ("deep", "end", OWN))
    end = _uid(world, names, "deep", "end")
    assert _zones(world, names) == {"": "acme-uid", "web": "acme-uid", "deep": "acme-uid", "end": end}
    for zone in (OWN, INHERITED):
        world.patch(Subnamespace.resource, "acme/web", {"spec": {"isolation": {"zone": zone.value}}})
        cluster.settle(60)
        its = _uid(world, names, "", "web") if zone is OWN else "acme-uid"
        assert _zones(world, names) == {"": "acme-uid", "web": its, "deep": its, "end": end}
