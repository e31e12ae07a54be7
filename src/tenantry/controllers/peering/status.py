"""What a PeerCluster reports: pure."""

from __future__ import annotations

import msgspec

from tenantry.api import reasons
from tenantry.api.peercluster import PeerCluster, PeerClusterStatus, PeerGuest, node_name
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host half.

    Args:
        cluster_id: Of the peer; "" if it is not known.
        version: Of the peer.
        answers: Whether its API server answers.
        has_node: Whether its Node is there, and pods are mirrored.
        failure: Why the connection ended; "" if it has not.
    """

    cluster_id: str = ""
    version: str = ""
    answers: bool = False
    has_node: bool = False
    failure: str = ""


def compute(found: PeerCluster, guest: Blocked | None, host: HostState | None, now: str) -> PeerClusterStatus:
    """Return the status of a PeerCluster.

    Args:
        found: The PeerCluster.
        guest: Why the other cluster cannot be served; None if it can, or if there is no guest half.
        host: The state of the host half; None if there is none.
        now: RFC 3339.
    """
    wanted, problem = list[Wanted](), guest
    if host is not None:
        away = host.failure or "the API server of the peer has not answered yet"
        reachable = Wanted(reasons.REACHABLE, True, reasons.ANSWERS, "the API server of the peer answers")
        if not host.answers:
            reachable = Wanted(reasons.REACHABLE, False, reasons.UNREACHABLE, away)
        name = node_name(found.metadata.name)
        node = Wanted(reasons.NODE_READY, True, reasons.ESTABLISHED, f"pods can be bound to Node {name!r}")
        if not host.has_node:
            words = host.failure or f"Node {name!r} is being made"
            node = Wanted(reasons.NODE_READY, False, reasons.PROGRESSING, words)
        wanted += [reachable, node]
        broken = next((each for each in (reachable, node) if not each.holds), None)
        if problem is None and broken is not None:
            problem = Blocked(reason=broken.reason, message=broken.message, passing=True)
    if problem is None:
        wanted.append(Wanted(reasons.READY, True, reasons.ESTABLISHED, _done(found, host)))
    else:
        wanted.append(Wanted(reasons.READY, False, problem.reason, problem.message))
    generation = found.metadata.generation
    before = found.status
    return PeerClusterStatus(
        observed_generation=generation,
        cluster_id=host.cluster_id or before.cluster_id if host is not None else "",
        version=host.version or before.version if host is not None else "",
        labels=before.labels if host is not None else {},
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _done(found: PeerCluster, host: HostState | None) -> str:
    halves = list[str]()
    if host is not None:
        halves.append("pods of this cluster can run there")
    if isinstance(found.spec.guest, PeerGuest):
        halves.append("its pods can run here")
    return ", and ".join(halves)
