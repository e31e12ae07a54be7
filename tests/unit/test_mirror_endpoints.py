"""What the EndpointSlices of a Service without a selector say together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.mirror import endpoints
from tenantry.mirror.cachedpods import Kept
from tenantry.mirror.endpoints import WrittenSlice
from testkit.mirroring import PROFILE

Json = dict[str, Any]


def slice_of(*addresses: str, port: object = 5433, name: str = "s", **conditions: bool) -> Json:
    """Return an EndpointSlice."""
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {endpoints.SERVICE_NAME: "db"}},
        "endpoints": [{"addresses": [each], "conditions": conditions} for each in addresses],
        "ports": [{"name": "pg", "port": port}],
    }


MANY = tuple(f"10.1.0.{number}" for number in range(endpoints.MOST_ADDRESSES))
NULLS: Json = {"metadata": {"name": "s"}, "endpoints": [{"addresses": None}], "ports": [{"port": None}]}
FULL = [slice_of("10.1.0.7", name=f"s{number:02}") for number in range(endpoints.MOST_SLICES)]
PORTS = [{"name": f"p{number}", "port": 1 + number} for number in range(endpoints.MOST_PORTS + 1)]


def seen(value: Json) -> WrittenSlice:
    """Return an EndpointSlice as it is cached."""
    return endpoints.seen(msgspec.Raw(msgspec.json.encode(value)))


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
        ([NULLS], (), ""),
        ([*FULL, slice_of("10.1.0.8", name="t"), slice_of("10.1.0.9", name="u")], ("10.1.0.7",), "EndpointSlices t, u"),
        ([slice_of(name="a"), *FULL, slice_of(name="t")], ("10.1.0.7",), ""),
        ([slice_of("10.1.0.7", name="t") | {"ports": PORTS}], (), "EndpointSlice 't': it may have at most 100 ports"),
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
        "nulls",
        "many-slices",
        "empty-slices",
        "many-ports",
    ],
)
def test_slices_name_ready_addresses_with_the_same_ports(
    slices: list[Json], addresses: tuple[str, ...], refused: str
) -> None:
    """H01: a Service with a selector has one number for each of its ports, so slices that differ have no effect."""
    found = endpoints.written(map(seen, slices))
    assert found.addresses == addresses
    assert found.refused.startswith(refused)
    assert bool(found.refused) == bool(refused)


def test_the_number_of_a_port_is_that_of_the_slice() -> None:
    """H01: kube-proxy finds it by the name of the port; the target of the Service has no effect without a selector."""
    spec: Json = {
        "ports": [{"name": "pg", "port": 5432, "targetPort": 1}, {"name": "pg", "protocol": "UDP", "port": 1}]
    }
    endpoints.lead(spec, [seen(slice_of("10.1.0.7"))], "example.dev/serves-1", PROFILE)
    assert [port.get("targetPort") for port in spec["ports"]] == [5433, None]
    assert spec["selector"] == {"example.dev/owner": "u-plane", "example.dev/serves-1": ""}


def test_what_is_cached_of_a_slice_is_small() -> None:
    """H01: a Service may have a thousand slices of 256 KiB, which no reconcile decodes again."""
    most = [f"fd00::{number}" for number in range(10 * endpoints.MOST_ADDRESSES)]
    found = seen(slice_of(*most) | {"extra": "x" * 200_000})
    assert found.service == "shop/db"
    assert len(found.addresses) == endpoints.MOST_ADDRESSES
    assert len(msgspec.json.encode(found.addresses)) < 5_000
    head = endpoints.seen(msgspec.Raw(msgspec.json.encode(slice_of("10.1.0.7"))), Kept.TOO_MANY)
    assert (head.key, head.service, head.addresses) == ("shop/s", "", ())
