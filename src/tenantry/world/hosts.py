"""Whose hosts are: pure.

The first who has a host keeps it as long as anything of theirs has it. Of several who got it at once, while nobody
looked, the oldest object counts, as it does with most controllers of Ingresses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from tenantry.api.hostregister import Holder, HostRegisterSpec

PARTS = tuple("0123456789abcdef")
"""The names of all registers."""

MOST_OF_ONE = 200
"""How many hosts of one tenant stand in one register: nobody fills them so that those of others find no place."""

_HOST = re.compile(r"(?:[*][.])?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class Use(msgspec.Struct, frozen=True):
    """One object's use of hosts.

    Args:
        created: As Kubernetes writes times.
        uid: Of the object.
        namespace: Of the object.
        tenant_uid: Whose namespace it is; "" for no tenant's.
        hosts: Normal ones.
    """

    created: str
    uid: str
    namespace: str
    tenant_uid: str
    hosts: tuple[str, ...]


def normal(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return hosts in lower case, sorted, each once; what is none is left out."""
    lower = {host.lower() for host in hosts}
    return tuple(sorted(host for host in lower if len(host) <= 253 and _HOST.fullmatch(host)))  # noqa: PLR2004 - DNS


def part_of(host: str) -> str:
    """Return the name of the register that a host stands in."""
    return blake2b(host.encode(), digest_size=1).hexdigest()[0]


def is_wildcard(host: str) -> bool:
    """Tell whether a host stands for all those below it."""
    return host.startswith("*.")


def register(name: str, uses: Iterable[Use]) -> HostRegisterSpec:
    """Return one register; of a tenant that has more than `MOST_OF_ONE` hosts in it, those of its oldest objects.

    Args:
        name: One of `PARTS`.
        uses: At least all uses of its hosts.
    """
    holders: dict[str, Holder] = {}
    count = Counter[str]()
    for use in sorted(uses, key=lambda each: (each.created, each.uid)):
        for host in use.hosts:
            if host in holders or part_of(host) != name or count[use.tenant_uid] >= MOST_OF_ONE:
                continue
            holders[host] = Holder(tenant_uid=use.tenant_uid, namespace=use.namespace)
            count[use.tenant_uid] += bool(use.tenant_uid)
    ordered = sorted(holders.items())
    return HostRegisterSpec(
        hosts={host: holder for host, holder in ordered if not is_wildcard(host)},
        wildcards={host: holder for host, holder in ordered if is_wildcard(host)},
    )
