"""Whose hosts are: pure.

The first who has a host keeps it as long as anything of theirs has it. Of several who got it at once, while nobody
looked, the oldest object counts, as it does with most controllers of Ingresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from tenantry.api.hostregister import Holder, HostRegisterSpec

PARTS = tuple("0123456789abcdef")
"""The names of all registers."""

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
    """Return one register.

    Args:
        name: One of `PARTS`.
        uses: At least all uses of its hosts.
    """
    holders: dict[str, Holder] = {}
    for use in sorted(uses, key=lambda each: (each.created, each.uid)):
        for host in use.hosts:
            if part_of(host) == name:
                holders.setdefault(host, Holder(tenant_uid=use.tenant_uid, namespace=use.namespace))
    ordered = sorted(holders.items())
    return HostRegisterSpec(
        hosts={host: holder for host, holder in ordered if not is_wildcard(host)},
        wildcards={host: holder for host, holder in ordered if is_wildcard(host)},
    )
