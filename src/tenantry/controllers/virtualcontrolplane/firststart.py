"""What keeps a control plane from its first start: pure. One that has run is not ended for it.

spec.network    a range of the host
spec.endpoint   a host that another control plane has
"""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane.servicenetwork import ServiceNetwork


def check(found: VirtualControlPlane, network: ServiceNetwork, others: Iterable[VirtualControlPlane]) -> None:
    """Check a control plane before its first start.

    Args:
        found: The control plane.
        network: Its addresses.
        others: All control planes of the host.

    Raises:
        TerminalError: A range overlaps one of the host, or another control plane has its host.
    """
    if found.status.endpoint:
        return
    if network.overlap is not None:
        raise TerminalError(network.overlap.reason, network.overlap.message)
    host = found.spec.endpoint.host
    first = next((each for each in others if host and each.spec.endpoint.host == host and _has(each, found)), None)
    if first is not None:
        near = first.metadata.namespace == found.metadata.namespace
        # Names of other tenants' control planes are not public.
        other = f"VirtualControlPlane {first.key!r}" if near else "a control plane in another namespace"
        message = (
            f"spec.endpoint.host {host} is in use by {other}: choose another name; the field does not change, so create"
            " another object"
        )
        raise TerminalError(reasons.INVALID_SPEC, message)


def _has(other: VirtualControlPlane, found: VirtualControlPlane) -> bool:
    """Return whether another control plane has a host, and not this one: it has run, or is the older one."""
    if other.metadata.uid == found.metadata.uid:
        return False
    if other.status.endpoint:
        return True
    mine, theirs = found.metadata, other.metadata
    return (theirs.creation_timestamp or "", theirs.uid) < (mine.creation_timestamp or "", mine.uid)
