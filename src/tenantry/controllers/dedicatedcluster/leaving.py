"""Which nodes of a pool leave the cluster now: pure.

    lost       its slice has it no longer, or its control plane is another one     at once
    surplus    the pool has more nodes than it is to have                          in the order of `order`
    outdated   its kubelet has another version than the control plane              `maxUnavailable` at a time

A node that is outdated leaves, is wiped, and joins again with the version: its slice keeps it, and the pool takes it
again. A pool of three with `maxUnavailable: 1`, after an upgrade to 1.36:

    n1 1.35    n2 1.35    n3 1.35     n1 leaves
    n1 ----    n2 1.35    n3 1.35     it is wiped and joins: nothing else leaves
    n1 1.36    n2 1.35    n3 1.35     n2 leaves
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tenantry.api.dedicatedcluster import PoolSettings
from tenantry.api.errors import InputError
from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.api.slice import SliceClaim, SliceState, slice_name
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.hosting import versions

HELD = frozenset({SliceState.RESERVED, SliceState.DRAINING, SliceState.BOUND})

MOST_SKEW = 3
"""How many minor versions a kubelet may be older than its API server (Kubernetes, "Version Skew Policy")."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that a cluster has, or had.

    Args:
        name: Its name.
        want: How many nodes it is to have.
        settings: Which nodes.
        claim: Its SliceClaim as it is; None for none.
        live: Handovers of its nodes that stay.
        going: Those that are being deleted.
    """

    name: str
    want: int
    settings: PoolSettings = PoolSettings()
    claim: SliceClaim | None = None
    live: tuple[NodeHandover, ...] = ()
    going: tuple[NodeHandover, ...] = ()

    @property
    def slice(self) -> str:
        """Return the name of the Slice of its claim; "" for none."""
        return slice_name(self.claim.metadata.name, self.claim.metadata.uid) if self.claim is not None else ""

    @property
    def joined(self) -> list[NodeHandover]:
        """Return its nodes that are Ready in the cluster."""
        return [each for each in self.live if is_joined(each)]


class LeavingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which nodes of all pools of a cluster leave.

    Args:
        plane: The control plane; None for none.
        first: Nodes that a user names in the annotation `DELETE_FIRST`.
        pods: The number of pods that would have to leave each node; {} if it is not known.
    """

    plane: VirtualControlPlane | None
    first: Collection[str] = ()
    pods: Mapping[str, int] = {}

    @property
    def uid(self) -> str:
        """Return the uid of the control plane; "" for none."""
        return self.plane.metadata.uid if self.plane is not None else ""


def is_joined(found: NodeHandover) -> bool:
    """Return whether a node is Ready in the cluster."""
    return found.status.stage is HandoverStage.JOINED


def leaving(pool: Pool, facts: LeavingFacts) -> list[NodeHandover]:
    """Return the handovers of a pool that end now."""
    first = [*lost(pool, facts), *surplus(pool, facts)]
    return [*first, *rebuilt(pool, facts, first)]


def lost(pool: Pool, facts: LeavingFacts) -> list[NodeHandover]:
    """Return those of nodes that belong to the pool no longer."""
    return [each for each in pool.live if _is_lost(each, pool, facts.uid)]


def _is_lost(found: NodeHandover, pool: Pool, plane_uid: str) -> bool:
    """Return whether a node belongs to the pool no longer: its slice ends, or its control plane is another one."""
    if pool.claim is None or pool.claim.metadata.deletion_timestamp:
        return True
    if found.spec.slice != pool.slice or found.spec.plane.uid != plane_uid:
        return True
    # Before the slice has nodes again, its status lists none.
    return pool.claim.status.state in HELD and found.metadata.name not in pool.claim.status.nodes


def surplus(pool: Pool, facts: LeavingFacts) -> list[NodeHandover]:
    """Return those of too many nodes, in the order in which they leave."""
    gone = lost(pool, facts)
    kept = [each for each in pool.live if each not in gone]
    return order(kept, facts)[: max(0, len(kept) - pool.want)]


def order(found: Sequence[NodeHandover], facts: LeavingFacts) -> list[NodeHandover]:
    """Return nodes in the order in which a pool that shrinks gives them up.

    Nodes that a user names go first, then those that have not joined, those that are not Ready, those that are
    cordoned, those with the fewest pods, and the youngest; within a second, the names decide.
    """
    ordered = sorted(found, key=lambda each: each.metadata.name)
    ordered.sort(key=lambda each: each.metadata.creation_timestamp, reverse=True)
    ordered.sort(key=lambda each: facts.pods.get(each.metadata.name, 0))
    ordered.sort(key=lambda each: not each.status.cordoned)
    ordered.sort(key=_rank)
    ordered.sort(key=lambda each: each.metadata.name not in facts.first)
    return ordered


def _rank(found: NodeHandover) -> int:
    """Return 0 for a node that the cluster does not have yet, 1 for one that is not Ready there, else 2."""
    return 2 if is_joined(found) else 1 if found.status.inside else 0


# -- versions -------------------------------------------------------------------------------------


def wanted_version(settings: PoolSettings, of: VirtualControlPlane | None) -> str:
    """Return the minor version that kubelets of a pool are to have: never after that of the control plane.

    Returns:
        "" while the control plane has none.
    """
    running = of.status.version if of is not None else ""
    if not running:
        return ""
    minor = versions.minor(running)
    return settings.version if settings.version and versions.is_before(settings.version, minor) else minor


def is_outdated(found: NodeHandover, wanted: str) -> bool:
    """Return whether a node is rebuilt to have another version.

    If all nodes have the same kubelet, it may have the version although the node was not made for it.

    Args:
        found: Its NodeHandover; an earlier version of Tenantry has recorded no version.
        wanted: The minor version that it is to have; "" if that is not known.
    """
    return bool(wanted) and found.spec.version not in {"", wanted} and _reported(found) != wanted


def _reported(found: NodeHandover) -> str:
    try:
        return versions.minor(found.status.kubelet)
    except InputError:
        # Users inside write what they like there.
        return ""


def may_rebuild(of: VirtualControlPlane | None) -> bool:
    """Return whether nodes are rebuilt now: the control plane serves with its version, and none soaks."""
    return of is not None and of.status.phase is PlanePhase.AWAKE and not of.status.last_upgrade.soaks


def rebuilt(pool: Pool, facts: LeavingFacts, others: Sequence[NodeHandover] = ()) -> list[NodeHandover]:
    """Return the nodes that leave to be rebuilt: never more than `maxUnavailable` are rebuilt at one time.

    Args:
        pool: The pool.
        facts: The facts.
        others: Its nodes that leave for another reason.
    """
    if not may_rebuild(facts.plane):
        return []
    wanted = wanted_version(pool.settings, facts.plane)
    staying = [each for each in pool.live if each not in others]
    joined = [each for each in staying if is_joined(each)]
    old = [each for each in order(staying, facts) if is_outdated(each, wanted)]
    budget = max(0, pool.settings.max_unavailable - max(0, pool.want - len(joined)))
    # One that is not Ready may be back in a moment, with its volumes: all at once would be lost in a short failure.
    known = {each.metadata.name for each in (*pool.live, *pool.going)}
    held = pool.claim.status.nodes if pool.claim is not None else ()
    wiped = set(held) - known
    coming = [each for each in staying if not is_joined(each) and each not in old]
    under_way = len(pool.going) + len(others) + len(wiped) + len(coming)
    slots = max(0, pool.settings.max_unavailable - under_way)
    return [*(each for each in old if not is_joined(each)), *[each for each in old if is_joined(each)][:budget]][:slots]
