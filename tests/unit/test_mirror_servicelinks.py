"""The variables by which containers find Services (H01)."""

from __future__ import annotations

from typing import Any

from tenantry.mirror.servicelinks import variables

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
