"""Which tenant has which host: the controllers of the operator in a world without I/O."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.hostregister import HOSTS_MARK
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE, TENANT_UID, ZONE
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.api.tenant import Tenant
from tenantry.controllers.hosts.gather import GATEWAY_KINDS, INGRESSES
from tenantry.controllers.operator import controllers
from tenantry.world.hosts import zones_in
from tenantry.world.naming import child_name
from testkit.hosts import gateway, ingress, route
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

GATEWAYS, ROUTES = GATEWAY_KINDS[:2]


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    for name in ("acme", "globex"):
        world.create(tenant(name))
    _cluster(world).settle(1)
    return world


def _cluster(world: World) -> WorldCluster:
    return WorldCluster(world, controllers(CLUSTER_UID), optional=GATEWAY_KINDS)


def _put(world: World, namespace: str, value: Json, minute: int, resource: Resource = INGRESSES) -> str:
    meta = {**value["metadata"], "namespace": namespace, "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
    world.put_in(resource, {**value, "metadata": meta})
    return f"{namespace}/{meta['name']}"


def _register(world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in world.list(PolicyParameters.resource, SYSTEM_NAMESPACE, {"labelSelector": f"{OWN_MARK}={HOSTS_MARK}"}):
        found |= zones_in(texts_of(each["metadata"]["annotations"]))
    return found


def _is_taken(world: World, name: str) -> bool:
    conditions: list[Json] = world.get(Tenant.resource, name)["status"]["conditions"]
    return any(each["type"] == reasons.HOSTS_TAKEN for each in conditions)


def test_the_first_tenant_has_a_host_and_the_second_is_told() -> None:
    """E15: by an event at the object and a condition of the tenant, until the host is given up."""
    world = _world()
    _put(world, "acme", ingress("web.example"), 1)
    late = _put(world, "globex", ingress("web.example", "own.example"), 2)
    cluster = _cluster(world)
    cluster.settle(60)
    assert _register(world) == {"web.example": "acme-uid", "own.example": "globex-uid"}
    said = [(about, reason) for about, _, reason, _ in cluster.said if reason == reasons.HOST_TAKEN]
    assert said.count((late, reasons.HOST_TAKEN)) == 1
    assert (_is_taken(world, "acme"), _is_taken(world, "globex")) == (False, True)
    world.delete(INGRESSES, "acme/i")
    cluster.settle(60)
    assert _register(world)["web.example"] == "globex-uid"
    assert not _is_taken(world, "globex")


def test_a_subtenant_and_its_parent_take_no_host_of_each_other_and_both_are_told() -> None:
    """E15, E05: each zone of a tree has hosts of its own; no report names the other side."""
    world = _world()
    for name in ("shop", "desk"):
        meta = ObjectMeta(name=name, namespace="acme", creation_timestamp="2026-01-01T00:00:00Z")
        world.create(Subnamespace(metadata=meta, spec=SubnamespaceSpec(mode=Mode.SUBTENANT, owners=(user("carl"),))))
    cluster = _cluster(world)
    cluster.settle(60)
    shop, desk = (child_name("acme-uid", "acme", name) for name in ("shop", "desk"))
    first = _put(world, "acme", ingress("web.example"), 1)
    late = _put(world, shop, ingress("web.example", "*.shop.example"), 2)
    _put(world, desk, ingress("a.shop.example"), 3)
    cluster.settle(60)
    zones = {name: world.get(Namespace.resource, name)["metadata"]["labels"][ZONE] for name in (shop, desk)}
    assert zones[shop] != zones[desk]
    assert _register(world) == {"web.example": "acme-uid", "*.shop.example": zones[shop]}
    told = {about: (reason, note) for about, _, reason, note in cluster.said if reason.startswith("Host")}
    assert told[first][0] == reasons.HOST_CONTESTED
    assert {reason for about, _, reason, _ in cluster.said if about == late} == {
        reasons.HOST_TAKEN,
        reasons.HOST_CONTESTED,
    }
    assert not [note for _, note in told.values() if any(zone in note for zone in (shop, desk, "acme"))]
    types = {
        name: {each["type"] for each in world.get(Subnamespace.resource, f"acme/{name}")["status"]["conditions"]}
        for name in ("shop", "desk")
    }
    assert types["shop"] >= {reasons.HOSTS_TAKEN, reasons.HOSTS_CONTESTED}
    assert reasons.HOSTS_TAKEN in types["desk"]
    conditions: list[Json] = world.get(Tenant.resource, "acme")["status"]["conditions"]
    assert reasons.HOSTS_CONTESTED in {each["type"] for each in conditions}


def test_an_operator_that_starts_takes_back_a_condition_whose_reason_is_gone() -> None:
    world = _world()
    _put(world, "acme", ingress("web.example"), 1)
    _put(world, "globex", ingress("web.example"), 2)
    _cluster(world).settle(60)
    world.delete(INGRESSES, "globex/i")
    assert _is_taken(world, "globex")
    _cluster(world).settle(60)
    assert not _is_taken(world, "globex")


def test_hosts_follow_a_namespace_to_its_next_tenant() -> None:
    world = _world()
    _put(world, "acme", ingress("web.example"), 1)
    cluster = _cluster(world)
    cluster.settle(60)
    world.delete(Tenant.resource, "acme")
    world.finish_deletions()
    world.finish_deletions()
    world.create(tenant("acme", uid="another"))
    cluster.settle(60)
    _put(world, "acme", ingress("web.example"), 3)
    cluster.settle(60)
    assert _register(world) == {"web.example": "another"}


def test_routes_may_use_the_hosts_that_a_gateway_of_the_cluster_offers_but_no_others() -> None:
    world = _world()
    world.put_in(Namespace.resource, {"metadata": {"name": "edge"}})
    _put(world, "edge", gateway("shop.example", offered="All"), 1, GATEWAYS)
    _put(world, "acme", route("shop.example", at="edge"), 2, ROUTES)
    cluster = _cluster(world)
    cluster.settle(60)
    assert _register(world) == {"shop.example": "acme-uid"}
    _put(world, "edge", {**ingress("admin.example"), "metadata": {"name": "admin"}}, 3)
    _put(world, "acme", {**ingress("admin.example"), "metadata": {"name": "admin"}}, 4)
    cluster.settle(60)
    assert _register(world)["admin.example"] == ""
    assert _is_taken(world, "acme")


def test_an_object_in_a_namespace_that_is_not_seen_yet_waits() -> None:
    world = _world()
    cluster = _cluster(world)
    cluster.settle(60)
    world.put_in(Namespace.resource, {"metadata": {"name": "new", "labels": {TENANT_UID: "acme-uid"}}})
    _put(world, "new", ingress("web.example"), 1)
    cluster.look(INGRESSES)
    cluster.settle(look=False)
    assert _register(world) == {}
    cluster.settle(5)
    assert _register(world) == {"web.example": "acme-uid"}
