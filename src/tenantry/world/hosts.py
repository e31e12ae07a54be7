"""Which network zone owns which hostname: pure.

A zone is a tenant without its Subtenants, or a Subtenant without the Subtenants below it: a parent must not take the
hosts of its Subtenants, nor they those of their parent. A zone keeps a host as long as any of its objects has it. If
objects of several zones got it at the same instant, the oldest object wins, as with most Ingress controllers, and both
sides are told. A host with *. overlaps every host below it, and overlapping hosts belong to one zone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

import msgspec

from tenantry.api import policyparameters
from tenantry.api.hostregister import FIELD, HOST_PARTS, LINE, PARTS, SEPARATOR, WILDCARD_PARTS, WILDCARDS

MOST_OF_ONE = 100
"""The maximum of hosts of one tenant in one part of the register, so that no tenant fills it."""

MOST_BYTES = policyparameters.MOST_BYTES
"""The maximum size of a part in bytes."""

LONGEST = 253
"""The maximum length of a host in characters. Source: RFC 1035, section 2.3.4."""

_KEYS = LONGEST * (len(policyparameters.PREFIX) + len(str(LONGEST)))
"""The size of the keys of a part's texts in bytes, at most."""

_HOST = re.compile(r"(?:[*][.])?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class HostUse(msgspec.Struct, frozen=True):
    """The hosts of one object.

    Args:
        created: Its creationTimestamp.
        uid: Of the object.
        kind: Of the object.
        namespace: Of the object.
        name: Of the object.
        zone: The network zone of the namespace; "" for a namespace without a tenant.
        hosts: In normal form.
    """

    created: str
    uid: str
    kind: str
    namespace: str
    name: str
    zone: str
    hosts: tuple[str, ...]


class HostHolder(msgspec.Struct, frozen=True):
    """The network zone that owns a host.

    Args:
        zone: "" if the namespace belongs to no tenant.
        namespace: Of the oldest object that has the host.
    """

    zone: str
    namespace: str


class HostClash(msgspec.Struct, frozen=True):
    """An object has a host that another zone also requested, or that overlaps one.

    Args:
        use: The object.
        host: Its host.
        keeps: Its zone owns the host; otherwise the other zone does.
    """

    use: HostUse
    host: str
    keeps: bool = False


class HostAssignment(msgspec.Struct, frozen=True):
    """The owners of all hosts.

    Args:
        holders: By host; previous owners first, then the oldest.
        clashes: Objects with hosts of another zone, the oldest first.
        contests: For the owners: the oldest objects with the hosts that these overlap, sorted likewise.
    """

    holders: dict[str, HostHolder]
    clashes: tuple[HostClash, ...]
    contests: tuple[HostClash, ...] = ()


def normal(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return hosts in lower case, sorted, without duplicates; invalid ones are left out."""
    lower = {host.lower() for host in hosts}
    return tuple(sorted(host for host in lower if len(host) <= LONGEST and _HOST.fullmatch(host)))


def is_wildcard(host: str) -> bool:
    """Return whether a host is a wildcard."""
    return host.startswith("*.")


def part_of(host: str) -> str:
    """Return the part of the register that lists a host."""
    parts = WILDCARD_PARTS if is_wildcard(host) else HOST_PARTS
    return parts[blake2b(host.encode(), digest_size=1).digest()[0] % len(parts)]


# -- division -------------------------------------------------------------------------------------


def divided(uses: Iterable[HostUse], before: Mapping[str, str]) -> HostAssignment:
    """Return the owner of each host.

    Args:
        uses: Of all objects, in any order.
        before: Host to the zone that owned it so far.
    """
    ordered = sorted(uses, key=lambda each: (each.created, each.uid))
    pairs = [(use, host) for use in ordered for host in use.hosts]
    pairs.sort(key=lambda pair: before.get(pair[1]) != pair[0].zone)  # previous owners first
    held = _Held(host for _, host in pairs)
    clashes: list[HostClash] = []
    for use, host in pairs:
        if held.is_anothers(host, use.zone):
            clashes.append(HostClash(use, host))
        else:
            held.take(host, use)
    contests = held.contested(clashes)
    for found in (clashes, contests):
        found.sort(key=lambda each: (each.use.created, each.use.uid, each.host))
    return HostAssignment(held.holders, tuple(clashes), tuple(contests))


class _Held:
    """The owned hosts, searchable by the hosts that overlap them.

    Args:
        hosts: Every host that will be looked up.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.holders: dict[str, HostHolder] = {}
        self._uses: dict[str, HostUse] = {}
        # The zones with a host below each wildcard domain that is looked up.
        self._below: dict[str, set[str]] = {host[1:]: set() for host in hosts if is_wildcard(host)}
        self._depths = sorted({domain.count(".") for domain in self._below})

    def is_anothers(self, host: str, zone: str) -> bool:
        """Return whether another zone owns a host, or one that overlaps it."""
        holder = self.holders.get(host)
        if holder is not None:
            return holder.zone != zone
        if is_wildcard(host) and self._below[host[1:]] - {zone}:
            return True
        above = (self.holders.get(f"*{domain}") for domain in self._domains(host))
        return any(each is not None and each.zone != zone for each in above)

    def take(self, host: str, use: HostUse) -> None:
        """Record the owner of a host; the first one wins."""
        self._uses.setdefault(host, use)
        if self.holders.setdefault(host, HostHolder(use.zone, use.namespace)).zone == use.zone:
            for domain in self._domains(host):
                self._below[domain].add(use.zone)

    def contested(self, clashes: Iterable[HostClash]) -> list[HostClash]:
        """Return the owned hosts that other zones request in vain, or that overlap these; not the cluster's own."""
        found: set[str] = set()
        wild: dict[str, set[str]] = {}
        for clash in clashes:
            host, zone = clash.host, clash.use.zone
            found.update(each for each in self._at_or_above(host) if self.holders[each].zone != zone)
            if is_wildcard(host):
                wild.setdefault(host[1:], set()).add(zone)
        if wild:
            found.update(
                host
                for host, holder in self.holders.items()
                if any(wild.get(domain, set()) - {holder.zone} for domain in self._domains(host))
            )
        return [HostClash(self._uses[host], host, keeps=True) for host in found if self.holders[host].zone]

    def _at_or_above(self, host: str) -> Iterator[str]:
        """Yield the owned hosts that are a host, or a wildcard above it."""
        yield from (each for each in (host, *(f"*{domain}" for domain in self._domains(host))) if each in self.holders)

    def _domains(self, host: str) -> Iterator[str]:
        """Yield the wildcard domains that contain a host."""
        for depth in self._depths:
            labels = host.rsplit(".", depth)
            domain = host[len(labels[0]) :]
            if len(labels) > depth and domain in self._below:
                yield domain


# -- the register ---------------------------------------------------------------------------------


def register(holders: Mapping[str, HostHolder]) -> dict[str, dict[str, str]]:
    """Return the texts of each part of the register that is not empty.

    If a part is too large, the zones with the most hosts lose their newest ones first.

    Args:
        holders: By host, the oldest first.
    """
    parts: dict[str, list[tuple[str, HostHolder]]] = {part: [] for part in PARTS}
    for host, holder in holders.items():
        parts[part_of(host)].append((host, holder))
    return {part: _data(_fitting(found)) for part, found in parts.items() if found}


def _data(found: list[tuple[str, HostHolder]]) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    for host, holder in sorted(found, key=lambda entry: entry[0]):
        said = f"{holder.zone}{SEPARATOR}{holder.namespace}"
        key, entry = (WILDCARDS, host[1:]) if is_wildcard(host) else (str(len(host)), host)
        lines.setdefault(key, [""]).append(f"{entry}{FIELD}{said}")
    return {key: LINE.join(found) for key, found in lines.items()}


def _fitting(found: list[tuple[str, HostHolder]]) -> list[tuple[str, HostHolder]]:
    most = MOST_OF_ONE
    kept = _fewer(found, most)
    while most > 1 and _size(kept) > MOST_BYTES:
        most //= 2
        kept = _fewer(found, most)
    while _size(kept) > MOST_BYTES:  # the cluster's own have no limit
        kept = kept[: len(kept) * 9 // 10]
    return kept


def _fewer(found: list[tuple[str, HostHolder]], most: int) -> list[tuple[str, HostHolder]]:
    """Return at most this many hosts of each zone."""
    count = Counter[str]()
    kept: list[tuple[str, HostHolder]] = []
    for host, holder in found:
        count[holder.zone] += bool(holder.zone)
        if count[holder.zone] <= most:
            kept.append((host, holder))
    return kept


def _size(found: list[tuple[str, HostHolder]]) -> int:
    return _KEYS + sum(len(host) + len(holder.zone) + len(holder.namespace) + 3 for host, holder in found)


def holders_in(texts: Mapping[str, str]) -> dict[str, HostHolder]:
    """Return the hosts of a part of the register, and the owner of each."""
    found: dict[str, HostHolder] = {}
    for key, text in texts.items():
        star = "*" if key == WILDCARDS else ""
        for line in text.split(LINE)[1:]:
            host, _, holder = line.partition(FIELD)
            zone, _, namespace = holder.partition(SEPARATOR)
            found[star + host] = HostHolder(zone, namespace)
    return found


def zones_in(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the hosts of a part of the register, and the zone that owns each; "" for none."""
    return {host: holder.zone for host, holder in holders_in(texts).items()}
