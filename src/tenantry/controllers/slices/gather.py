"""Reads the inputs of one slice from the caches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api.contribution import REGISTER
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import (
    SLICE,
    SYSTEM_NAMESPACE,
    TAKEN_BACK,
    TENANT_UID,
)
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.ruledeclarations import Standard
from tenantry.api.slice import (
    DEFAULT_GRACE_SECONDS,
    Sharing,
    Slice,
    SliceClaim,
    Users,
    slice_name,
)
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import tenancyrules, watched
from tenantry.controllers.lineage import subnamespaces_above
from tenantry.controllers.quota.verdicts import ShareVerdict, Verdicts
from tenantry.controllers.slices import approval
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.evictiondeadlines import EvictionDeadlines, eviction_deadlines
from tenantry.controllers.slices.pods import BY_NODE, PodFacts
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, ObservedRegister
from tenantry.engine.reader import ObjectReader
from tenantry.world.leases import ENDLESS, LeaseState, lease, with_lease
from tenantry.world.parts import Size
from tenantry.world.rules import standard_of
from tenantry.world.slices.selection import Choice, DrainPace, HeldNodes, NodeFacts, is_enough, select, sum_of
from tenantry.world.slices.users import Root, users
from tenantry.world.subtenants import subtenant_of

BY_SLICE = "slice"
"""Claims by their slice's name, and nodes by the slice that they are set aside for."""

BY_SLICE_LABEL = "slice"
"""Namespaces by the slice that their pods run on."""


NOTHING = Choice(nodes=(), refused={})


class SliceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the next stage of one slice.

    Args:
        name: Of the slice.
        now: The time.
        claim: None if it is gone. A Manual claim requests what its Slice approves.
        unapproved: The fields of a Manual claim that request other nodes than its Slice approves.
        slice: None if there is none.
        tenant: The tenant of the claim's namespace; None for a namespace that Tenantry does not manage.
        lease: Of the claim.
        suspended: The tenant is suspended.
        restricted: The standard of the claim's namespace is Restricted.
        nodes: Those that are set aside for it, or give it a part, by name.
        going: Nodes that contributors withdraw; they are not among `nodes`.
        labelled: Namespaces whose pods are bound to it.
        users: Namespaces whose pods should be bound to it, by name.
        defaults: Of TenancyDefaults.
        verdict: Of the quota controller on its charge; None until there is one.
        choice: What the claim lacks, chosen from all nodes.
        chosen: The nodes of the choice.
        replaced: Names of the nodes that are not ready for too long, and that the choice replaces.
        pods: Node to the pods that would have to leave it; of a part, only the slice's own.
        others: For a slice of parts: node of the choice to the size of its pods that are in no part.
        settles: In how many seconds every scheduler knows that nodes are closed; 0 or less if all do.
        pause: In how many seconds the slice may begin to drain nodes; 0 or less if it may, or has begun.
        leaving_since: Since when pods have to leave, RFC 3339; "" while none has to.
        parted_since: The same for nodes that the slice goes on without.
        handovers: Those of its nodes that exist, by the names of the nodes.
        register: The records of contributed nodes, by the names of the nodes.
        adds: A ResourceQuota may still have what contributed nodes add.
        exclusive: The uids of the users whose pods all run on the slice, and have for a while.
        exclusive_in: In how many seconds the next of them is exclusive; 0 or less for none.
        elsewhere: Pods of users that run elsewhere, as NAMESPACE/NAME; () unless contributed nodes add something.
    """

    name: str
    now: dt.datetime
    claim: SliceClaim | None = None
    slice: Slice | None = None
    unapproved: tuple[str, ...] = ()
    tenant: Tenant | None = None
    lease: LeaseState = ENDLESS
    suspended: bool = False
    restricted: bool = False
    nodes: tuple[Node, ...] = ()
    going: tuple[Node, ...] = ()
    labelled: tuple[Observed, ...] = ()
    users: tuple[Observed, ...] = ()
    defaults: SliceDefaults = SliceDefaults()
    verdict: ShareVerdict | None = None
    choice: Choice = NOTHING
    chosen: tuple[Node, ...] = ()
    replaced: frozenset[str] = frozenset()
    pods: Mapping[str, Sequence[PodFacts]] = {}
    others: Mapping[str, Size] = {}
    settles: float = 0.0
    pause: float = 0.0
    leaving_since: str = ""
    parted_since: str = ""
    handovers: Mapping[str, NodeHandover] = {}
    register: Mapping[str, str] = {}
    adds: bool = False
    exclusive: frozenset[str] = frozenset()
    exclusive_in: float = 0.0
    elsewhere: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Return whether nothing of the slice is left."""
        return not (self.claim or self.slice or self.nodes or self.going)

    @property
    def wanted(self) -> tuple[Node, ...]:
        """Return the nodes that it should have: those that it keeps, and those that are chosen."""
        names = {node.metadata.name for node in self.nodes}
        kept = (node for node in self.nodes if node.metadata.name not in self.replaced)
        return (*kept, *(node for node in self.chosen if node.metadata.name not in names))

    @property
    def is_part(self) -> bool:
        """Return whether it has parts of nodes, which `controllers/parts` gives."""
        if self.claim is not None:
            return self.claim.spec.sharing is Sharing.PART
        return self.slice is not None and self.slice.spec.sharing is Sharing.PART

    @property
    def serves_cluster(self) -> bool:
        """Return whether its nodes serve a cluster of their own, so that no namespace of the host uses them."""
        return self.claim is not None and self.claim.spec.users is Users.CLUSTER

    @property
    def in_use(self) -> bool:
        """Return whether other pods have to leave its nodes."""
        return bool(self.users) or self.serves_cluster

    @property
    def is_manual(self) -> bool:
        """Return whether an administrator gives the claim its nodes."""
        return self.claim is not None and approval.is_manual(self.claim, self.slice, restricted=self.restricted)

    @property
    def grace_seconds(self) -> int:
        """Return how long pods may take to leave, within what an administrator allows."""
        asked = self.slice.spec.grace_period_seconds if self.slice is not None else DEFAULT_GRACE_SECONDS
        if self.claim is not None:
            asked = self.claim.spec.grace_period_seconds
        # Also of a claim from before the minimum. No pods of other tenants leave for a part.
        least = 0 if self.is_part else self.defaults.min_grace_period_seconds
        return min(max(asked, least), self.defaults.max_grace_period_seconds)

    def eviction_deadlines(self, since: str, budget_seconds: int = 0) -> EvictionDeadlines:
        """Return how long pods may still stay that have to leave; see `eviction_deadlines`."""
        return eviction_deadlines(since, self.now, self.grace_seconds, budget_seconds)


def slice_of_claim(claim: SliceClaim) -> list[str]:
    """Return the name of a claim's slice."""
    return [slice_name(claim.metadata.name, claim.metadata.uid)]


def slice_of_node(node: Node) -> list[str]:
    """Return the slice that a node is set aside for."""
    name = marking.slice_of(node)
    return [name] if name else []


def slice_of_namespace(found: Observed) -> list[str]:
    """Return the slice that a namespace's pods run on."""
    name = found.labels.get(SLICE)
    return [name] if name else []


def gather(cluster: Cluster, name: str, now: dt.datetime, verdicts: Verdicts) -> SliceInputs:
    """Return the inputs of a slice that the caches have."""
    claims: list[SliceClaim] = cluster.cache(SliceClaim.resource).by_index(BY_SLICE, name)
    claim = next((each for each in claims if not each.metadata.deletion_timestamp), None)
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    tenant = tenant_of(cluster, claim.metadata.namespace) if claim is not None else None
    # The labels of nodes are the record of the slice: they survive a Slice or claim that was deleted by force.
    nodes: list[Node] = cluster.cache(Node.resource).by_index(BY_SLICE, name)
    found: Slice | None = cluster.cache(Slice.resource).get(name)
    labelled: list[Observed] = cluster.cache(Namespace.resource).by_index(BY_SLICE_LABEL, name)
    inputs = SliceInputs(
        name=name,
        now=now,
        claim=claim,
        slice=found,
        tenant=tenant,
        lease=lease(claim.spec.expires_at, now) if claim is not None else ENDLESS,
        suspended=tenant is not None and with_lease(tenant, now).spec.suspended,
        restricted=claim is not None and tenant is not None and _is_restricted(cluster, claim, tenant, defaults),
        nodes=tuple(node for node in nodes if not node.metadata.annotations.get(TAKEN_BACK)),
        going=tuple(node for node in nodes if node.metadata.annotations.get(TAKEN_BACK)),
        labelled=tuple(labelled),
        users=tuple(users_of(cluster, name, tenant, now)),
        defaults=defaults.spec.slices if defaults is not None else SliceDefaults(),
        verdict=verdicts.get(found.metadata.uid) if found is not None else None,
        handovers=_handovers(cluster, nodes),
        register=_register(cluster),
        adds=_adds(cluster, name, found, labelled, verdicts),
    )
    return _as_approved(inputs)


def _handovers(cluster: Cluster, nodes: Iterable[Node]) -> Mapping[str, NodeHandover]:
    known: Cache[NodeHandover] = cluster.cache(NodeHandover.resource)
    found = {node.metadata.name: known.get(node.metadata.name) for node in nodes}
    return {name: each for name, each in found.items() if each is not None}


def _register(cluster: Cluster) -> Mapping[str, str]:
    found: Observed | None = cluster.cache(PolicyParameters.resource).get(object_key(SYSTEM_NAMESPACE, REGISTER))
    return found.entries if isinstance(found, ObservedRegister) else {}


def _adds(cluster: Cluster, name: str, found: Slice | None, labelled: Iterable[Observed], verdicts: Verdicts) -> bool:
    """Return whether a ResourceQuota of a tenant may still have what contributed nodes of a slice add."""
    if found is not None and found.spec.contributed is UNSET and found.status.contributed is UNSET:
        return False
    # Without a Slice, the labels of namespaces show which tenant it was for.
    names = {found.spec.tenant} if found is not None else {each for ns in labelled for each in watched.tenant_of(ns)}
    for each in names:
        tenant: Tenant | None = cluster.cache(Tenant.resource).get(each)
        # The namespaces of a tenant that is being deleted take no new pods, and its quota is divided no more.
        if tenant is None or tenant.metadata.deletion_timestamp:
            continue
        adding = verdicts.adding(each)
        if adding is None or name in adding:
            return True
    return False


def _as_approved(inputs: SliceInputs) -> SliceInputs:
    """Return the inputs with a Manual claim that requests what its Slice approves."""
    if inputs.claim is None or not inputs.is_manual:
        return inputs
    claim, unapproved = approval.as_approved(inputs.claim, inputs.slice)
    return replace(inputs, claim=claim, unapproved=unapproved)


def with_pods(inputs: SliceInputs, there: Cache[PodFacts]) -> SliceInputs:
    """Return the inputs with the pods that would have to leave the slice's nodes."""
    names = [node.metadata.name for node in (*inputs.nodes, *inputs.going)]
    return replace(inputs, pods={name: there.by_index(BY_NODE, name) for name in names})


def choose(inputs: SliceInputs, facts: Callable[[], list[NodeFacts]]) -> SliceInputs:
    """Return the inputs with the choice of the nodes that the claim lacks, and without those that it replaces.

    Nodes that are not ready for too long are replaced all together, or stay if no others can be had.

    Args:
        inputs: A claim of a tenant.
        facts: Returns all nodes; called if they matter.
    """
    claim, tenant = inputs.claim, inputs.tenant
    if claim is None or tenant is None:
        return inputs
    kept = [node for node in inputs.nodes if not marking.is_parted(node, inputs.name)]
    lost = {node.metadata.name for node in marking.lost(kept, claim.spec.replace_after_seconds, inputs.now)[0]}

    def chosen(without: set[str]) -> Choice:
        held = _held(node for node in kept if node.metadata.name not in without)
        # A slice that has all of its nodes needs no scan of all nodes of the cluster.
        if not without and is_enough(claim.spec, held):
            return NOTHING
        contributors, shared = tenant.spec.isolation.contributors, inputs.defaults.shared_nodes
        return select(
            claim.spec,
            facts(),
            held,
            tenant.metadata.name,
            shared=shared,
            contributors=contributors,
            pace=pace_of(inputs),
        )

    # Lost nodes are replaced together: a claim for three nodes with two replacements would still lack one.
    if lost:
        choice = chosen(lost)
        if not choice.short:
            return replace(inputs, choice=choice, replaced=frozenset(lost))
    return replace(inputs, choice=chosen(set()))


def pause_of(inputs: SliceInputs, nodes: Iterable[Node]) -> float:
    """Return in how many seconds a slice may begin to drain the nodes that it has reserved; 0 or less for now.

    Args:
        inputs: With the pods that would have to leave.
        nodes: All nodes of the cluster, read if it matters.
    """
    pace = pace_of(inputs)
    waiting = [node for node in inputs.nodes if not marking.is_bound(node, inputs.name)]
    disturbed = [
        node for node in waiting if any(pod.slice != inputs.name for pod in inputs.pods.get(node.metadata.name, ()))
    ]
    has_begun = any(drain is not None and drain.slice == inputs.name for drain in map(marking.drain_of, inputs.nodes))
    if pace is None or not disturbed or has_begun:
        return 0.0
    own = max(pace.waits(marking.facts(node, 0)) for node in disturbed)
    return max(own, pace.of_tenant(marking.facts(node, 0) for node in nodes))


def pace_of(inputs: SliceInputs) -> DrainPace | None:
    """Return the cool-down of a claim's evictions; None for one that an administrator has approved."""
    if inputs.tenant is None or inputs.is_manual:
        return None
    return DrainPace(inputs.now, inputs.defaults.cooldown_seconds, inputs.tenant.metadata.uid, inputs.name)


def lacks_nodes(inputs: SliceInputs) -> bool:
    """Return whether a claim has to choose nodes."""
    if inputs.claim is None or inputs.tenant is None:
        return False
    kept = [node for node in inputs.nodes if not marking.is_parted(node, inputs.name)]
    lost, _ = marking.lost(kept, inputs.claim.spec.replace_after_seconds, inputs.now)
    return bool(lost) or not is_enough(inputs.claim.spec, _held(kept))


def _held(nodes: Iterable[Node]) -> HeldNodes:
    return sum_of(marking.facts(node, 0) for node in nodes)


async def slice_defaults(live: ObjectReader) -> SliceDefaults:
    """Return the administrator's settings for all slices, read with the caller's own rights.

    Raises:
        Forbidden: TenancyDefaults may not be read.
    """
    try:
        return (await live.get(TenancyDefaults, DEFAULTS)).spec.slices
    except NotFound:
        return SliceDefaults()


def tenant_of(cluster: Cluster, namespace: str) -> Tenant | None:
    """Return the tenant of a namespace; None for a namespace that Tenantry does not manage."""
    found: Observed | None = cluster.cache(Namespace.resource).get(namespace)
    if found is None:
        return None
    owner = next(iter(watched.tenant_of(found)), "")
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(owner)
    # A later tenant of the same name is another one: its namespaces have another uid.
    return tenant if tenant is not None and found.labels.get(TENANT_UID) == tenant.metadata.uid else None


def _is_restricted(cluster: Cluster, claim: SliceClaim, tenant: Tenant, defaults: TenancyDefaults | None) -> bool:
    """Return whether the standard of a claim's namespace is Restricted."""
    # The caches, not the merged rules: until the operator has merged them again, a claim of a tenant that has just
    # become Restricted would get its nodes without an approval.
    namespaces, subnamespaces = cluster.cache(Namespace.resource), cluster.cache(Subnamespace.resource)
    below = [each.spec.rules for each in subnamespaces_above(claim.metadata.namespace, namespaces, subnamespaces)]
    return standard_of([tenancyrules.rules_of_all(defaults), tenant.spec.rules], below) is Standard.RESTRICTED


def users_of(cluster: Cluster, name: str, tenant: Tenant | None, now: dt.datetime) -> list[Observed]:
    """Return the namespaces of a tenant whose pods should run on a slice, sorted by name."""
    if tenant is None:
        return []
    namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
    tree = {each.name: each.labels for each in namespaces.by_index(BY_TENANT, tenant.metadata.name)}
    ours = [each for each in namespaces.by_index(BY_TENANT, tenant.metadata.name) if not each.deleting]
    claims: Cache[SliceClaim] = cluster.cache(SliceClaim.resource)
    roots: list[Root] = []
    for namespace in ours:
        for claim in claims.by_index(BY_NAMESPACE, namespace.name):
            if not claim.metadata.deletion_timestamp and not lease(claim.spec.expires_at, now).is_expired:
                roots += _roots(cluster, claim, subtenant_of(namespace.name, tree))
    chosen = users(roots, tree)
    return [each for each in ours if chosen.get(each.name) == name]


def _roots(cluster: Cluster, claim: SliceClaim, subtenant: str) -> list[Root]:
    here = claim.metadata.namespace
    if claim.spec.users is Users.CLUSTER:
        return []
    name = slice_name(claim.metadata.name, claim.metadata.uid)
    tops = [here] if claim.spec.users is Users.EVERYBODY else []
    subnamespaces: list[Subnamespace] = cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, here)
    for each in subnamespaces:
        uses = each.metadata.name in claim.spec.subnamespaces or each.spec.slice_claim_name == claim.metadata.name
        # Before its namespace exists, a Subnamespace has no pods to bind.
        if uses and each.status.namespace:
            tops.append(each.status.namespace)
    return [Root(claim.metadata.creation_timestamp, name, top, subtenant) for top in tops]


class NodeFactsCache:
    """All nodes as selection sees them, computed again only for nodes that changed."""

    def __init__(self) -> None:
        # Node to the version of it that was looked at, and what was seen.
        self._known: dict[str, tuple[int, NodeFacts]] = {}

    def read(
        self,
        nodes: Iterable[Node],
        leaving: Callable[[str], int],
        essential: Callable[[str], int],
        picked: Mapping[str, str],
    ) -> list[NodeFacts]:
        """Return all nodes.

        Args:
            nodes: All of them.
            leaving: From a node to how many pods would have to leave.
            essential: From a node to how many of these are pods of the cluster itself.
            picked: Node to the slice that is about to take it.
        """
        known, self._known = self._known, {}
        found: list[NodeFacts] = []
        for node in nodes:
            name, version = node.metadata.name, node.version
            entry = known.get(name)
            # Thousands of nodes are compared for each claim: labels and taints are read again only after a change.
            if entry is None or entry[0] != version:
                entry = version, marking.facts(node, 0)
            self._known[name] = entry
            facts, disturbed, taker = entry[1], leaving(name), picked.get(name, "")
            if disturbed or (taker and not facts.taken_by):
                held = essential(name) if disturbed else 0
                facts = replace(facts, disturbed=disturbed, essential=held, taken_by=facts.taken_by or taker)
            found.append(facts)
        return found
