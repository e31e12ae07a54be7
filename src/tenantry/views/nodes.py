"""The nodes of a cluster: the tenant of each, what is used, which are free, and which claims wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CONTRIBUTED_BY, HANDED_OVER_TO, SLICE, SLICE_CLAIM, SLICE_RESERVED, TENANT
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.slice import Sharing, Slice, SliceClaim, SliceState
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.controllers.slices import cleaning
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.gather import slice_defaults
from tenantry.engine.conditions import find
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of
from tenantry.views import claims as claims_view
from tenantry.views.description import PODS
from tenantry.views.permitted import list_permitted
from tenantry.views.pods import PodRequests, total
from tenantry.world.naming import numeric_order
from tenantry.world.parts import MIB, is_shared, parts_of
from tenantry.world.quantity import write
from tenantry.world.slices.selection import NodeFacts, select

FREE = "Free"
SHARED = "Shared"
"""The state of a node that is given out in parts."""

_COUNTED = ("cpu", "memory")


class NodeInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the view of nodes is computed from.

    Args:
        nodes: None if the user may not list nodes.
        slices: All slices; none if the user may not list them.
        claims: Oldest first.
        pods: The pods that have a node; None if the user may not list any.
        tenants: Namespace to its tenant.
        shared: How many nodes must stay shared.
        notes: What could not be read.
    """

    nodes: Sequence[Node] | None = None
    slices: Sequence[Slice] = ()
    claims: Sequence[SliceClaim] = ()
    pods: Sequence[PodRequests] | None = None
    tenants: Mapping[str, str] = {}
    shared: int = 0
    notes: tuple[str, ...] = ()


class PartView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a node, its tenant and its claim (NAMESPACE/NAME); `cpu` and `memory` are its size."""

    tenant: str
    claim: str
    slice: str
    cpu: str
    memory: str


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node, its tenant and its use; None stands for what the user may not read.

    Args:
        name: Its name.
        state: Free, Shared, Reserved, Draining, Bound or Releasing.
        tenant: The tenant that has the node; "" for none.
        slice: The slice that it is in; "" for none.
        claim: NAMESPACE/NAME; "" for none.
        ends: When the claim expires, RFC 3339; "" for never.
        next: The claim that would get the node next, as NAMESPACE/NAME; "" for none.
        ready: Whether pods can run there.
        cordoned: New pods are not scheduled there.
        unclean: What of the last tenant could not be removed; "" for nothing, or unknown.
        contributed_by: The tenant that the node was contributed for, whose claims go first; "" for none.
        serves: The cluster that the node was handed over to, as NAMESPACE/NAME; "" for none.
        allocatable: Resource to what pods can have.
        requested: Resource to what the pods there request.
        pods: Tenant to the number of its pods there; "" for pods of no tenant.
        parts: The parts of the node that slices have.
    """

    name: str
    state: str = FREE
    tenant: str = ""
    slice: str = ""
    claim: str = ""
    ends: str = ""
    next: str = ""
    ready: bool | None = None
    cordoned: bool = False
    unclean: str = ""
    contributed_by: str = ""
    serves: str = ""
    allocatable: Mapping[str, str] | None = None
    requested: Mapping[str, str] | None = None
    pods: Mapping[str, int] | None = None
    parts: tuple[PartView, ...] = ()


class WaitingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that waits for nodes.

    Args:
        claim: NAMESPACE/NAME.
        since: When it was created, RFC 3339.
        count: How many nodes it requests.
        why: What it lacks.
    """

    claim: str
    since: str
    count: int
    why: str


class NodesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The nodes that the user may see, and the claims that wait for nodes.

    Args:
        nodes: By name, numbers in numeric order.
        waiting: Oldest first.
        partial: These are only the nodes of the claims of one namespace, or of a user who may not read nodes.
    """

    nodes: tuple[NodeUsage, ...]
    waiting: tuple[WaitingView, ...] = ()
    partial: bool = False


# -- reading --------------------------------------------------------------------------------------


async def read(reader: ObjectReader, namespace: str, own: str) -> NodeInputs:
    """Read as much as the user may.

    Args:
        reader: Reads with the user's rights.
        namespace: Only the claims there; "" for all.
        own: The namespace of the context, for users who may not list all claims; "" for none.

    Raises:
        InputError: The user may list claims only in a namespace, and none is named.
        Forbidden: The user may not list claims there either.
    """
    nodes = await list_permitted(reader, Node)
    claims = await claims_view.read(reader, namespace, own)
    if nodes is None:
        return await _read_own(reader, claims)
    slices, namespaces = await list_permitted(reader, Slice), await list_permitted(reader, Namespace)
    labels = {each.metadata.name: each.metadata.labels for each in namespaces or ()}
    defaults, notes = await read_slice_defaults(reader)
    return NodeInputs(
        nodes=nodes,
        slices=slices or (),
        claims=claims,
        pods=await _pods(reader, ""),
        tenants={name: found[TENANT] for name, found in labels.items() if TENANT in found},
        shared=defaults.shared_nodes,
        notes=notes,
    )


async def read_slice_defaults(reader: ObjectReader) -> tuple[SliceDefaults, tuple[str, ...]]:
    """Return the administrator's settings for all slices, and a note if the user may not read them."""
    try:
        return await slice_defaults(reader), ()
    except Forbidden:
        return SliceDefaults(), ("you may not read TenancyDefaults: the defaults of spec.slices are assumed",)


async def _read_own(reader: ObjectReader, claims: Sequence[SliceClaim]) -> NodeInputs:
    """Read the namespaces and pods of claims, for a user who may not read nodes."""
    # The pods of a claim run in the namespaces of its status, which the user may be able to read.
    places = sorted({name for each in claims for name in (each.metadata.namespace, *each.status.namespaces)})
    tenants = await all_of(_tenant(reader, name) for name in places)
    found = [pods for pods in await all_of(_pods(reader, name) for name in places) if pods is not None]
    return NodeInputs(
        claims=claims,
        pods=[pod for pods in found for pod in pods] if found else None,
        tenants={name: tenant for name, tenant in zip(places, tenants, strict=True) if tenant},
    )


async def _pods(reader: ObjectReader, namespace: str) -> list[PodRequests] | None:
    try:
        return [pod async for pod in reader.items(PODS, PodRequests, namespace=namespace) if pod.node]
    except Forbidden:
        return None


async def _tenant(reader: ObjectReader, namespace: str) -> str:
    try:
        return (await reader.get(Namespace, namespace)).metadata.labels.get(TENANT, "")
    except (Forbidden, NotFound):
        return ""


# -- the view -------------------------------------------------------------------------------------


def view(inputs: NodeInputs, namespace: str = "") -> NodesView:
    """Return the nodes, their tenants, and the claims that wait; with a namespace only those of its claims."""
    pending = [each for each in inputs.claims if each.status.state is SliceState.PENDING]
    waiting = tuple(
        WaitingView(claim=each.key, since=each.metadata.creation_timestamp, count=each.spec.count, why=_why(each))
        for each in pending
    )
    use = _Use(inputs)
    if inputs.nodes is None:
        return NodesView(nodes=_of_claims(inputs, use), waiting=waiting, partial=True)
    slices = {each.metadata.name: each for each in inputs.slices}
    claims = {each.key: each for each in inputs.claims}
    ahead = _next(inputs.nodes, pending, inputs.shared)
    found = [
        use.added_to(_node(node, slices, claims, inputs.tenants, ahead.get(node.metadata.name, "")))
        for node in sorted(inputs.nodes, key=lambda each: numeric_order(each.metadata.name))
    ]
    if namespace:
        found = [each for each in found if namespace in _namespaces(each)]
    return NodesView(nodes=tuple(found), waiting=waiting, partial=bool(namespace))


def _why(claim: SliceClaim) -> str:
    ready = find(claim.status.conditions, reasons.READY)
    return ready.message if ready is not None else "the operator has not processed it yet"


def _namespaces(node: NodeUsage) -> set[str]:
    """Return the namespaces of the claims that have a node, or parts of it."""
    return {claim.partition("/")[0] for claim in (node.claim, *(part.claim for part in node.parts))}


class _Use:
    """What pods request on each node."""

    def __init__(self, inputs: NodeInputs) -> None:
        self._tenants = inputs.tenants
        self._is_known = inputs.pods is not None
        self._pods: dict[str, list[PodRequests]] = defaultdict(list)
        for pod in inputs.pods or ():
            self._pods[pod.node].append(pod)

    def added_to(self, node: NodeUsage) -> NodeUsage:
        """Return a node with the use that its pods make of it."""
        if not self._is_known:
            return node
        pods = self._pods[node.name]
        requested = {key: write(total(pods, key), binary=key == "memory") for key in _COUNTED}
        counts = Counter(self._tenants.get(pod.metadata.namespace, "") for pod in pods)
        return msgspec.structs.replace(node, requested=requested, pods=dict(counts))


def _node(
    node: Node,
    slices: Mapping[str, Slice],
    claims: Mapping[str, SliceClaim],
    tenants: Mapping[str, str],
    ahead: str,
) -> NodeUsage:
    labels, name = node.metadata.labels, marking.slice_of(node)
    key = node.metadata.annotations.get(SLICE_CLAIM, "").rpartition("/")[0]
    owner, claim = slices.get(name), claims.get(key)
    tenant = owner.spec.tenant if owner is not None else tenants.get(key.partition("/")[0], "")
    has = node.status.allocatable
    unclean = [each for each in node.status.conditions if each.type == cleaning.CONDITION and each.status == "False"]
    parts = _parts(labels, slices)
    return NodeUsage(
        name=node.metadata.name,
        state=SHARED if not name and (parts or is_shared(labels)) else _state(labels, owner),
        tenant=tenant if name else "",
        slice=name,
        claim=key,
        ends=claim.spec.expires_at if claim is not None else "",
        next=ahead,
        ready=node.is_ready,
        cordoned=node.spec.unschedulable,
        unclean=unclean[0].message if unclean else "",
        contributed_by=labels.get(CONTRIBUTED_BY, ""),
        serves=node.metadata.annotations.get(HANDED_OVER_TO, ""),
        allocatable={key: has[key] for key in (*_COUNTED, "pods") if key in has},
        parts=parts,
    )


def _parts(labels: Mapping[str, str], slices: Mapping[str, Slice]) -> tuple[PartView, ...]:
    """Return the parts of a node by slice; if a Slice is gone, the tenant of its part is unknown."""
    found: list[PartView] = []
    for name, size in sorted(parts_of(labels).items()):
        spec = slices[name].spec if name in slices else None
        found.append(
            PartView(
                tenant=spec.tenant if spec is not None else "",
                claim=object_key(spec.claim.namespace, spec.claim.name) if spec is not None else name,
                slice=name,
                cpu=write(Fraction(size.cpu, 1000)),
                memory=write(Fraction(size.memory * MIB), binary=True),
            )
        )
    return tuple(found)


def _state(labels: Mapping[str, str], owner: Slice | None) -> str:
    # The operator reserves a node first, and sets the label of the slice last, on a drained node.
    if not labels.get(SLICE_RESERVED):
        return FREE
    if SLICE in labels:
        return SliceState.BOUND.value
    state = owner.status.state if owner is not None else SliceState.RELEASING
    # One node of several may still wait for a state that the others have reached; the slice has the state of all.
    return state.value if state in {SliceState.DRAINING, SliceState.RELEASING} else SliceState.RESERVED.value


def _next(nodes: Sequence[Node], waiting: Sequence[SliceClaim], shared: int) -> dict[str, str]:
    """Return the claim that would get each taken node: the oldest that fits it and that the cluster can satisfy."""
    # As if no node were taken: a claim that even an empty cluster cannot satisfy is next for no node.
    empty = [msgspec.structs.replace(marking.facts(node, 0), taken_by="", kept_for=None) for node in nodes]
    whole = [each for each in waiting if each.spec.sharing is Sharing.WHOLE]
    hopeful = [each for each in whole if not select(each.spec, empty, shared=shared).short]
    taken = {node.metadata.name for node in nodes if marking.slice_of(node)}
    return {
        facts.name: next((each.key for each in hopeful if _fits(each, facts)), "")
        for facts in empty
        if facts.name in taken
    }


def _fits(claim: SliceClaim, node: NodeFacts) -> bool:
    alone = msgspec.structs.replace(claim.spec, count=1, total={})
    return bool(select(alone, [node]).nodes)


def _of_claims(inputs: NodeInputs, use: _Use) -> tuple[NodeUsage, ...]:
    """Return the nodes that the statuses of claims name."""
    found = [
        NodeUsage(
            name=name,
            state=claim.status.state.value,
            tenant=inputs.tenants.get(claim.metadata.namespace, ""),
            slice=claim.status.slice,
            claim=claim.key,
            ends=claim.spec.expires_at,
        )
        for claim in inputs.claims
        for name in claim.status.nodes
    ]
    return tuple(use.added_to(each) for each in sorted(found, key=lambda each: numeric_order(each.name)))
