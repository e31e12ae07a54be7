"""The addresses of Services inside: those of the host, because a Service has the same address on both sides. Pure.

    ServiceCIDRs of the host ─► ranges of the API server inside: one of each family, as the host's API server has them
                             ─► what it cannot use: a condition
    spec.network             ─► the ranges of a control plane with nodes of its own; none may overlap one of the host

Source: Kubernetes, "Virtual IPs and Service Proxies", section on IP address assignment; reference of ServiceCIDR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from tenantry.api import reasons
from tenantry.api.planenetwork import PlaneNetwork
from tenantry.api.wording import shortened
from tenantry.engine.plan import Blocked
from tenantry.mirror.things import Thing
from tenantry.world.addresses import Network, is_overlapping, is_part, strict

DEFAULT = "kubernetes"
"""The ServiceCIDR that the API server itself keeps: the ranges of its flag, the primary family first."""

FALLBACK = "10.96.0.0/16"
"""Of a host whose ServiceCIDR is not known."""


class ServiceNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of Services inside.

    Args:
        ranges: As the flag of kube-apiserver has them.
        unused: Ranges of the host from which a Service inside gets no address, sorted.
        overlap: Which range of the spec overlaps one of the host; None if none does.
    """

    ranges: str = FALLBACK
    unused: tuple[str, ...] = ()
    overlap: Blocked | None = None


def of(network: PlaneNetwork, cidrs: Iterable[Thing], host: Iterable[Network]) -> ServiceNetwork:
    """Return the addresses of Services inside of a control plane.

    Args:
        network: Of its spec.
        cidrs: The ServiceCIDRs of the host.
        host: The addresses of the host's nodes, API servers, Services and pods.
    """
    found = find(cidrs) if not network.service_range else ServiceNetwork(ranges=network.service_range)
    return msgspec.structs.replace(found, overlap=_overlap(network, tuple(host)))


def _overlap(network: PlaneNetwork, host: Collection[Network]) -> Blocked | None:
    for field, given in (("podRange", network.pod_range), ("serviceRange", network.service_range)):
        range_ = strict(given)
        other = next((each for each in host if range_ is not None and is_overlapping(range_, each)), None)
        if other is not None:
            message = (
                f"spec.network.{field} {given} must not overlap {other}, which the host uses for its nodes, pods,"
                " Services or API servers: choose another range; the field does not change, so create another object"
            )
            return Blocked(reason=reasons.INVALID_SPEC, message=message)
    return None


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
    unused = {each for each in others if not any(is_part(each, range_) for range_ in used.values())}
    if not used:
        return ServiceNetwork(unused=tuple(sorted(map(_told, unused))))
    return ServiceNetwork(ranges=",".join(map(str, used.values())), unused=tuple(sorted(map(_told, unused))))


def missing(network: ServiceNetwork) -> Blocked | None:
    """Return which range overlaps one of the host, or which of its Services cannot be Services inside; None if none."""
    if network.overlap is not None or not network.unused:
        return network.overlap
    message = (
        f"Services inside that get an address in {shortened(network.unused)} are refused: the API server inside has the"
        f" ranges {network.ranges} of ServiceCIDR {DEFAULT!r}; an administrator of the host can delete the others"
    )
    return Blocked(reason=reasons.ADDRESS_FAMILY, message=message)


def _ranges(cidr: Thing) -> list[Network]:
    return [found for each in cidr.spec.get("cidrs") or () if (found := strict(str(each))) is not None]


def _told(network: Network) -> str:
    return f"{network} (IPv{network.version})"
