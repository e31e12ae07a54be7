"""What the EndpointSlices of a Service without a selector say together."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.mirror import endpoints
from testkit.mirroring import PROFILE

Json = dict[str, Any]


def slice_of(*addresses: str, port: object = 5433, name: str = "s", **conditions: bool) -> Json:
    """Return an EndpointSlice."""
    return {
        "metadata": {"name": name},
        "endpoints": [{"addresses": [each], "conditions": conditions} for each in addresses],
        "ports": [{"name": "pg", "port": port}],
    }


MANY = tuple(f"10.1.0.{number}" for number in range(endpoints.MOST_ADDRESSES))
MALFORMED: Json = {"metadata": {}, "endpoints": [{"addresses": None}, 7], "ports": [None, {"port": "x"}]}


@pytest.mark.parametrize(
    ("slices", "addresses", "refused"),
    [
        ([], (), ""),
        ([slice_of("10.1.0.7")], ("10.1.0.7",), ""),
        ([slice_of("10.1.0.7"), slice_of("10.1.0.8", "10.1.0.7")], ("10.1.0.7", "10.1.0.8"), ""),
        ([slice_of("10.1.0.7", ready=False)], (), ""),
        ([slice_of("10.1.0.7", ready=True, serving=False)], ("10.1.0.7",), ""),
        ([slice_of("FD00:0::1")], ("fd00::1",), ""),
        ([slice_of("db.example.com")], ("db.example.com",), ""),
        ([slice_of("10.1.0.7"), slice_of("10.1.0.8", port=80, name="t")], ("10.1.0.7",), "EndpointSlice 't'"),
        ([slice_of(port=80), slice_of("10.1.0.8")], ("10.1.0.8",), ""),
        ([slice_of(*MANY, MANY[0], name="t")], MANY, "EndpointSlice 't': only its first 100 addresses"),
        ([MALFORMED], (), ""),
    ],
    ids=[
        "none",
        "one",
        "two",
        "not-ready",
        "serving",
        "ipv6",
        "name",
        "other-ports",
        "no-addresses",
        "many",
        "malformed",
    ],
)
def test_slices_name_ready_addresses_with_the_same_ports(
    slices: list[Json], addresses: tuple[str, ...], refused: str
) -> None:
    """H01: a Service with a selector has one number for each of its ports, so slices that differ have no effect."""
    found = endpoints.written(slices)
    assert found.addresses == addresses
    assert found.refused.startswith(refused)
    assert bool(found.refused) == bool(refused)


def test_the_number_of_a_port_is_that_of_the_slice() -> None:
    """H01: kube-proxy finds it by the name of the port; the target of the Service has no effect without a selector."""
    spec: Json = {
        "ports": [{"name": "pg", "port": 5432, "targetPort": 1}, {"name": "pg", "protocol": "UDP", "port": 1}]
    }
    endpoints.lead(spec, [slice_of("10.1.0.7")], "example.dev/serves-1", PROFILE)
    assert [port.get("targetPort") for port in spec["ports"]] == [5433, None]
    assert spec["selector"] == {"example.dev/owner": "u-plane", "example.dev/serves-1": ""}
