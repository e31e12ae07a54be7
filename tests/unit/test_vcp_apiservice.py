"""The host objects by which pods of a control plane reach their API server."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import marks
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import NetworkIsolation
from tenantry.api.virtualcontrolplane import PLANE, PREFIX, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import apiservice, desired
from tenantry.hosting import plane as hosting
from tenantry.hosting.placement import ServerEndpoint
from tenantry.mirror import things
from tenantry.mirror.kinds import services
from tenantry.world.selectors import meets

Json = dict[str, Any]

WEB = VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme", uid="u-web"))
SERVER = ServerEndpoint(address="10.112.128.1", port=20001)
ADDRESS = "10.96.7.7"


def test_the_service_is_the_copy_of_the_one_inside() -> None:
    """H01: DNS finds it by its marks, and no selector adds endpoints."""
    _, found = apiservice.service(WEB, ADDRESS)
    profile = desired.profile_of(WEB, ADDRESS)
    meta = found["metadata"]
    assert meta["name"] == profile.lower_name("Service", "default", "kubernetes")
    assert things.upper_key(profile, meta["annotations"]) == "default/kubernetes"
    assert things.is_of(profile, f"acme/{meta['name']}", meta["labels"])
    assert meta["labels"][f"{PREFIX}/namespace"] == "default"
    assert meta["labels"][PLANE] == "web"
    assert [each["uid"] for each in meta["ownerReferences"]] == ["u-web"]
    assert (found["spec"]["clusterIP"], found["spec"]["ports"][0]["port"]) == (ADDRESS, 443)
    assert "selector" not in found["spec"]
    assert services.KIND.is_left("default", "kubernetes")


def test_containers_and_the_certificate_have_the_address() -> None:
    """H01: never the host's API server, which containers get without it."""
    profile = desired.profile_of(WEB, ADDRESS)
    assert (profile.api_host, profile.api_port) == (ADDRESS, str(apiservice.PORT))
    assert ADDRESS in hosting.leaves(desired.plane_of(WEB, ADDRESS))["server"].names


@pytest.mark.parametrize(
    ("address", "family", "cidr"), [("10.112.128.1", "IPv4", "10.112.128.1/32"), ("fd00::1", "IPv6", "fd00::1/128")]
)
def test_endpoints_and_policy_name_one_address_and_one_port(address: str, family: str, cidr: str) -> None:
    """H01: pods of this control plane reach its API server, and by this policy nothing else."""
    server = ServerEndpoint(address=address, port=20001)
    (_, endpoints), (_, policy) = apiservice.way(WEB, server, NetworkIsolation.ISOLATED)
    assert (
        endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == apiservice.service(WEB)[1]["metadata"]["name"]
    )
    assert (endpoints["addressType"], endpoints["endpoints"][0]["addresses"]) == (family, [address])
    assert [each["port"] for each in endpoints["ports"]] == [20001]
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {f"{PREFIX}/owner": "u-web"}},
        "policyTypes": ["Egress", "Ingress"],
        "egress": [{"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"protocol": "TCP", "port": 20001}]}],
        "ingress": [{"from": [marks.OPERATOR_PEER]}],
    }


def test_an_operator_on_the_machine_of_the_api_server_reaches_its_webhooks() -> None:
    """H01: it is no Pod, and has the address of the API server; a proxy in a Pod at such an address has no need to."""
    server = ServerEndpoint(address="10.112.128.1", port=20001, is_of_operator=True)
    _, (_, policy) = apiservice.way(WEB, server, NetworkIsolation.ISOLATED)
    (rule,) = policy["spec"]["ingress"]
    assert rule == {"from": [marks.OPERATOR_PEER, {"ipBlock": {"cidr": "10.112.128.1/32"}}]}


def test_endpoints_and_policy_are_no_copies_of_objects_inside() -> None:
    """H01: else the mirror of NetworkPolicies would delete what has no NetworkPolicy inside, or take it over."""
    profile = desired.profile_of(WEB, ADDRESS)
    for resource, value in apiservice.way(WEB, SERVER, NetworkIsolation.ISOLATED):
        meta = value["metadata"]
        assert not things.is_of(profile, f"acme/{meta['name']}", meta["labels"])
        assert meta["name"] != profile.lower_name(resource.kind, "default", "kubernetes")
        assert meta["labels"][PLANE] == "web"


def test_the_policy_does_not_isolate_pods_of_an_open_tenant() -> None:
    """H01: there, it would be the only policy that selects them, and end all their other connections."""
    _, (_, policy) = apiservice.way(WEB, SERVER, NetworkIsolation.OPEN)
    requirements: list[Json] = policy["spec"]["podSelector"]["matchExpressions"]
    for labels in ({}, {PLANE: "web"}, {f"{PREFIX}/owner": "u-web"}):
        assert not all(meets(labels, each["key"], each["operator"], each.get("values", ())) for each in requirements)


def test_without_a_way_there_is_only_the_service() -> None:
    """H01: pods on simulated nodes connect to nothing."""
    assert apiservice.way(WEB, None, NetworkIsolation.ISOLATED) == ()
