"""Why a SliceClaim has its nodes, what it lacks, and why each other node is not taken: the controllers' own selection.

claim, nodes, pods ─► gather ─► conclude (computes): what the slice or parts controller would select now
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CONTRIBUTORS, TENANT
from tenantry.api.node import Node
from tenantry.api.ruledeclarations import Standard
from tenantry.api.slice import Sharing, Slice, SliceClaim, slice_name
from tenantry.api.tenant import Tenant
from tenantry.controllers.parts import nodes as part_nodes
from tenantry.controllers.parts import pods as part_pods
from tenantry.controllers.slices import approval
from tenantry.controllers.slices import nodes as slice_nodes
from tenantry.controllers.slices import pods as slice_pods
from tenantry.engine.reader import ObjectReader
from tenantry.views.explain.context import read_rules
from tenantry.views.nodes import read_slice_defaults
from tenantry.world.parts import Size, choose, parts_of
from tenantry.world.rules import STANDARD
from tenantry.world.slices.selection import DrainPace, select, sum_of


class ClaimInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which nodes a claim gets.

    Args:
        claim: The claim; a Manual one requests what its Slice approves.
        unapproved: The fields of a Manual claim that request other nodes than its Slice approves.
        nodes: All nodes of the cluster.
        tenant: The claim's tenant.
        contributors: Other tenants whose contributed nodes it may have.
        shared: How many nodes must stay shared.
        disturbed: Node to the number of pods that would have to leave it; for a claim of whole nodes.
        essential: Node to the number of these that are pods of the cluster itself.
        pace: How often the claim may have pods evicted; None for as often as it needs.
        used: Node to what pods outside of parts request there; for a claim of parts.
        notes: What could not be read.
    """

    claim: SliceClaim
    nodes: Sequence[Node]
    tenant: str = ""
    contributors: tuple[str, ...] = ()
    shared: int = 0
    disturbed: Mapping[str, int] = {}
    essential: Mapping[str, int] = {}
    pace: DrainPace | None = None
    used: Mapping[str, Size] = {}
    notes: tuple[str, ...] = ()
    unapproved: tuple[str, ...] = ()


class SliceExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a claim has its nodes.

    Args:
        claim: NAMESPACE/NAME.
        state: The claim's state.
        has: The nodes that the claim has.
        would_take: The nodes that it would get now, besides.
        short: What it lacks, and the nearest that would fit; "" for nothing.
        refused: Node to the reason why it is not taken.
        notes: What could not be read.
        unapproved: The fields of a Manual claim that have no effect until an administrator approves them.
        message: The message of its condition Ready, which reports what contributed nodes add to the quota; "" for none.
    """

    claim: str
    state: str
    has: tuple[str, ...]
    would_take: tuple[str, ...]
    short: str
    refused: dict[str, str]
    notes: tuple[str, ...] = ()
    unapproved: tuple[str, ...] = ()
    message: str = ""


async def explain(reader: ObjectReader, name: str, namespace: str) -> SliceExplanation:
    """Return why a claim has its nodes.

    Raises:
        NotFound: There is no such claim.
        Forbidden: The claim, nodes or pods may not be read.
    """
    return conclude(await gather(reader, name, namespace))


async def gather(reader: ObjectReader, name: str, namespace: str) -> ClaimInputs:
    """Read what decides which nodes a claim gets; see `explain`."""
    meta = (await reader.get(Namespace, namespace)).metadata
    claim, is_manual, unapproved = await _as_approved(
        reader, await reader.get(SliceClaim, name, namespace), meta.labels
    )
    nodes = await reader.list(Node)
    if claim.spec.sharing is Sharing.PART:
        # A claim of parts evicts nothing: only what other pods request on the nodes counts.
        on: defaultdict[str, list[part_pods.PodOnNode]] = defaultdict(list)
        async for raw in reader.items(slice_pods.Pod.resource, msgspec.Raw, selectors=part_pods.RUNNING):
            pod = part_pods.read(raw)
            on[pod.facts.node].append(pod)
        used = {node: part_pods.of_others(found) for node, found in on.items()}
        return ClaimInputs(claim=claim, nodes=nodes, used=used, unapproved=unapproved)
    disturbed: Counter[str] = Counter()
    essential: Counter[str] = Counter()
    async for raw in reader.items(slice_pods.Pod.resource, msgspec.Raw):
        pod = slice_pods.observe(raw)
        disturbed.update(slice_pods.leaving_of(pod))
        essential.update(slice_pods.essential_of(pod))
    contributors = tuple(each for each in meta.annotations.get(CONTRIBUTORS, "").split(",") if each)
    tenant = meta.labels.get(TENANT, "")
    defaults, notes = await read_slice_defaults(reader)
    pace: DrainPace | None = None
    if tenant and not is_manual:
        own = slice_name(claim.metadata.name, claim.metadata.uid)
        try:
            uid = (await reader.get(Tenant, tenant)).metadata.uid
        except Forbidden:
            notes += (f"you may not read Tenant {tenant!r}: the cool-down of its evictions is not taken into account",)
        else:
            pace = DrainPace(dt.datetime.now(dt.UTC), defaults.cooldown_seconds, uid, own)
    return ClaimInputs(
        claim=claim,
        nodes=nodes,
        tenant=tenant,
        contributors=contributors,
        shared=defaults.shared_nodes,
        disturbed=disturbed,
        essential=essential,
        pace=pace,
        notes=notes,
        unapproved=unapproved,
    )


class _ApprovedClaim(NamedTuple):
    """A claim as the operator sees it, and the fields that an administrator has not approved."""

    claim: SliceClaim
    is_manual: bool = False
    unapproved: tuple[str, ...] = ()


async def _as_approved(reader: ObjectReader, claim: SliceClaim, labels: Mapping[str, str]) -> _ApprovedClaim:
    try:
        found = await reader.get(Slice, slice_name(claim.metadata.name, claim.metadata.uid))
    except NotFound:
        return _ApprovedClaim(claim)
    chosen = (await read_rules(reader, claim.metadata.namespace, labels)).enforce.chosen.get(STANDARD)
    restricted = chosen is not None and chosen.value == Standard.RESTRICTED
    if not approval.is_manual(claim, found, restricted=restricted):
        return _ApprovedClaim(claim)
    as_approved, unapproved = approval.as_approved(claim, found)
    return _ApprovedClaim(as_approved, is_manual=True, unapproved=unapproved)


def conclude(inputs: ClaimInputs) -> SliceExplanation:
    """Return what follows from the inputs."""
    claim = inputs.claim
    own = slice_name(claim.metadata.name, claim.metadata.uid)
    if claim.spec.sharing is Sharing.PART:
        offers = [part_nodes.facts(node, inputs.used.get(node.metadata.name, Size())) for node in inputs.nodes]
        choice = choose(claim.spec, offers, own)
        has = [each.name for each in offers if own in parts_of(each.labels)]
    else:
        facts = [
            slice_nodes.facts(
                node,
                inputs.disturbed.get(node.metadata.name, 0),
                essential=inputs.essential.get(node.metadata.name, 0),
            )
            for node in inputs.nodes
        ]
        held = [each for each in facts if each.taken_by == own]
        choice = select(
            claim.spec,
            facts,
            sum_of(held),
            inputs.tenant,
            shared=inputs.shared,
            contributors=inputs.contributors,
            pace=inputs.pace,
        )
        has = [each.name for each in held]
    return SliceExplanation(
        claim=claim.key,
        state=claim.status.state.value,
        has=tuple(sorted(has)),
        would_take=tuple(sorted(choice.nodes)),
        short=choice.short,
        refused=dict(sorted(choice.refused.items())),
        notes=inputs.notes,
        unapproved=inputs.unapproved,
        message=next((each.message for each in claim.status.conditions if each.type == reasons.READY), ""),
    )
