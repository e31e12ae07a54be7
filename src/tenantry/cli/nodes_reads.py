"""What `tenantry nodes` reads: with the asker's own rights, and as much as they let be read."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CONTRIBUTED_BY, SLICE, SLICE_CLAIM, SLICE_RESERVED, TENANT
from tenantry.api.model import object_key
from tenantry.api.slice import Sharing, Slice, SliceClaim, SliceState
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.cli import output
from tenantry.cli.nodes_view import FREE, SHARED, NodesView, NodeView, PartView, WaitingView, in_order
from tenantry.cli.pod_requests import PodSeen, together
from tenantry.cli.seen import PODS
from tenantry.controllers.nodes.controller import Node, NodeCondition
from tenantry.controllers.slices import cleaning, desired
from tenantry.controllers.slices.gather import slice_defaults
from tenantry.engine.conditions import find
from tenantry.world.parts import MIB, is_shared, parts_of
from tenantry.world.quantity import write
from tenantry.world.slices.selection import NodeFacts, select

if TYPE_CHECKING:
    from tenantry.api.model import KubernetesObject
    from tenantry.kube.client import Client

    K = TypeVar("K", bound=KubernetesObject)

_COUNTED = ("cpu", "memory")


async def look(client: Client, namespace: str, own: str) -> NodesView:
    """Return the nodes, whose they are, and who waits.

    Args:
        client: As whoever asks.
        namespace: Only what claims there have and wait for; "" for all.
        own: The context's namespace, where the claims of somebody are who may not list all; "" where it names none.

    Raises:
        InputError: Claims may be read in a namespace only, and none is named.
        Forbidden: Not there either.
    """
    nodes, slices = await asyncio.gather(_list(client, Node), _list(client, Slice))
    claims = await read_claims(client, namespace, own)
    waiting = [each for each in claims if each.status.state is SliceState.PENDING]
    if nodes is None:
        return NodesView(nodes=await _of_claims(client, claims), waiting=_waiting(waiting), partial=True)
    pods, owners = await asyncio.gather(_pods(client, ""), _owners(client))
    by_key = {each.key: each for each in claims}
    by_slice = {each.metadata.name: each for each in slices or ()}
    by_node = _by_node(pods) if pods is not None else None
    shown = [
        _view(node, by_slice, by_key, None if by_node is None else by_node.get(node.metadata.name, ()), owners)
        for node in sorted(nodes, key=lambda each: in_order(each.metadata.name))
    ]
    ahead = _next(nodes, waiting, await shared_nodes(client))
    found = [msgspec.structs.replace(each, next=ahead.get(each.name, "")) for each in shown]
    if namespace:
        found = [each for each in found if namespace in _places(each)]
    return NodesView(nodes=tuple(found), waiting=_waiting(waiting), partial=bool(namespace))


def _places(view: NodeView) -> set[str]:
    """Return the namespaces of the claims that have a node, or parts of it."""
    return {claim.partition("/")[0] for claim in (view.claim, *(part.claim for part in view.parts))}


async def read_claims(client: Client, namespace: str, own: str) -> list[SliceClaim]:
    """Return the claims that may be read, oldest first; see `look`."""
    found = await _list(client, SliceClaim, namespace)
    if found is None and not namespace:
        if not own:
            raise InputError("you may not list all claims; name the namespace of yours with -n, as in `-n acme`")
        found = await _list(client, SliceClaim, own)
    if found is None:
        raise Forbidden(f"you may not list claims in namespace {namespace or own!r}", status=403)
    return sorted(found, key=lambda each: (each.metadata.creation_timestamp, each.key))


async def shared_nodes(client: Client) -> int:
    """Return how many nodes stay everybody's; who may not read it is told what is assumed."""
    try:
        return (await slice_defaults(client)).shared_nodes
    except Forbidden:
        assumed = SliceDefaults().shared_nodes
        output.talk(f"you may not read TenancyDefaults: spec.slices.sharedNodes is taken to be {assumed}")
        return assumed


async def _list(client: Client, kind: type[K], namespace: str = "") -> list[K] | None:
    """Return all of a kind; None where they may not be read."""
    try:
        return await client.list(kind, namespace=namespace)
    except Forbidden:
        return None


async def _pods(client: Client, namespace: str) -> list[PodSeen] | None:
    found: list[PodSeen] = []
    try:
        async for page in client.pages(PODS, PodSeen, namespace=namespace):
            found += [pod for pod in page.items if pod.node]
    except Forbidden:
        return None
    return found


async def _owners(client: Client) -> dict[str, str]:
    """Return the tenant of each namespace that has one, as far as namespaces may be read."""
    found = await _list(client, Namespace) or []
    return {each.metadata.name: each.metadata.labels[TENANT] for each in found if TENANT in each.metadata.labels}


def _by_node(pods: Iterable[PodSeen]) -> dict[str, list[PodSeen]]:
    found: dict[str, list[PodSeen]] = defaultdict(list)
    for pod in pods:
        found[pod.node].append(pod)
    return found


def _use(pods: Sequence[PodSeen] | None, owners: Mapping[str, str]) -> dict[str, Mapping[str, object] | None]:
    """Return the fields of a node that tell of its pods."""
    if pods is None:
        return {"requested": None, "pods": None}
    asked = {key: write(together(pods, key), binary=key == "memory") for key in _COUNTED}
    return {"requested": asked, "pods": dict(Counter(owners.get(pod.metadata.namespace, "") for pod in pods))}


# -- those who read nodes -------------------------------------------------------------------------


def _view(
    node: Node,
    slices: Mapping[str, Slice],
    claims: Mapping[str, SliceClaim],
    pods: Sequence[PodSeen] | None,
    owners: Mapping[str, str],
) -> NodeView:
    marks, name = node.metadata.labels, desired.slice_of(node)
    key = node.metadata.annotations.get(SLICE_CLAIM, "").rpartition("/")[0]
    owner, claim = slices.get(name), claims.get(key)
    tenant = owner.spec.tenant if owner is not None else owners.get(key.partition("/")[0], "")
    has = node.status.allocatable
    view = NodeView(
        name=node.metadata.name,
        state=_state(marks, owner),
        tenant=tenant if name else "",
        slice=name,
        claim=key,
        ends=claim.spec.expires_at if claim is not None else "",
        ready=node.is_ready,
        cordoned=node.spec.unschedulable,
        unclean=next((each.message for each in node.status.conditions if _is_unclean(each)), ""),
        contributed_by=marks.get(CONTRIBUTED_BY, ""),
        allocatable={key: has[key] for key in (*_COUNTED, "pods") if key in has},
        parts=_parts(marks, slices),
    )
    if not name and (view.parts or is_shared(marks)):
        view = msgspec.structs.replace(view, state=SHARED)
    return msgspec.structs.replace(view, **_use(pods, owners))


def _is_unclean(told: NodeCondition) -> bool:
    return told.type == cleaning.CONDITION and told.status == "False"


def _parts(labels: Mapping[str, str], slices: Mapping[str, Slice]) -> tuple[PartView, ...]:
    """Return what a node has given, by slice; of one whose Slice is gone nobody knows whose it was."""
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
    if not labels.get(SLICE_RESERVED):
        return FREE
    if SLICE in labels:
        return SliceState.BOUND.value
    told = owner.status.state if owner is not None else SliceState.RELEASING
    # One node of several may still wait for what the others have: the slice says what it waits for.
    return told.value if told in {SliceState.DRAINING, SliceState.RELEASING} else SliceState.RESERVED.value


def _next(nodes: Sequence[Node], waiting: Sequence[SliceClaim], shared: int) -> dict[str, str]:
    """Return who would get each node that is taken: the oldest claim that it fits and that can be satisfied at all."""
    empty = [msgspec.structs.replace(desired.facts(node, 0), taken_by="") for node in nodes]
    whole = [each for each in waiting if each.spec.sharing is Sharing.WHOLE]
    hopeful = [each for each in whole if not select(each.spec, empty, shared=shared).short]
    taken = {node.metadata.name for node in nodes if desired.slice_of(node)}
    found: dict[str, str] = {}
    for facts in empty:
        if facts.name in taken:
            claim = next((each for each in hopeful if _fits(each, facts)), None)
            found[facts.name] = claim.key if claim is not None else ""
    return found


def _fits(claim: SliceClaim, node: NodeFacts) -> bool:
    alone = msgspec.structs.replace(claim.spec, count=1, total={})
    return bool(select(alone, [node]).nodes)


def _waiting(claims: Iterable[SliceClaim]) -> tuple[WaitingView, ...]:
    return tuple(
        WaitingView(claim=each.key, since=each.metadata.creation_timestamp, count=each.spec.count, why=_why(each))
        for each in claims
    )


def _why(claim: SliceClaim) -> str:
    told = find(claim.status.conditions, reasons.READY)
    return told.message if told is not None else "nobody has looked at it yet"


# -- those who read their claims only -------------------------------------------------------------


async def _of_claims(client: Client, claims: Sequence[SliceClaim]) -> tuple[NodeView, ...]:
    """Return what claims say of their nodes, and what the pods of their own namespaces use there."""
    places = sorted({name for each in claims for name in (each.metadata.namespace, *each.status.namespaces)})
    owners = {name: tenant for name in places if (tenant := await _tenant(client, name))}
    readable = [pods for name in places if (pods := await _pods(client, name)) is not None]
    by_node = _by_node(pod for pods in readable for pod in pods)
    found: list[NodeView] = []
    for claim in claims:
        for name in claim.status.nodes:
            view = NodeView(
                name=name,
                state=claim.status.state.value,
                tenant=owners.get(claim.metadata.namespace, ""),
                slice=claim.status.slice,
                claim=claim.key,
                ends=claim.spec.expires_at,
            )
            found.append(msgspec.structs.replace(view, **_use(by_node.get(name, ()) if readable else None, owners)))
    return tuple(sorted(found, key=lambda each: in_order(each.name)))


async def _tenant(client: Client, namespace: str) -> str:
    try:
        return (await client.get(Namespace, namespace)).metadata.labels.get(TENANT, "")
    except (Forbidden, NotFound):
        return ""
