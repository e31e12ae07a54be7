"""Which tenant owns which hostname: pure.

A tenant keeps a host as long as any of its objects has it. If objects of several tenants got it at the same instant,
the oldest object wins, as with most Ingress controllers, and the others are reported. A host with *. overlaps every
host below it, and overlapping hosts belong to one tenant.
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
        tenant_uid: Of the tenant that owns the namespace; "" for none.
        hosts: In normal form.
    """

    created: str
    uid: str
    kind: str
    namespace: str
    name: str
    tenant_uid: str
    hosts: tuple[str, ...]


class HostHolder(msgspec.Struct, frozen=True):
    """The tenant that owns a host.

    Args:
        tenant_uid: "" if the namespace belongs to no tenant.
        namespace: Of the oldest object that has the host.
    """

    tenant_uid: str
    namespace: str


class HostClash(msgspec.Struct, frozen=True):
    """An object has a host that another tenant owns, or that overlaps one."""

    use: HostUse
    host: str


class HostAssignment(msgspec.Struct, frozen=True):
    """The owners of all hosts.

    Args:
        holders: By host; previous owners first, then the oldest.
        clashes: Objects with hosts of another tenant, the oldest first.
    """

    holders: dict[str, HostHolder]
    clashes: tuple[HostClash, ...]


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
        before: Host to the uid of the tenant that owned it so far.
    """
    ordered = sorted(uses, key=lambda each: (each.created, each.uid))
    pairs = [(use, host) for use in ordered for host in use.hosts]
    pairs.sort(key=lambda pair: before.get(pair[1]) != pair[0].tenant_uid)  # previous owners first
    held = _Held(host for _, host in pairs)
    clashes: list[HostClash] = []
    for use, host in pairs:
        if held.is_anothers(host, use.tenant_uid):
            clashes.append(HostClash(use, host))
        else:
            held.take(host, use)
    clashes.sort(key=lambda each: (each.use.created, each.use.uid, each.host))
    return HostAssignment(held.holders, tuple(clashes))


class _Held:
    """The owned hosts, searchable by the hosts that overlap them.

    Args:
        hosts: Every host that will be looked up.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.holders: dict[str, HostHolder] = {}
        # The tenants with a host below each wildcard domain that is looked up.
        self._below: dict[str, set[str]] = {host[1:]: set() for host in hosts if is_wildcard(host)}
        self._depths = sorted({domain.count(".") for domain in self._below})

    def is_anothers(self, host: str, tenant_uid: str) -> bool:
        """Return whether another tenant owns a host, or one that overlaps it."""
        holder = self.holders.get(host)
        if holder is not None:
            return holder.tenant_uid != tenant_uid
        if is_wildcard(host) and self._below[host[1:]] - {tenant_uid}:
            return True
        above = (self.holders.get(f"*{domain}") for domain in self._domains(host))
        return any(each is not None and each.tenant_uid != tenant_uid for each in above)

    def take(self, host: str, use: HostUse) -> None:
        """Record the owner of a host; the first one wins."""
        if self.holders.setdefault(host, HostHolder(use.tenant_uid, use.namespace)).tenant_uid == use.tenant_uid:
            for domain in self._domains(host):
                self._below[domain].add(use.tenant_uid)

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

    If a part is too large, the tenants with the most hosts lose their newest ones first.

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
        said = f"{holder.tenant_uid}{SEPARATOR}{holder.namespace}"
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
    """Return at most this many hosts of each tenant."""
    count = Counter[str]()
    kept: list[tuple[str, HostHolder]] = []
    for host, holder in found:
        count[holder.tenant_uid] += bool(holder.tenant_uid)
        if count[holder.tenant_uid] <= most:
            kept.append((host, holder))
    return kept


def _size(found: list[tuple[str, HostHolder]]) -> int:
    return _KEYS + sum(len(host) + len(holder.tenant_uid) + len(holder.namespace) + 3 for host, holder in found)


def holders_in(texts: Mapping[str, str]) -> dict[str, HostHolder]:
    """Return the hosts of a part of the register, and the owner of each."""
    found: dict[str, HostHolder] = {}
    for key, text in texts.items():
        star = "*" if key == WILDCARDS else ""
        for line in text.split(LINE)[1:]:
            host, _, holder = line.partition(FIELD)
            tenant_uid, _, namespace = holder.partition(SEPARATOR)
            found[star + host] = HostHolder(tenant_uid, namespace)
    return found


def tenants_in(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the hosts of a part of the register, and the uid of the tenant that owns each; "" for none."""
    return {host: holder.tenant_uid for host, holder in holders_in(texts).items()}
