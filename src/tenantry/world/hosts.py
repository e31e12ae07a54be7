"""Whose hosts are: pure.

Who has a host keeps it as long as anything of theirs has it. Of several who got it at once, while nobody looked, the
oldest object counts, as it does with most controllers of Ingresses; the others are told. A host with *. stands for all
below it: it overlaps them, and all such that overlap have one tenant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

import msgspec

from tenantry.api.hostregister import FIELD, LINE, PARTS, SEPARATOR, WILDCARDS

MOST_OF_ONE = 200
"""How many hosts of one tenant stand in one part of the register: nobody fills it so that others find no place."""

MOST_BYTES = 900_000
"""How long the hosts of a part are, with who has them: a ConfigMap takes 1 MiB. Source: Kubernetes, "ConfigMaps"."""

_HOST = re.compile(r"(?:[*][.])?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class Use(msgspec.Struct, frozen=True):
    """One object's use of hosts.

    Args:
        created: As Kubernetes writes times.
        uid: Of the object.
        kind: Of the object.
        namespace: Of the object.
        name: Of the object.
        tenant_uid: Whose namespace it is; "" for no tenant's.
        hosts: Normal ones.
    """

    created: str
    uid: str
    kind: str
    namespace: str
    name: str
    tenant_uid: str
    hosts: tuple[str, ...]


class Holder(msgspec.Struct, frozen=True):
    """Who has a host.

    Args:
        tenant_uid: "" where the namespace is of no tenant.
        namespace: Where the oldest object is that has it.
    """

    tenant_uid: str
    namespace: str


class Clash(msgspec.Struct, frozen=True):
    """An object has a host that is another tenant's, or that overlaps one."""

    use: Use
    host: str


class Division(msgspec.Struct, frozen=True):
    """Whose hosts are.

    Args:
        holders: Host to who has it, who had it before first, then the oldest.
        clashes: What has hosts that are not its own, the oldest first.
    """

    holders: dict[str, Holder]
    clashes: tuple[Clash, ...]


def normal(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return hosts in lower case, sorted, each once; what is none is left out."""
    lower = {host.lower() for host in hosts}
    return tuple(sorted(host for host in lower if len(host) <= 253 and _HOST.fullmatch(host)))  # noqa: PLR2004 - DNS


def is_wildcard(host: str) -> bool:
    """Tell whether a host stands for all those below it."""
    return host.startswith("*.")


def part_of(host: str) -> str:
    """Return the part of the register that a host stands in."""
    return WILDCARDS if is_wildcard(host) else blake2b(host.encode(), digest_size=1).hexdigest()[0]


# -- division -------------------------------------------------------------------------------------


def divided(uses: Iterable[Use], before: Mapping[str, str]) -> Division:
    """Return whose each host is.

    Args:
        uses: All that there are, in any order.
        before: Host to the uid of the tenant that had it so far.
    """
    ordered = sorted(uses, key=lambda each: (each.created, each.uid))
    pairs = [(use, host) for use in ordered for host in use.hosts]
    pairs.sort(key=lambda pair: before.get(pair[1]) != pair[0].tenant_uid)  # who had it comes first
    held = _Held(host for _, host in pairs)
    clashes: list[Clash] = []
    for use, host in pairs:
        if held.is_anothers(host, use.tenant_uid):
            clashes.append(Clash(use, host))
        else:
            held.take(host, use)
    clashes.sort(key=lambda each: (each.use.created, each.use.uid, each.host))
    return Division(held.holders, tuple(clashes))


class _Held:
    """Hosts that are somebody's, found by what overlaps them.

    Args:
        hosts: All that will ever be asked for.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.holders: dict[str, Holder] = {}
        # Who has something below each domain that somebody asks for with a wildcard.
        self._below: dict[str, set[str]] = {host[1:]: set() for host in hosts if is_wildcard(host)}
        self._depths = sorted({domain.count(".") for domain in self._below})

    def is_anothers(self, host: str, tenant_uid: str) -> bool:
        """Tell whether another tenant has a host, or one that overlaps it."""
        holder = self.holders.get(host)
        if holder is not None:
            return holder.tenant_uid != tenant_uid
        if is_wildcard(host) and self._below[host[1:]] - {tenant_uid}:
            return True
        above = (self.holders.get(f"*{domain}") for domain in self._domains(host))
        return any(each is not None and each.tenant_uid != tenant_uid for each in above)

    def take(self, host: str, use: Use) -> None:
        """Note that a host is somebody's; the first word counts."""
        if self.holders.setdefault(host, Holder(use.tenant_uid, use.namespace)).tenant_uid == use.tenant_uid:
            for domain in self._domains(host):
                self._below[domain].add(use.tenant_uid)

    def _domains(self, host: str) -> Iterator[str]:
        """Yield the domains with wildcards that a host lies below."""
        for depth in self._depths:
            labels = host.rsplit(".", depth)
            domain = host[len(labels[0]) :]
            if len(labels) > depth and domain in self._below:
                yield domain


# -- the register ---------------------------------------------------------------------------------


def register(holders: Mapping[str, Holder]) -> dict[str, dict[str, str]]:
    """Return the register: part to its data; a part that has none is left out.

    Where a part has more than it holds, those who have most in it lose first, and their newest hosts.

    Args:
        holders: Host to who has it, the oldest first.
    """
    parts: dict[str, list[tuple[str, Holder]]] = {part: [] for part in PARTS}
    for host, holder in holders.items():
        parts[part_of(host)].append((host, holder))
    return {part: _data(_fitting(found)) for part, found in parts.items() if found}


def _data(found: list[tuple[str, Holder]]) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    for host, holder in sorted(found, key=lambda entry: entry[0]):
        said = f"{holder.tenant_uid}{SEPARATOR}{holder.namespace}"
        if is_wildcard(host):
            lines[host[1:]] = [said]
        else:
            lines.setdefault(str(len(host)), [""]).append(f"{host}{FIELD}{said}")
    return {key: LINE.join(found) for key, found in lines.items()}


def _fitting(found: list[tuple[str, Holder]]) -> list[tuple[str, Holder]]:
    most = MOST_OF_ONE
    kept = _fewer(found, most)
    while most > 1 and _size(kept) > MOST_BYTES:
        most //= 2
        kept = _fewer(found, most)
    while _size(kept) > MOST_BYTES:  # the cluster's own have no limit
        kept = kept[: len(kept) * 9 // 10]
    return kept


def _fewer(found: list[tuple[str, Holder]], most: int) -> list[tuple[str, Holder]]:
    """Return at most so many hosts of each tenant."""
    count = Counter[str]()
    kept: list[tuple[str, Holder]] = []
    for host, holder in found:
        count[holder.tenant_uid] += bool(holder.tenant_uid)
        if count[holder.tenant_uid] <= most:
            kept.append((host, holder))
    return kept


def _size(found: list[tuple[str, Holder]]) -> int:
    return sum(len(host) + len(holder.tenant_uid) + len(holder.namespace) + 6 for host, holder in found)


def tenants_in(data: Mapping[str, str]) -> dict[str, str]:
    """Return what a part of the register says: host to the tenant's uid, "" for none's."""
    found: dict[str, str] = {}
    for key, value in data.items():
        lines = [f"*{key}{FIELD}{value}"] if key.startswith(".") else value.split(LINE)[1:]
        for line in lines:
            host, _, holder = line.partition(FIELD)
            found[host] = holder.partition(SEPARATOR)[0]
    return found
