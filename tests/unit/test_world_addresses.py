"""Few CIDRs for many addresses."""

from __future__ import annotations

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.world.addresses import METADATA, blocks, gateways

V4 = st.ip_addresses(v=4).map(str)
V6 = st.ip_addresses(v=6).map(str)
NEAR = st.integers(0, 4095).map(lambda n: str(ipaddress.ip_address("10.0.0.0") + n))
GIVEN = st.lists(st.one_of(V4, V6, NEAR), max_size=40)


@given(GIVEN, st.integers(1, 20))
def test_every_address_is_covered_by_few_blocks(addresses: list[str], most: int) -> None:
    """H06: no node is left out, however few blocks there may be; none overlaps another."""
    found = [ipaddress.ip_network(cidr) for cidr in blocks(addresses, most).cidrs]
    for address in addresses:
        assert sum(ipaddress.ip_address(address) in network for network in found) == 1
    for version in (4, 6):
        assert sum(network.version == version for network in found) <= most


@given(GIVEN)
def test_where_they_fit_nothing_else_is_covered(addresses: list[str]) -> None:
    """H06: what is not a node's stays within reach, and nothing is said to be widened."""
    found = blocks(addresses, 64)
    assert not found.is_widened
    covered = sum(ipaddress.ip_network(cidr).num_addresses for cidr in found.cidrs)
    assert covered == len({ipaddress.ip_address(address) for address in addresses})


@given(GIVEN, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(addresses: list[str], chance: random.Random) -> None:
    """H06: the same nodes give the same policy, so that nothing is written."""
    shuffled = list(addresses)
    chance.shuffle(shuffled)
    assert blocks(addresses, 5) == blocks(shuffled, 5)


def test_neighbours_are_put_together_and_the_far_one_stays_alone() -> None:
    """H06: what is blocked beyond the nodes is near them."""
    near = [f"10.0.0.{last}" for last in range(0, 256, 2)]
    found = blocks([*near, "203.0.113.9"], 2)
    assert found.cidrs == ("10.0.0.0/24", "203.0.113.9/32")
    assert found.is_widened


@pytest.mark.parametrize(
    ("cidr", "expected"),
    [
        ("10.1.2.0/24", "10.1.2.0/31"),
        ("10.1.2.7/32", "10.1.2.7/32"),
        ("2001:db8:1::/64", "2001:db8:1::/127"),
        ("none", ""),
        ("", ""),
    ],
)
def test_a_node_has_the_first_addresses_of_the_range_of_its_pods(cidr: str, expected: str) -> None:
    assert gateways(cidr) == expected


def test_a_subnet_that_is_named_takes_its_addresses_in() -> None:
    """H06: TenancyDefaults.spec.network.keptCidrs spares a write with each node."""
    subnet = ["10.0.0.0/16"]
    assert blocks([*subnet, "10.0.3.4"]) == blocks(subnet) == blocks([*subnet, "10.0.200.7", "10.0.3.4"])


@pytest.mark.parametrize("nonsense", ["", "node-1", "10.0.0.256", "10.0.0.0/33"])
def test_what_is_no_address_is_left_out(nonsense: str) -> None:
    """H06: a node may say anything of itself."""
    assert blocks([nonsense, "10.0.0.1"]).cidrs == ("10.0.0.1/32",)


def test_metadata_addresses_are_blocks_as_they_stand() -> None:
    """H06: sorted as they are written."""
    assert blocks(METADATA).cidrs == METADATA
