"""Reads from the caches what decides about one slice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SLICE, TAKEN_BACK, TENANT_UID, ZONE
from tenantry.api.node import Node
from tenantry.api.slice import DEFAULT_GRACE_SECONDS, Sharing, Slice, SliceClaim, Users, slice_name
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.slices import desired
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.reader import Reader
from tenantry.world.leases import ENDLESS, Lease, lease, with_lease
from tenantry.world.slices.selection import NodeFacts
from tenantry.world.slices.users import Root, users

BY_SLICE = "slice"
"""Claims by their slice's name, and nodes by the slice that they are set aside for."""

BY_SLICE_LABEL = "slice"
"""Namespaces by the slice that their pods run on."""


class SliceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one slice.

    Args:
        name: Of the slice.
        claim: None where it is gone.
        slice: None where there is none.
        tenant: Whose namespace the claim is in; None for nobody's.
        lease: Of the claim.
        suspended: The tenant is closed.
        nodes: Those that are set aside for it, by name.
        going: Of them those that their owners take back, which are not among `nodes`.
        labelled: Namespaces whose pods are bound to it.
        defaults: Of TenancyDefaults.
    """

    name: str
    claim: SliceClaim | None
    slice: Slice | None
    tenant: Tenant | None
    lease: Lease
    suspended: bool
    nodes: tuple[Node, ...]
    going: tuple[Node, ...]
    labelled: tuple[Observed, ...]
    defaults: SliceDefaults

    @property
    def is_part(self) -> bool:
        """Tell whether it has parts of nodes, which `controllers/parts` gives."""
        if self.claim is not None:
            return self.claim.spec.sharing is Sharing.PART
        return self.slice is not None and self.slice.spec.sharing is Sharing.PART

    @property
    def grace_seconds(self) -> int:
        """Return how long pods may take to leave, never longer than an administrator allows."""
        asked = self.slice.spec.grace_period_seconds if self.slice is not None else DEFAULT_GRACE_SECONDS
        if self.claim is not None:
            asked = self.claim.spec.grace_period_seconds
        return min(asked, self.defaults.max_grace_period_seconds)


def slice_of_claim(claim: SliceClaim) -> list[str]:
    """Return what a claim's slice is called."""
    return [slice_name(claim.metadata.name, claim.metadata.uid)]


def slice_of_node(node: Node) -> list[str]:
    """Return the slice that a node is set aside for."""
    name = desired.slice_of(node)
    return [name] if name else []


def slice_of_namespace(found: Observed) -> list[str]:
    """Return the slice that a namespace's pods run on."""
    name = found.labels.get(SLICE)
    return [name] if name else []


def gather(cluster: Cluster, name: str, now: dt.datetime) -> SliceInputs:
    """Return what is known of a slice."""
    claims: list[SliceClaim] = cluster.cache(SliceClaim.resource).by_index(BY_SLICE, name)
    claim = next((each for each in claims if not each.metadata.deletion_timestamp), None)
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    tenant = tenant_of(cluster, claim.metadata.namespace) if claim is not None else None
    nodes: list[Node] = cluster.cache(Node.resource).by_index(BY_SLICE, name)
    return SliceInputs(
        name=name,
        claim=claim,
        slice=cluster.cache(Slice.resource).get(name),
        tenant=tenant,
        lease=lease(claim.spec.expires_at, now) if claim is not None else ENDLESS,
        suspended=tenant is not None and with_lease(tenant, now).spec.suspended,
        nodes=tuple(node for node in nodes if not node.metadata.annotations.get(TAKEN_BACK)),
        going=tuple(node for node in nodes if node.metadata.annotations.get(TAKEN_BACK)),
        labelled=tuple(cluster.cache(Namespace.resource).by_index(BY_SLICE_LABEL, name)),
        defaults=defaults.spec.slices if defaults is not None else SliceDefaults(),
    )


async def slice_defaults(live: Reader) -> SliceDefaults:
    """Return what an administrator says of all slices, as somebody reads it who is not the operator.

    Raises:
        Forbidden: TenancyDefaults may not be read.
    """
    try:
        return (await live.get(TenancyDefaults, DEFAULTS)).spec.slices
    except NotFound:
        return SliceDefaults()


def tenant_of(cluster: Cluster, namespace: str) -> Tenant | None:
    """Return the tenant whose namespace it is; None for nobody's."""
    found: Observed | None = cluster.cache(Namespace.resource).get(namespace)
    if found is None:
        return None
    owner = next(iter(watched.tenant_of(found)), "")
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(owner)
    return tenant if tenant is not None and found.labels.get(TENANT_UID) == tenant.metadata.uid else None


def users_of(cluster: Cluster, inputs: SliceInputs, now: dt.datetime) -> list[Observed]:
    """Return the namespaces whose pods are to run on a slice, sorted by name."""
    if inputs.tenant is None:
        return []
    namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
    ours = [each for each in namespaces.by_index(BY_TENANT, inputs.tenant.metadata.name) if not each.deleting]
    claims: Cache[SliceClaim] = cluster.cache(SliceClaim.resource)
    roots: list[Root] = []
    for namespace in ours:
        for claim in claims.by_index(BY_NAMESPACE, namespace.name):
            if not claim.metadata.deletion_timestamp and not lease(claim.spec.expires_at, now).is_expired:
                roots += _roots(cluster, claim, namespace.labels.get(ZONE, ""))
    chosen = users(roots, ((each.name, each.labels) for each in ours))
    return [each for each in ours if chosen.get(each.name) == inputs.name]


def _roots(cluster: Cluster, claim: SliceClaim, zone: str) -> list[Root]:
    here = claim.metadata.namespace
    name = slice_name(claim.metadata.name, claim.metadata.uid)
    tops = [here] if claim.spec.users is Users.EVERYBODY else []
    subnamespaces: list[Subnamespace] = cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, here)
    for each in subnamespaces:
        uses = each.metadata.name in claim.spec.subnamespaces or each.spec.slice_claim_name == claim.metadata.name
        if uses and each.status.namespace:
            tops.append(each.status.namespace)
    return [Root(claim.metadata.creation_timestamp, name, top, zone) for top in tops]


class NodeFactsCache:
    """All nodes as selection sees them, looked at anew only where a node has changed."""

    def __init__(self) -> None:
        # Node to the version of it that was looked at, and what was seen.
        self._known: dict[str, tuple[int, NodeFacts]] = {}

    def read(self, nodes: Iterable[Node], leaving: Callable[[str], int], picked: Mapping[str, str]) -> list[NodeFacts]:
        """Return all nodes.

        Args:
            nodes: All of them.
            leaving: From a node to how many pods would have to leave.
            picked: Node to the slice that is about to take it.
        """
        known, self._known = self._known, {}
        found: list[NodeFacts] = []
        for node in nodes:
            name, version = node.metadata.name, node.version
            entry = known.get(name)
            if entry is None or entry[0] != version:
                entry = version, desired.facts(node, 0)
            self._known[name] = entry
            facts, disturbed, taker = entry[1], leaving(name), picked.get(name, "")
            if disturbed or (taker and not facts.taken_by):
                facts = replace(facts, disturbed=disturbed, taken_by=facts.taken_by or taker)
            found.append(facts)
        return found
