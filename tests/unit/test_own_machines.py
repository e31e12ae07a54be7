"""Where a control plane with nodes of its own may connect to (H04): pure."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import HandoverPlane, HandoverStage, NodeHandover, NodeHandoverSpec, NodeHandoverStatus
from tenantry.controllers.virtualcontrolplane.ownmachines import machines, of_own_nodes
from tenantry.hosting.destinations import Direct, Outside, Refused
from tenantry.hosting.outside import OutsideRule, networks

ADDRESS, PODS = "10.113.200.11", "10.113.1.0/24"
CLOSED = OutsideRule(cidrs=(), hosts=(), kept=networks(["10.96.0.0/16"]), advice="ask")


def handover(name: str = "n-1", plane: str = "p-1", stage: HandoverStage = HandoverStage.JOINED) -> NodeHandover:
    """Return the NodeHandover of a machine."""
    return NodeHandover(
        metadata=ObjectMeta(name=name),
        spec=NodeHandoverSpec(plane=HandoverPlane(namespace="acme", name="prod", uid=plane), slice="s"),
        status=NodeHandoverStatus(stage=stage, addresses=(ADDRESS,), pod_range=PODS),
    )


def decide(host: str, port: int, *found: NodeHandover, rule: OutsideRule = CLOSED) -> object:
    """Return the destination of a host and a port."""
    return of_own_nodes(lambda: rule, lambda: machines(found or (handover(),), "p-1"))(host, port)


def test_the_kubelet_and_the_pods_of_a_machine_are_reached() -> None:
    assert decide(ADDRESS, 10250) == Direct(address=ADDRESS, port=10250)
    assert decide("10.113.1.7", 8443) == Direct(address="10.113.1.7", port=8443)
    # An IPv4 address in IPv6 is the same address, and is dialled as such.
    assert decide(f"::ffff:{ADDRESS}", 10250) == Direct(address=ADDRESS, port=10250)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        (ADDRESS, 22),
        (ADDRESS, 10255),
        ("10.113.200.12", 10250),
        ("10.113.2.7", 8443),
        ("10.113.0.1", 10250),
        ("127.0.0.1", 10250),
        ("::1", 10250),
        ("169.254.169.254", 80),
        ("10.96.0.1", 443),
        ("192.168.0.1", 443),
        ("0.0.0.0", 10250),  # noqa: S104 - never bound
        ("n-1", 10250),
        ("10.113.1.7.nip.io", 8443),
        ("localhost", 10250),
    ],
)
def test_nothing_else_is_dialled(host: str, port: int) -> None:
    assert isinstance(decide(host, port), Refused)


@pytest.mark.parametrize("stage", [*HandoverStage])
def test_a_machine_is_reached_while_it_runs_for_this_control_plane(stage: HandoverStage) -> None:
    there = stage in {HandoverStage.JOINING, HandoverStage.JOINED, HandoverStage.RETURNING}
    for host, port in ((ADDRESS, 10250), ("10.113.1.7", 80)):
        assert isinstance(decide(host, port, handover(stage=stage)), Direct) is there
        assert isinstance(decide(host, port, handover(plane="p-2", stage=stage)), Refused)


def test_an_address_that_stands_for_the_host_itself_is_never_that_of_a_machine() -> None:
    for address in ("127.0.0.1", "169.254.1.1", "::1", "", "localhost"):
        found = handover()
        found = replace(found, status=replace(found.status, addresses=(address,), pod_range=""))
        assert isinstance(decide(address or "n-1", 10250, found), Refused)


def test_what_administrators_of_the_host_allow_is_reached() -> None:
    rule = OutsideRule(cidrs=networks(["203.0.113.0/24"]), hosts=("hooks.example.com",), kept=(), advice="ask")
    assert decide("203.0.113.9", 443, rule=rule) == Outside(host="203.0.113.9", port=443)
    assert decide("hooks.example.com", 443, rule=rule) == Outside(host="hooks.example.com", port=443)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_whatever_is_dialled_is_of_a_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    found = decide(str(address), port)
    if isinstance(found, Direct):
        dialled = ipaddress.ip_address(found.address)
        assert dialled in ipaddress.ip_network(PODS) or (found.address, found.port) == (ADDRESS, 10250)
