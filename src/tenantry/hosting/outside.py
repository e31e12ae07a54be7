"""Which hosts outside of the cluster a hosted API server may reach: names, and each address before it is dialled. Pure.

    host is a name     ─► in `hosts`?  ─► resolved once ─┐
    host is an address ─► in `cidrs`?  ──────────────────┴─► each address: never? kept? special? ─► dialled as it is

An address that carries another one, as NAT64 does, counts as both. Some addresses are never dialled, whatever the lists
have: an administrator who allows 0.0.0.0/0 means the internet, not the machine that the gate runs on. Addresses that
are not public need a CIDR that lies within their range: 10.1.0.0/16 opens private addresses, 0.0.0.0/0 does not.

    rule = OutsideRule(cidrs=(10.1.0.0/16, 0.0.0.0/0), hosts=("*.example.com",))
    rule.refusal("10.1.2.3", "10.1.2.3")           ""                10.1.0.0/16 lies in 10.0.0.0/8
    rule.refusal("10.2.0.1", "10.2.0.1")           special           only 0.0.0.0/0 has it
    rule.refusal("a.b.example.com", "127.0.0.1")   never dialled

Sources: IANA, IPv4 and IPv6 Special-Purpose Address Registries; RFC 6052 (NAT64); RFC 5214 (ISATAP); RFC 9637.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from tenantry.world.addresses import METADATA, Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and CIDRs as networks; IPv4 in IPv6 becomes IPv4, and what is neither is left out."""
    found: list[Network] = []
    for text in given:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue
        is_mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped
        if is_mapped and network.prefixlen >= _MAPPED_PREFIX:
            network = ipaddress.IPv4Network((is_mapped, network.prefixlen - _MAPPED_PREFIX), strict=False)
        found.append(network)
    return tuple(found)


_MAPPED_PREFIX = 96

NEVER = networks(
    (
        "0.0.0.0/8",  # Linux connects to itself at 0.0.0.0
        "127.0.0.0/8",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # unspecified, loopback, and IPv4 in a deprecated form
        "::ffff:0:0:0/96",  # stateless translation
        "64:ff9b:1::/48",  # NAT64 of an operator's choice: the IPv4 address is at any of six places
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "fec0::/10",
        "ff00::/8",
        "192.0.0.192/32",  # Oracle Cloud's metadata service on older machines
        *METADATA,
    )
)
"""Loopback, link-local, metadata and multicast addresses, and mechanisms that hide an IPv4 address."""

SPECIAL = networks(
    (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
    )
)
"""Ranges that are not public: private, shared, for documentation, for benchmarks, for protocols."""

_PUBLIC = networks(("0.0.0.0/0", "2000::/3", "64:ff9b::/96"))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = 0x00005EFE
_WITHOUT_UNIVERSAL_BIT = 0xFDFFFFFF
_LAST_32 = 0xFFFFFFFF


def canonical(text: str) -> Address | None:
    """Return an address, IPv4 in IPv6 as IPv4; None for anything else, as an address with a scope."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        return None if found.scope_id else found.ipv4_mapped or found
    return found


def forms(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 address that a router reads in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    number = int(address)
    if address in _NAT64 or (number >> 32) & _WITHOUT_UNIVERSAL_BIT == _ISATAP:
        return address, ipaddress.IPv4Address(number & _LAST_32)
    return (address,)


class OutsideRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of one hosted API server; without lists, it refuses everything.

    Args:
        cidrs: Addresses that may be reached; a range that is not public must be named by a CIDR within it.
        hosts: DNS names, in lower case; "*.example.com" is every name below example.com, of any number of labels.
        kept: Further addresses that are never dialled: of the host's nodes, API servers, Services and pods.
        advice: What a user can do about a refusal.
    """

    cidrs: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()
    kept: tuple[Network, ...] = ()
    advice: str = ""

    def refusal_of_host(self, host: str) -> str:
        """Return why a host may not be reached, before its name is resolved; "" if its addresses decide."""
        if canonical(host) is not None:
            return self.refusal(host, host)
        return "" if self._names(host) else self._advised(f"{host} is not an allowed host")

    def refusal(self, host: str, address: str) -> str:
        """Return why an address of a host may not be dialled; "" if it may.

        The text for a name does not contain the address, because the names of the host's network are not public.

        Args:
            host: The name, or the address itself.
            address: One of its addresses.
        """
        found = canonical(address)
        if found is None:
            return f"{host} has no address that can be dialled"
        if canonical(host) is None:
            if not self._names(host):
                return self._advised(f"{host} is not an allowed host")
            subject = f"{host} resolves to an address that"
        elif not _within(found, self.cidrs):
            return self._advised(f"{host} is not in an allowed CIDR")
        else:
            subject = host
        return next(filter(None, (self._refusal(each, subject) for each in forms(found))), "")

    def _refusal(self, address: Address, subject: str) -> str:
        if _within(address, NEVER):
            return f"{subject} is a loopback, link-local, metadata or multicast address, which is never dialled"
        if _within(address, self.kept):
            return f"{subject} belongs to the cluster that hosts this API server, which is never dialled"
        if not self._is_open(address):
            return self._advised(f"{subject} is not public, and no allowed CIDR names its range")
        return ""

    def _names(self, host: str) -> bool:
        return any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in self.hosts)

    def _is_open(self, address: Address) -> bool:
        ranges = [each for each in SPECIAL if address in each]
        if not ranges:
            return _within(address, _PUBLIC)
        return any(address in each and _is_part(each, ranges) for each in self.cidrs)

    def _advised(self, reason: str) -> str:
        return f"{reason}: {self.advice}" if self.advice else reason


def _within(address: Address, ranges: Iterable[Network]) -> bool:
    return any(address in each for each in ranges)


def _is_part(cidr: Network, ranges: Iterable[Network]) -> bool:
    # Both have the address, so they are of one family, and one contains the other.
    return any(cidr.prefixlen >= each.prefixlen for each in ranges)
