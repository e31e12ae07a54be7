"""What a PeerCluster reports: pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import reasons
from tenantry.api.peercluster import (
    InvitationStatus,
    NodeIdentities,
    OfferStatus,
    PeerCluster,
    PeerClusterStatus,
    PeerGuest,
    PeerHost,
    node_name,
)
from tenantry.api.wording import shortened
from tenantry.controllers import conclusion
from tenantry.controllers.peering import discovery
from tenantry.controllers.peering.guests.presence import GuestPresence
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked

UNKNOWN_SECONDS = 10.0
"""How long a peer is silent until it is unknown whether it can be reached."""

SILENT_SECONDS = 40.0
"""How long a peer is silent until its Node is not ready: Kubernetes ends the pods of such a Node later."""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host half.

    Args:
        cluster_id: Of the peer; "" if it is not known.
        version: Of the peer.
        labels: Those that it proposes for its Node.
        answers: Whether its API server answers.
        silence: For how many seconds it has been silent; 0 if it answers, or never did.
        twice: Another home with the id of this one, which uses the peer; "" for none.
        has_node: Whether its Node is there, and pods are mirrored.
        failure: Why the connection ended; None if it has not.
        offer: What the peer offers; UNSET if it does not say.
        given_up: The condition of a peer that is given up; None for another one.
        audiences: Those whose tokens go to the peer; None if it is not known yet.
        tunnel: Whether the peer has opened its tunnel; None if it needs none.
        inventoried: Whether its ClusterProfile is there; None if this cluster has no such kind.
    """

    cluster_id: str = ""
    version: str = ""
    labels: Mapping[str, str] = {}
    answers: bool = False
    silence: float = 0.0
    twice: str = ""
    has_node: bool = False
    failure: Blocked | None = None
    offer: OfferStatus | UnsetType = UNSET
    given_up: Wanted | None = None
    audiences: tuple[str, ...] | None = None
    tunnel: Wanted | None = None
    inventoried: Wanted | None = None


class GuestState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the guest half; the defaults are those of a PeerCluster without one.

    Args:
        problem: Why the other cluster cannot be served; None if it can, or if there is no guest half.
        invitation: The state of its invitation.
        offered: What is offered to the other cluster.
        presence: What is known of the home; None if there is no guest half.
        tunnel: Whether this cluster has a tunnel to the home; None if it needs none.
    """

    problem: Blocked | None = None
    invitation: InvitationStatus | UnsetType = UNSET
    offered: OfferStatus | UnsetType = UNSET
    presence: GuestPresence | None = None
    tunnel: Wanted | None = None


def compute(found: PeerCluster, guest: GuestState, host: HostState | None, now: str) -> PeerClusterStatus:
    """Return the status of a PeerCluster.

    Args:
        found: The PeerCluster.
        guest: The state of the guest half.
        host: The state of the host half; None if there is none.
        now: RFC 3339.
    """
    wanted = discovery.condition(found)
    problem = discovery.problem(found) or guest.problem or _no_way(guest.tunnel)
    before = found.status
    if host is not None:
        failure = host.failure
        away = failure.message if failure is not None else "the API server of the peer has not answered yet"
        reachable = Wanted(reasons.REACHABLE, True, reasons.ANSWERS, "the API server of the peer answers")
        is_silent = host.silence >= UNKNOWN_SECONDS
        if not host.answers and (is_silent or not host.silence):
            reason = failure.reason if failure is not None else reasons.UNREACHABLE
            # A peer that has answered before may still run everything.
            reachable = Wanted(reasons.REACHABLE, False, reason, away, unknown=is_silent)
        name = node_name(found.metadata.name)
        node = _node_ready(found, name)
        if not host.has_node:
            words = failure.message if failure is not None else f"Node {name!r} is being made"
            node = Wanted(reasons.NODE_READY, False, reasons.PROGRESSING, words)
        wanted += [reachable, node, *(each for each in (host.given_up, host.inventoried) if each is not None)]
        broken = next((each for each in (reachable, node) if not each.holds), None)
        if problem is None and broken is not None:
            passes = failure is None or failure.passing
            problem = Blocked(reason=broken.reason, message=broken.message, passing=passes)
    tunnels = [each for each in (guest.tunnel, host.tunnel if host is not None else None) if each is not None]
    wanted += sorted(tunnels, key=lambda each: each.holds)[:1]
    waits = guest.presence.twice if guest.presence is not None else ""
    wanted.append(_twice(host.twice if host is not None else "", waits))
    wanted += [conclusion.ready(problem, _done(found, host)), *conclusion.trouble(problem)]
    generation = found.metadata.generation
    offer = UNSET
    if host is not None:
        offer = host.offer if host.offer is not UNSET or host.answers else before.offer
    return PeerClusterStatus(
        observed_generation=generation,
        cluster_id=host.cluster_id or before.cluster_id if host is not None else "",
        guest_id=guest.presence.guest_id if guest.presence is not None else "",
        version=host.version or before.version if host is not None else "",
        labels=_labels(before, host),
        token_audiences=_audiences(found, host),
        invitation=guest.invitation,
        offer=offer,
        offered=guest.offered,
        instances=before.instances if host is not None else (),
        last_contact=guest.presence.last_contact if guest.presence is not None else "",
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _node_ready(found: PeerCluster, name: str) -> Wanted:
    words, half = f"pods can be bound to Node {name!r}", found.spec.host
    if isinstance(half, PeerHost) and half.node_identity is NodeIdentities.IMPERSONATION:
        words += (
            ", as which the operator acts by impersonation; no authority has signed the certificate of its kubelet"
            " port, so logs and exec need an API server that does not verify it"
        )
    return Wanted(reasons.NODE_READY, True, reasons.ESTABLISHED, words)


def _no_way(tunnel: Wanted | None) -> Blocked | None:
    """Return why a home has no way to this cluster, which it does not connect to; None if it has one."""
    if tunnel is None or tunnel.holds:
        return None
    return Blocked(reason=tunnel.reason, message=tunnel.message, passing=tunnel.reason != reasons.TUNNEL_REFUSED)


def _labels(before: PeerClusterStatus, host: HostState | None) -> dict[str, str]:
    """Return the labels that a peer proposes: those of before until it is read, because pods leave without them."""
    if host is None:
        return {}
    return dict(host.labels) if host.cluster_id else before.labels


def _audiences(found: PeerCluster, host: HostState | None) -> tuple[str, ...]:
    """Return the audiences whose tokens go to a peer: those of before that are still allowed, until it is known."""
    half = found.spec.host
    if host is None or not isinstance(half, PeerHost):
        return ()
    known = host.audiences if host.audiences is not None else found.status.token_audiences
    return tuple(each for each in known if each in half.token_audiences)


def _kept_audiences(found: PeerCluster, host: HostState) -> list[str]:
    """Return the audiences that are allowed, and are those of the API server of this cluster."""
    half, known = found.spec.host, host.audiences
    given = half.token_audiences if isinstance(half, PeerHost) else ()
    return sorted(set(given) - set(known)) if known is not None else []


def _twice(other: str, waiting: str) -> Wanted:
    words = f"another cluster uses the peer as this home, as {other!r}"
    if waiting:
        words = f"two clusters act as this home; one of them waits as {waiting!r}"
    words += ": a copy, or one that was restored; delete the PeerCluster in one of them"
    return Wanted(reasons.HOME_TWICE, bool(other or waiting), reasons.LEASE_CONTENDED, words, only_true=True)


def _done(found: PeerCluster, host: HostState | None) -> str:
    halves = list[str]()
    if host is not None:
        halves.append("pods of this cluster can run there")
        kept = _kept_audiences(found, host)
        if kept:
            halves.append(f"tokens for {shortened(map(repr, kept))} stay here, whose API server accepts them")
    if isinstance(found.spec.guest, PeerGuest):
        halves.append("its pods can run here")
    return ", and ".join(halves)
