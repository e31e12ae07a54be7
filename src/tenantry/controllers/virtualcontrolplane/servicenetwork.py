"""The addresses of Services inside: those of the host, because a Service has the same address on both sides. Pure.

    ServiceCIDRs of the host ─► ranges of the API server inside: one of each family, as the host's API server has them
                             ─► what it cannot use: a condition

Source: Kubernetes, "Virtual IPs and Service Proxies", section on IP address assignment; reference of ServiceCIDR.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api import reasons
from tenantry.api.wording import shortened
from tenantry.engine.plan import Blocked
from tenantry.mirror.things import Thing
from tenantry.world.addresses import Network, strict

DEFAULT = "kubernetes"
"""The ServiceCIDR that the API server itself keeps: the ranges of its flag, the primary family first."""

FALLBACK = "10.96.0.0/16"
"""Of a host whose ServiceCIDR is not known."""


class ServiceNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of Services inside.

    Args:
        ranges: As the flag of kube-apiserver has them.
        unused: Ranges of the host from which a Service inside gets no address, sorted.
    """

    ranges: str = FALLBACK
    unused: tuple[str, ...] = ()


def find(cidrs: Iterable[Thing]) -> ServiceNetwork:
    """Return the addresses that Services inside may have.

    Args:
        cidrs: The ServiceCIDRs of the host.
    """
    by_name = {each.key: _ranges(each) for each in cidrs}
    used: dict[int, Network] = {}
    for each in by_name.pop(DEFAULT, ()):
        used.setdefault(each.version, each)
    others = {each for ranges in by_name.values() for each in ranges}
    unused = {each for each in others if not any(_is_within(each, range_) for range_ in used.values())}
    if not used:
        return ServiceNetwork(unused=tuple(sorted(map(_told, unused))))
    return ServiceNetwork(ranges=",".join(map(str, used.values())), unused=tuple(sorted(map(_told, unused))))


def missing(network: ServiceNetwork) -> Blocked | None:
    """Return which Services of the host cannot be Services inside; None if all can."""
    if not network.unused:
        return None
    message = (
        f"Services inside that get an address in {shortened(network.unused)} are refused: the API server inside has the"
        f" ranges {network.ranges} of ServiceCIDR {DEFAULT!r}; an administrator of the host can delete the others"
    )
    return Blocked(reason=reasons.ADDRESS_FAMILY, message=message)


def _ranges(cidr: Thing) -> list[Network]:
    return [found for each in cidr.spec.get("cidrs") or () if (found := strict(str(each))) is not None]


def _is_within(one: Network, other: Network) -> bool:
    return one.version == other.version and one.prefixlen >= other.prefixlen and one.network_address in other


def _told(network: Network) -> str:
    return f"{network} (IPv{network.version})"
