"""The addresses of Services inside are those of the host (H01): IPv4, IPv6 and both; pure."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.controllers.virtualcontrolplane import servicenetwork
from tenantry.controllers.virtualcontrolplane.servicenetwork import FALLBACK
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.mirror import things
from tenantry.mirror.things import Thing


def cidr(name: str, *ranges: str) -> Thing:
    """A ServiceCIDR of the host."""
    value = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {"cidrs": ranges}}
    return things.whole(msgspec.Raw(msgspec.json.encode(value)))


@pytest.mark.parametrize(
    ("host", "ranges"),
    [
        (("10.0.0.0/16",), "10.0.0.0/16"),
        (("fd00:1::/108",), "fd00:1::/108"),
        (("10.0.0.0/16", "fd00:1::/108"), "10.0.0.0/16,fd00:1::/108"),
        (("fd00:1::/108", "10.0.0.0/16"), "fd00:1::/108,10.0.0.0/16"),
    ],
)
def test_every_family_of_the_host_works_inside(host: tuple[str, ...], ranges: str) -> None:
    """H01: the primary one is the same."""
    found = servicenetwork.find([cidr("kubernetes", *host)])
    assert (found.ranges, found.unused) == (ranges, ())
    assert servicenetwork.missing(found) is None
    plane = HostedPlane(uid="u", name="n", issuer="https://i.example", owner="o", service_range=ranges)
    flags = msgspec.json.decode(hosting.settings(plane, 20000, "/openapi"))
    assert f"--service-cluster-ip-range={ranges}" in flags["apiServer"]
    assert f"--service-cluster-ip-range={ranges}" in flags["controllers"]
    is_6 = host[0].startswith("fd")
    # Kubernetes requires one of the primary family.
    assert f"--advertise-address={'2001:db8::1' if is_6 else '192.0.2.1'}" in flags["apiServer"]
    assert ("fd00:1::1" if is_6 else "10.0.0.1") in hosting.leaves(plane)["server"].names


def test_ranges_that_do_not_work_inside_are_named_with_their_family() -> None:
    """H01: an API server takes one range of each family."""
    more = [cidr("kubernetes", "10.0.0.0/16"), cidr("six", "fd00:1::/108"), cidr("part", "10.0.4.0/24")]
    problem = servicenetwork.missing(servicenetwork.find(more))
    assert problem is not None
    assert "fd00:1::/108 (IPv6)" in problem.message
    assert "10.0.4.0/24" not in problem.message


def test_a_host_without_service_cidrs_has_the_usual_range() -> None:
    assert servicenetwork.find([]).ranges == FALLBACK
