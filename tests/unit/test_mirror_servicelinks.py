"""The variables by which containers find Services (H01)."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.engine.cluster import Watch
from tenantry.mirror import things
from tenantry.mirror.kinds import services
from tenantry.mirror.servicelinks import MOST_SERVICES, SETTLING_SECONDS, ServiceLinks, variables
from tenantry.mirror.upperobjects import UpperObjects
from testkit.clock import ManualClock
from testkit.mirroring import PROFILE
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]


def service(name: str, *ports: Json, **spec: object) -> Json:
    """A Service."""
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"ports": list(ports), **spec}}


def test_a_service_has_the_variables_that_kubelet_gives() -> None:
    found = service("my-db", {"name": "sql", "port": 5432}, {"port": 53, "protocol": "UDP"}, clusterIP="10.0.0.1")
    assert variables([found]) == {
        "MY_DB_SERVICE_HOST": "10.0.0.1",
        "MY_DB_SERVICE_PORT": "5432",
        "MY_DB_SERVICE_PORT_SQL": "5432",
        "MY_DB_PORT": "tcp://10.0.0.1:5432",
        "MY_DB_PORT_5432_TCP": "tcp://10.0.0.1:5432",
        "MY_DB_PORT_5432_TCP_PROTO": "tcp",
        "MY_DB_PORT_5432_TCP_PORT": "5432",
        "MY_DB_PORT_5432_TCP_ADDR": "10.0.0.1",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.1:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.1",
    }


def test_addresses_of_six_are_in_brackets() -> None:
    found = variables([service("web", {"port": 80}, clusterIP="fd00::1")])
    assert (found["WEB_PORT"], found["WEB_SERVICE_HOST"]) == ("tcp://[fd00::1]:80", "fd00::1")


def test_what_has_no_address_has_no_variables() -> None:
    """Headless ones, those that name another host, one without ports, and one of which the head alone is cached."""
    headless = service("a", {"port": 80}, clusterIP="None")
    outside = service("b", {"port": 80}, type="ExternalName", externalName="example.com")
    bare = service("c", clusterIP="10.0.0.1")
    assert variables([headless, outside, bare, {"metadata": {"name": "d", "namespace": "shop"}}]) == {}


def linked(*found: Json, below: tuple[Json, ...] | None = None, after: float = 0.0) -> dict[str, str] | None:
    """Return the variables of the namespace "shop", whose users have made these Services.

    Args:
        found: The upper Services.
        below: The lower ones; None for the same ones.
        after: When they are read, in seconds after the first time.
    """
    world, lower_world = World(), World()
    for each in ("shop", "other"):
        world.create(Namespace(metadata=ObjectMeta(name=each)))
    for each in found:
        world.put_in(services.RESOURCE, each)
    lower_world.create(Namespace(metadata=ObjectMeta(name=PROFILE.namespace)))
    for each in found if below is None else below:
        meta = each["metadata"]
        name = PROFILE.lower_name("Service", meta["namespace"], meta["name"])
        made = {**each, "metadata": {"name": name, "namespace": PROFILE.namespace}}
        lower_world.put_in(services.RESOURCE, made)
    cluster, lower = WorldCluster(world, []), WorldCluster(lower_world, [])
    lower.listen(
        lower.lane.listener("below", Watch(resource=services.RESOURCE, decode=things.whole, keys=lambda _: ()))
    )
    lower.look()
    links = ServiceLinks(PROFILE, cluster, lower, UpperObjects(services.RESOURCE, PROFILE, cluster))
    watch = links.watch()
    cluster.listen(cluster.lane.listener("links", watch))
    cluster.look()
    named = links.of("shop")
    if after:
        assert isinstance(cluster.clock, ManualClock)
        cluster.clock.advance(after)
        named = links.of("shop")
    return dict(named) if named is not None else None


def test_containers_have_the_services_of_their_own_namespace() -> None:
    other = service("other", {"port": 80}, clusterIP="10.0.0.2")
    other["metadata"]["namespace"] = "other"
    found = linked(service("web", {"port": 80}, clusterIP="10.0.0.1"), other)
    assert found is not None
    assert (found["WEB_SERVICE_HOST"], "OTHER_SERVICE_HOST" in found) == ("10.0.0.1", False)


@pytest.mark.parametrize("below", [(), (service("web", {"port": 80}, clusterIP="10.0.0.9"),)])
def test_no_container_gets_an_address_that_its_service_has_not_on_the_lower_side(below: tuple[Json, ...]) -> None:
    """H02: after a restore, it may be that of another tenant's Service; a pod waits, but not for ever."""
    web, db = (service(each, {"port": 80}, clusterIP=f"10.0.0.{number}") for number, each in enumerate(("web", "db")))
    assert linked(web, db, below=(*below, db)) is None
    found = linked(web, db, below=(*below, db), after=SETTLING_SECONDS)
    assert found is not None
    assert (found["DB_SERVICE_HOST"], "WEB_SERVICE_HOST" in found) == ("10.0.0.1", False)


PORTS: list[Json] = [{"port": 1 + number, "name": f"port-{number}"} for number in range(6000)]


@pytest.mark.parametrize(
    "found",
    [
        [service(f"web-{number}", {"port": 80}, clusterIP="10.0.0.1") for number in range(MOST_SERVICES + 1)],
        [service("web", *PORTS, clusterIP="10.0.0.1")],
    ],
)
def test_users_cannot_make_the_operator_write_any_number_of_variables(found: list[Json]) -> None:
    """VCP-63: they choose how many Services there are, and how many ports each has."""
    assert linked(*found) == {}
