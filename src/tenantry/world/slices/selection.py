"""Which nodes a slice gets: pure.

    all nodes ─► why each one does not match ─► those that match, the least disturbed first ─► as many as requested

Nodes that were contributed for the tenant come first, those for other tenants last. Then nodes with the fewest pods to
evict; then the smallest, so that large nodes stay for claims that need them; then by name. The same input gives the
same nodes.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction

import msgspec

from tenantry.api.contribution import PREFIX as CONTRIBUTED
from tenantry.api.marks import CONTRIBUTED_BY, PARTS
from tenantry.api.slice import NodeSelector, SliceClaimSpec
from tenantry.api.wording import shortened
from tenantry.world.quantity import parse, write
from tenantry.world.selectors import meets

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
BINARY = ("memory", "ephemeral-storage")
"""Resources whose quantities messages give with binary suffixes, as in 16Gi."""

ESSENTIAL_SECONDS = 30.0
"""When to look again whether pods of the cluster itself have left a node: their end wakes no claim."""

_NOTHING = Fraction(0)


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a node, or a part of it, can be assigned.

    Args:
        name: Of the node.
        labels: Of the node.
        ready: Its condition Ready is True.
        cordoned: It is unschedulable.
        tainted: The key of a taint, not of slices or parts, that keeps pods away; "" for none.
        taken_by: The slice that the whole node is reserved for; "" for none.
    """

    name: str
    labels: Mapping[str, str] = {}
    ready: bool = True
    cordoned: bool = False
    tainted: str = ""
    taken_by: str = ""

    @property
    def not_now(self) -> str:
        """Return why the node cannot be assigned now; "" if it can."""
        if self.taken_by:
            return f"in slice '{self.taken_by}'"
        if not self.ready:
            return "not ready"
        if self.cordoned:
            return "cordoned"
        return f"kept for others by taint '{self.tainted}'" if self.tainted else ""

    @property
    def is_shared(self) -> bool:
        """Return whether pods of any tenant can run there, and no contributor has priority."""
        # A node that was contributed has its label a moment after it came; its name from the first on.
        contributed = CONTRIBUTED_BY in self.labels or self.name.startswith(CONTRIBUTED)
        return not self.not_now and PARTS not in self.labels and not contributed


class Drain(msgspec.Struct, frozen=True):
    """When, for which tenant (uid) and for which slice pods of others were last evicted from a node."""

    at: dt.datetime
    tenant: str
    slice: str


class NodeFacts(NodeState, frozen=True, kw_only=True):
    """What decides whether a node may join a slice.

    Args:
        allocatable: Resource to quantity.
        disturbed: How many pods would have to leave.
        kept_for: The tenant whose pods its taint of contributed nodes admits, "" for none; None without the taint.
        essential: How many of these are pods of the cluster itself, which no claim may evict.
        drained: When, for which tenant (uid) and for which slice pods of others were last evicted; None for never.
    """

    kept_for: str | None = None
    allocatable: Mapping[str, str] = {}
    disturbed: int = 0
    essential: int = 0
    drained: Drain | None = None


class DrainPace(msgspec.Struct, frozen=True):
    """How often a claim may have pods of other tenants evicted.

    Args:
        now: The time.
        cooldown_seconds: How long no pods are evicted again from a node, and for a tenant.
        tenant: The uid of the claim's tenant.
        slice: The slice of the claim, which may drain several nodes at once.
    """

    now: dt.datetime
    cooldown_seconds: int
    tenant: str
    slice: str

    def waits(self, node: NodeFacts) -> float:
        """Return for how many seconds the last drain of a node keeps others from beginning; 0 or less for none."""
        # The slice that holds the node goes on with its drain. After an expiry it holds the node no longer, and a
        # renewed claim waits like any other.
        if node.drained is None or (node.drained.slice == self.slice == node.taken_by):
            return 0.0
        return self.cooldown_seconds - (self.now - node.drained.at).total_seconds()

    def of_tenant(self, nodes: Iterable[NodeFacts]) -> float:
        """Return for how many seconds the tenant's last drain keeps it from the next; 0 or less for none."""
        own = (node for node in nodes if node.drained is not None and node.drained.tenant == self.tenant)
        return max((self.waits(node) for node in own), default=0.0)


class HeldNodes(msgspec.Struct, frozen=True):
    """The nodes that a slice has: their names, and the sum of their capacity."""

    names: frozenset[str] = frozenset()
    sum: Mapping[str, Fraction] = {}


class Choice(msgspec.Struct, frozen=True):
    """The result of a selection.

    Args:
        nodes: The nodes to take, in addition to those that are held; () if there are too few.
        refused: Why each other node is not taken, by its name.
        short: What is missing, and the nearest claim that would fit; "" for nothing.
        again: In how many seconds a node may fit that does not now; None if a change of a node reports it.
    """

    nodes: tuple[str, ...]
    refused: Mapping[str, str]
    short: str = ""
    again: float | None = None


def select(
    spec: SliceClaimSpec,
    nodes: Iterable[NodeFacts],
    held: HeldNodes = HeldNodes(),  # noqa: B008 - frozen
    tenant: str = "",
    *,
    shared: int = 0,
    contributors: Iterable[str] = (),
    pace: DrainPace | None = None,
) -> Choice:
    """Return the nodes that a claim gets.

    Args:
        spec: Of the claim.
        nodes: All nodes of the cluster.
        held: The nodes that it has.
        tenant: Of the claim: nodes contributed for it come first, those for other tenants last.
        shared: How many nodes stay shared by all tenants.
        contributors: Other tenants whose contributed nodes it may have.
        pace: How often the claim may have pods evicted; None for as often as it needs.
    """
    admitted = frozenset((tenant, *contributors)) - {""}
    nodes = tuple(nodes)
    busy = pace.of_tenant(nodes) if pace is not None else 0.0
    turns: list[float] = []
    needs = {key: parse(value) for key, value in spec.per_node.items()}
    wanted_names = frozenset(spec.node_names)
    refused: dict[str, str] = {}
    fitting: list[NodeFacts] = []
    kept = 0
    # A node that does not fit this claim still counts as shared if pods of any tenant can run there.
    for node in nodes:
        if node.name in held.names:
            continue
        why = _why_not(node, spec.selector, wanted_names, needs) or _kept_away(node, admitted)
        if not why and node.disturbed:
            why, seconds = _why_undisturbed(node, busy, pace)
            turns += [seconds] if why else []
        if why:
            refused[node.name] = why
            kept += node.is_shared
        else:
            fitting.append(node)
    # The name is last in the key: two replicas, and two runs, choose the same nodes.
    fitting.sort(key=lambda node: (_claimed_first_by(node, tenant), *_disturbance(node)))
    total = {key: parse(value) for key, value in spec.total.items()}
    left = {key: value - held.sum.get(key, _NOTHING) for key, value in total.items()}
    count = max(0, spec.count - len(held.names))
    taken, back = _enough_but(fitting, shared - kept, count, left)
    refused |= dict.fromkeys(back, f"kept for all tenants, by spec.slices.sharedNodes of TenancyDefaults: {shared}")
    fitting = [node for node in fitting if node.name not in back]
    if taken is None:
        short = _short(spec, fitting, refused, held)
        return Choice(nodes=(), refused=refused, short=short, again=min(turns, default=None))
    names = {node.name for node in taken}
    refused |= {node.name: "others disturb less, or fit better" for node in fitting if node.name not in names}
    return Choice(nodes=tuple(node.name for node in taken), refused=refused)


def is_enough(spec: SliceClaimSpec, held: HeldNodes) -> bool:
    """Return whether a claim has all that it requests."""
    has_all = all(held.sum.get(key, _NOTHING) >= parse(value) for key, value in spec.total.items())
    return has_all and len(held.names) >= spec.count


def sum_of(nodes: Iterable[NodeFacts]) -> HeldNodes:
    """Return what a slice has that holds these nodes."""
    names: set[str] = set()
    total: dict[str, Fraction] = {}
    for node in nodes:
        names.add(node.name)
        for key, value in node.allocatable.items():
            total[key] = total.get(key, _NOTHING) + parse(value)
    return HeldNodes(frozenset(names), total)


def _enough_but(
    fitting: Sequence[NodeFacts], kept: int, count: int, left: Mapping[str, Fraction]
) -> tuple[list[NodeFacts] | None, frozenset[str]]:
    """Return what `_enough` does, and which nodes stay shared.

    The nodes that would be taken last stay shared or, if the rest is then too small, the smallest ones.
    """
    candidates = [node for node in fitting if node.is_shared]
    if kept <= 0 or not candidates:
        return _enough(fitting, count, left), frozenset()
    smallest = sorted(candidates, key=lambda node: [_has(node, key) for key in left])
    # Keeping the last in order disturbs the fewest pods; keeping the smallest leaves the most capacity.
    last = frozenset(node.name for node in candidates[-kept:])
    for back in (last, frozenset(node.name for node in smallest[:kept])):
        taken = _enough([node for node in fitting if node.name not in back], count, left)
        if taken is not None:
            return taken, back
    return None, last


def _enough(fitting: Sequence[NodeFacts], count: int, left: Mapping[str, Fraction]) -> list[NodeFacts] | None:
    """Return the first nodes that are enough, without those that the total does not need; None if there are too few.

    Args:
        fitting: In the order in which they are to be taken.
        count: The least number.
        left: Resource to the amount that they must have together.
    """
    if len(fitting) < count:
        return None
    taken = list(fitting[:count])
    missing = {key: value - sum((_has(node, key) for node in taken), _NOTHING) for key, value in left.items()}
    for node in fitting[count:]:
        if all(value <= 0 for value in missing.values()):
            break
        taken.append(node)
        missing = {key: value - _has(node, key) for key, value in missing.items()}
    if any(value > 0 for value in missing.values()):
        return None
    # A large one that came last may have made smaller ones needless: the last in order first.
    for node in list(reversed(taken)):
        if len(taken) > count and all(value + _has(node, key) <= 0 for key, value in missing.items()):
            taken.remove(node)
            missing = {key: value + _has(node, key) for key, value in missing.items()}
    return taken


def _claimed_first_by(node: NodeFacts, tenant: str) -> int:
    """Return 0 for a node contributed for this tenant, 2 for one contributed for another tenant, 1 for others."""
    first = node.labels.get(CONTRIBUTED_BY, "")
    return 1 if not first else 0 if first == tenant else 2


def _disturbance(node: NodeFacts) -> tuple[int, Fraction, Fraction, str]:
    return node.disturbed, _has(node, "cpu"), _has(node, "memory"), node.name


def _has(node: NodeFacts, resource: str) -> Fraction:
    return parse(node.allocatable.get(resource, "0"))


# -- why not --------------------------------------------------------------------------------------


def _why_not(node: NodeFacts, selector: NodeSelector, names: frozenset[str], needs: Mapping[str, Fraction]) -> str:
    """Return why a node does not match; "" if it does. A permanent reason comes before a temporary one."""
    if names and node.name not in names:
        return "not among spec.nodeNames"
    # A claim must not drain the pods of the control plane.
    if any(label in node.labels for label in CONTROL_PLANE):
        return "runs the control plane"
    if PARTS in node.labels:
        return "given out in parts"
    return unlike(node.labels, selector) or _too_small(node, needs) or node.not_now


def _kept_away(node: NodeFacts, admitted: AbstractSet[str]) -> str:
    """Return for which tenant a contributed node is kept, if it is for none of these; "" otherwise."""
    if node.kept_for is None or node.kept_for in admitted:
        return ""
    return f"contributed for tenant '{node.kept_for}'" if node.kept_for else "contributed for no tenant"


def _why_undisturbed(node: NodeFacts, busy: float, pace: DrainPace | None) -> tuple[str, float]:
    """Return why pods may not be evicted from a node now, and in how many seconds to look again; "" if they may.

    Args:
        node: A node with pods that would have to leave.
        busy: For how many seconds the tenant may not have pods evicted.
        pace: As in `select`.
    """
    if node.essential:
        return "runs pods of the cluster itself", ESSENTIAL_SECONDS
    if pace is None:
        return "", 0.0
    seconds = pace.waits(node)
    within = f"within {pace.cooldown_seconds} s, spec.slices.cooldownSeconds of TenancyDefaults"
    if busy > seconds and busy > 0:
        return f"has pods, and pods left for a claim of this tenant {within}", busy
    return (f"has pods, and pods left it for a claim {within}", seconds) if seconds > 0 else ("", 0.0)


def _too_small(node: NodeFacts, needs: Mapping[str, Fraction]) -> str:
    for key, need in needs.items():
        if _has(node, key) < need:
            return f"has too little {key}: {node.allocatable.get(key, '0')}"
    return ""


def unlike(labels: Mapping[str, str], selector: NodeSelector) -> str:
    """Return which label of a node a selector does not match; "" if it matches."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return f"label {key} is not '{value}'"
    for each in selector.match_expressions:
        if not meets(labels, each.key, each.operator, each.values):
            values = f" ({', '.join(each.values)})" if each.values else ""
            return f"label {each.key} does not meet {each.operator}{values}"
    return ""


def _short(spec: SliceClaimSpec, fitting: Sequence[NodeFacts], refused: Mapping[str, str], held: HeldNodes) -> str:
    """Return why there are too few nodes: the nearest claim that would fit, and what prevents more."""
    can_have = len(fitting) + len(held.names)
    parts: list[str] = []
    if can_have < spec.count:
        fits = f"{can_have} can be had: spec.count {can_have} would fit" if can_have else "none can be had"
        parts.append(f"{counted(spec.count, 'node is', 'nodes are')} asked for, and {fits}")
    for key, value in spec.total.items():
        together = sum((_has(node, key) for node in fitting), held.sum.get(key, _NOTHING))
        if together < parse(value):
            nearest = write(together, binary=key in BINARY)
            parts.append(f"total {key} {value} is asked for, and all that fit have {nearest}")
    there = {node.name for node in fitting} | held.names
    return "; ".join([*parts, *why_no_more(spec, there, refused)])


def why_no_more(spec: SliceClaimSpec, fitting: AbstractSet[str], refused: Mapping[str, str]) -> list[str]:
    """Return what stops a claim from getting more nodes, the most frequent reason first.

    Args:
        spec: Of the claim.
        fitting: The names of the nodes that do.
        refused: Why each other node does not do, by its name.
    """
    parts: list[str] = []
    unknown = sorted(set(spec.node_names) - set(refused) - fitting)
    if unknown:
        parts.append("there is no node " + shortened(f"'{name}'" for name in unknown))
    whys = Counter(refused.values())
    told = sorted(whys.items(), key=lambda item: (-item[1], item[0]))
    if told:
        some = shortened((f"{number} {why}" for why, number in told), separator="; ", in_order=True)
        parts.append(f"not taken: {some}")
    return parts


def counted(number: int, one: str, many: str) -> str:
    """Return a number and what it counts, as in "1 node is" and "2 nodes are"."""
    return f"{number} {one if number == 1 else many}"
