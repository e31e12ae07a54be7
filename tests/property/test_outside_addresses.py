"""No address of the host is ever dialled, whatever an administrator lists and whatever a name resolves to."""

from __future__ import annotations

import asyncio
import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from tenantry.hosting.dialling import OutsideInputs, checked
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.outside import NEVER, SPECIAL, OutsideRule, canonical, forms, networks
from tenantry.world.addresses import Network

NAME = "hooks.example.com"
HOST = networks(("10.9.0.0/16", "192.168.7.1", "34.1.2.3", "fd00:9::/64", "2600:9::1"))


def inside(ranges: tuple[Network, ...]) -> st.SearchStrategy[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return addresses of ranges."""
    return st.sampled_from(ranges).flatmap(
        lambda network: st.integers(0, network.num_addresses - 1).map(lambda number: network[number])
    )


def disguised(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> st.SearchStrategy[str]:
    """Return the spellings of an address: as it is, or within an IPv6 address."""
    if isinstance(address, ipaddress.IPv6Address):
        return st.sampled_from([str(address), address.exploded, str(address).upper()])
    number = int(address)
    prefixes = (0xFFFF << 32, 0, 0xFFFF << 48, 0x64FF9B << 96, 0x5EFE << 32 | 0x2600 << 112)
    within = [str(ipaddress.IPv6Address(prefix | number)) for prefix in prefixes]
    sixtofour = str(ipaddress.IPv6Address(0x2002 << 112 | number << 80))
    return st.sampled_from([str(address), *within, sixtofour])


any_address = st.ip_addresses().map(str)
forbidden = inside((*NEVER, *HOST)).flatmap(disguised)
private = inside(SPECIAL).flatmap(disguised)
cidrs = st.lists(
    st.one_of(
        st.sampled_from(networks(("0.0.0.0/0", "::/0", "10.0.0.0/8", "127.0.0.0/8", "fe80::/10", "10.9.0.0/16"))),
        st.tuples(st.ip_addresses(), st.integers(0, 32)).map(lambda each: networks((f"{each[0]}/{each[1]}",))[0]),
    ),
    max_size=6,
)
rules = cidrs.map(lambda found: OutsideRule(cidrs=tuple(found), hosts=(NAME, "*.com"), kept=HOST))


def dialled(rule: OutsideRule, host: str, answers: list[str]) -> list[str]:
    """Return the addresses that the gate would dial; [] if it refuses."""

    async def resolve(_: str) -> list[str]:
        return answers

    inputs = OutsideInputs(refusal=rule.refusal, resolve=resolve, is_own=lambda _: False)
    try:
        return asyncio.run(checked(inputs, host))
    except HttpRefusal:
        return []


@given(rules, forbidden, st.lists(any_address, max_size=3), st.integers(0, 3))
def test_the_host_is_never_dialled(rule: OutsideRule, bad: str, others: list[str], place: int) -> None:
    """VCP-4: as the address itself, or as one of the addresses of a name that is allowed."""
    answers = [*others[:place], bad, *others[place:]]
    assert dialled(rule, bad, []) == []
    assert dialled(rule, NAME, answers) == []


@given(rules, st.lists(st.one_of(any_address, private, forbidden), min_size=1, max_size=3))
def test_what_is_dialled_is_public_or_named_and_was_checked(rule: OutsideRule, answers: list[str]) -> None:
    for host in (NAME, answers[0]):
        for each in dialled(rule, host, answers):
            address = canonical(each)
            assert address is not None
            assert each == str(address), "the form that was checked"
            for form in forms(address):
                assert not any(form in network for network in (*NEVER, *HOST))
                special = [network for network in SPECIAL if form in network]
                named = [cidr for cidr in rule.cidrs if form in cidr]
                assert not special or any(cidr.subnet_of(each) for cidr in named for each in special)  # pyright: ignore[reportArgumentType]
            assert host == NAME or any(address in cidr for cidr in rule.cidrs)


@given(private)
def test_without_a_cidr_no_private_address_is_dialled(address: str) -> None:
    rule = OutsideRule(cidrs=networks(("0.0.0.0/0", "::/0")), hosts=(NAME,))
    assert dialled(rule, NAME, [address]) == dialled(rule, address, []) == []


@given(st.ip_addresses(v=4))
def test_ipv4_in_ipv6_is_dialled_as_the_ipv4_that_was_checked(address: ipaddress.IPv4Address) -> None:
    rule = OutsideRule(cidrs=networks(("0.0.0.0/0",)), hosts=(NAME,))
    found = dialled(rule, NAME, [str(address)])
    assert dialled(rule, NAME, [f"::FFFF:{address}"]) == dialled(rule, f"::ffff:{address}", []) == found
