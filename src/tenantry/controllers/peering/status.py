"""What a PeerCluster reports: pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import reasons
from tenantry.api.peercluster import InvitationStatus, OfferStatus, PeerCluster, PeerClusterStatus, PeerGuest, node_name
from tenantry.controllers import conclusion
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host half.

    Args:
        cluster_id: Of the peer; "" if it is not known.
        version: Of the peer.
        labels: Those that it proposes for its Node.
        answers: Whether its API server answers.
        has_node: Whether its Node is there, and pods are mirrored.
        failure: Why the connection ended; None if it has not.
        offer: What the peer offers; UNSET if it does not say.
    """

    cluster_id: str = ""
    version: str = ""
    labels: Mapping[str, str] = {}
    answers: bool = False
    has_node: bool = False
    failure: Blocked | None = None
    offer: OfferStatus | UnsetType = UNSET


class GuestState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the guest half; the defaults are those of a PeerCluster without one.

    Args:
        problem: Why the other cluster cannot be served; None if it can, or if there is no guest half.
        invitation: The state of its invitation.
        offered: What is offered to the other cluster.
    """

    problem: Blocked | None = None
    invitation: InvitationStatus | UnsetType = UNSET
    offered: OfferStatus | UnsetType = UNSET


def compute(found: PeerCluster, guest: GuestState, host: HostState | None, now: str) -> PeerClusterStatus:
    """Return the status of a PeerCluster.

    Args:
        found: The PeerCluster.
        guest: The state of the guest half.
        host: The state of the host half; None if there is none.
        now: RFC 3339.
    """
    wanted, problem = list[Wanted](), guest.problem
    if host is not None:
        failure = host.failure
        away = failure.message if failure is not None else "the API server of the peer has not answered yet"
        reachable = Wanted(reasons.REACHABLE, True, reasons.ANSWERS, "the API server of the peer answers")
        if not host.answers:
            reason = failure.reason if failure is not None else reasons.UNREACHABLE
            reachable = Wanted(reasons.REACHABLE, False, reason, away)
        name = node_name(found.metadata.name)
        node = Wanted(reasons.NODE_READY, True, reasons.ESTABLISHED, f"pods can be bound to Node {name!r}")
        if not host.has_node:
            words = failure.message if failure is not None else f"Node {name!r} is being made"
            node = Wanted(reasons.NODE_READY, False, reasons.PROGRESSING, words)
        wanted += [reachable, node]
        broken = next((each for each in (reachable, node) if not each.holds), None)
        if problem is None and broken is not None:
            passes = failure is None or failure.passing
            problem = Blocked(reason=broken.reason, message=broken.message, passing=passes)
    wanted += [conclusion.ready(problem, _done(found, host)), *conclusion.trouble(problem)]
    generation = found.metadata.generation
    before = found.status
    offer = UNSET
    if host is not None:
        offer = host.offer if host.offer is not UNSET or host.answers else before.offer
    return PeerClusterStatus(
        observed_generation=generation,
        cluster_id=host.cluster_id or before.cluster_id if host is not None else "",
        version=host.version or before.version if host is not None else "",
        labels=_labels(before, host),
        invitation=guest.invitation,
        offer=offer,
        offered=guest.offered,
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _labels(before: PeerClusterStatus, host: HostState | None) -> dict[str, str]:
    """Return the labels that a peer proposes: those of before until it is read, because pods leave without them."""
    if host is None:
        return {}
    return dict(host.labels) if host.cluster_id else before.labels


def _done(found: PeerCluster, host: HostState | None) -> str:
    halves = list[str]()
    if host is not None:
        halves.append("pods of this cluster can run there")
    if isinstance(found.spec.guest, PeerGuest):
        halves.append("its pods can run here")
    return ", and ".join(halves)
