"""Which hosts and addresses outside a hosted API server reaches, from the side of the attacker."""

from __future__ import annotations

import ipaddress

import pytest

from tenantry.hosting import heads
from tenantry.hosting.heads import HttpRefusal, RequestHead
from tenantry.hosting.outside import OutsideRule, canonical, forms, networks

NAME = "hooks.example.com"
PUBLIC = "8.8.8.8"
EVERYTHING = networks(("0.0.0.0/0", "::/0"))
HOST = networks(("10.9.0.0/16", "192.168.7.1", "34.1.2.3", "fd00:9::/64", "2600:9::1"))
"""What belongs to the host: pods, a node, an API server with a public address, the same in IPv6."""

WIDE = OutsideRule(
    cidrs=(*EVERYTHING, *networks(("10.0.0.0/8", "192.168.0.0/16", "127.0.0.0/8", "169.254.169.254/32", "fc00::/7"))),
    hosts=("*.example.com", "*.com"),
    kept=HOST,
)
"""An administrator who allows too much."""

NEVER = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "224.0.0.1"),  # noqa: S104 - refused
    *("239.1.1.1", "255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("::", "::1", "fe80::1", "fe80::a9fe:a9fe", "fe80::1%1", "ff02::1", "fec0::1", "fd00:ec2::254", "fd20:ce::254"),
    # IPv4 in other clothes: mapped, compatible, SIIT, NAT64, a NAT64 of an operator's choice, 6to4, Teredo, ISATAP.
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:ffff::1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2600::5efe:7f00:1", "2600::200:5efe:a9fe:a9fe"),
    # The host's own, in each form.
    *("10.9.1.2", "192.168.7.1", "34.1.2.3", "::ffff:34.1.2.3", "64:ff9b::34.1.2.3", "64:ff9b::a09:1", "fd00:9::5"),
    *("2600:9::1", "2600:9:0:0:0:0:0:1"),
]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("is_named", [True, False], ids=["name", "address"])
def test_no_list_opens_the_host(address: str, is_named: bool) -> None:  # noqa: FBT001 - a parameter
    """VCP-4: whether the address is in the URL or behind a name that is allowed."""
    assert WIDE.refusal(NAME if is_named else address, address)


SPECIAL = [
    *("10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.1.1", "198.18.0.2"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.9", "192.0.0.1", "192.88.99.1"),
    *("fc00::1", "fd12:3456::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1", "2001:2::1"),
    *("::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "64:ff9b::c0a8:101", "2600::5efe:a01:203"),
]


@pytest.mark.parametrize("address", SPECIAL)
def test_allowing_the_internet_opens_no_private_address(address: str) -> None:
    """VCP-4: 0.0.0.0/0 and ::/0 do not name the range of a private address."""
    internet = OutsideRule(cidrs=EVERYTHING, hosts=(NAME,))
    assert internet.refusal(NAME, address)
    assert internet.refusal(address, address)


@pytest.mark.parametrize(
    ("cidr", "address"),
    [
        ("10.1.0.0/16", "10.1.2.3"),
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.1.0.0/16", "::ffff:10.1.2.3"),
        ("192.168.1.1/32", "192.168.1.1"),
        ("fd12:3456::/32", "fd12:3456::1"),
        ("203.0.113.0/24", "203.0.113.9"),
        ("8.8.8.0/24", PUBLIC),
        ("0.0.0.0/0", PUBLIC),
        ("2600::/16", "2600::1"),
        ("64:ff9b::/96", "64:ff9b::808:808"),
    ],
)
def test_a_cidr_opens_what_it_names(cidr: str, address: str) -> None:
    assert not OutsideRule(cidrs=networks((cidr,))).refusal(address, address)


@pytest.mark.parametrize(
    ("cidr", "address"),
    [
        ("10.1.0.0/16", "10.2.0.1"),
        ("10.0.0.0/7", "10.1.2.3"),  # it names more than the private range
        ("8.8.8.0/24", "8.8.9.1"),
        ("10.1.0.0/16", "64:ff9b::10.1.2.3"),
        ("::/0", PUBLIC),
    ],
)
def test_a_cidr_opens_nothing_else(cidr: str, address: str) -> None:
    assert OutsideRule(cidrs=networks((cidr,))).refusal_of_host(address)


def test_names_and_addresses_are_allowed_apart() -> None:
    named, addressed = OutsideRule(hosts=(NAME,)), OutsideRule(cidrs=EVERYTHING)
    assert not named.refusal_of_host(NAME)
    assert not named.refusal(NAME, PUBLIC)
    assert named.refusal_of_host(PUBLIC)
    assert addressed.refusal_of_host(NAME)
    assert addressed.refusal(NAME, PUBLIC), "the rule may have changed while the name was resolved"
    both = OutsideRule(hosts=(NAME,), cidrs=networks(("10.1.0.0/16",)))
    assert not both.refusal(NAME, "10.1.2.3")
    assert both.refusal(NAME, "10.2.2.3")


@pytest.mark.parametrize(
    ("pattern", "name", "is_allowed"),
    [
        ("a.example.com", "a.example.com", True),
        ("a.example.com", "b.a.example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "b.a.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("*.example.com", "example.com.evil.org", False),
    ],
)
def test_a_star_is_one_label_or_more(pattern: str, name: str, is_allowed: bool) -> None:  # noqa: FBT001 - a column
    assert bool(OutsideRule(hosts=(pattern,)).refusal_of_host(name)) is not is_allowed


@pytest.mark.parametrize("answer", ["", "no address", "10.1.2.3\n", "0x7f000001", "2130706433", "fe80::1%eth0"])
def test_an_answer_that_is_no_address_is_refused(answer: str) -> None:
    assert WIDE.refusal(NAME, answer)


@pytest.mark.parametrize(
    "host",
    ["0177.0.0.1", "2130706433", "0x7f.1", "127.1", "hooks.example.com.", "LOCALHOST", "[::ffff:169.254.169.254]"],
)
def test_other_spellings_of_an_address_are_refused(host: str) -> None:
    """VCP-4: decimal, octal and hexadecimal numbers, trailing dots, upper case, IPv4 in brackets."""
    head = RequestHead(method="CONNECT", target=f"{host}:443", headers=())
    try:
        found, _ = heads.destination(head)
    except HttpRefusal:
        return
    assert WIDE.refusal_of_host(found)


def test_a_name_in_upper_case_is_the_same_name() -> None:
    head = RequestHead(method="CONNECT", target="Hooks.EXAMPLE.com:443", headers=())
    assert not OutsideRule(hosts=(NAME,)).refusal_of_host(heads.destination(head)[0])


def test_without_lists_nothing_is_reached() -> None:
    nothing = OutsideRule(advice="ask")
    for host in (NAME, PUBLIC, "10.1.2.3", "2600::1"):
        assert nothing.refusal_of_host(host).endswith(": ask")


def test_a_refusal_does_not_show_what_a_name_resolves_to() -> None:
    """The names of the host's network are not public."""
    for address in ("10.9.1.2", "10.1.2.3", "127.0.0.1", "192.168.7.1"):
        reason = OutsideRule(hosts=(NAME,), kept=HOST).refusal(NAME, address)
        assert NAME in reason
        assert address not in reason


def test_forms_of_an_address() -> None:
    assert forms(ipaddress.IPv6Address("64:ff9b::a01:203"))[1:] == (ipaddress.IPv4Address("10.1.2.3"),)
    assert canonical("::ffff:10.1.2.3") == ipaddress.IPv4Address("10.1.2.3")
    assert canonical("fe80::1%eth0") is None


def test_the_host_in_mapped_form_is_kept() -> None:
    assert networks(("::ffff:10.1.0.0/112", "x", "10.1.2.3/8")) == networks(("10.1.0.0/16", "10.0.0.0/8"))
