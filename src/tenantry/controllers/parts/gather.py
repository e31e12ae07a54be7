"""Reads the inputs of a slice of parts: from the caches, and the pods of shared nodes from the API server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PART
from tenantry.api.node import Node
from tenantry.controllers.parts import nodes as marking
from tenantry.controllers.parts.pods import PodOnNode, of_others, pods_on
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices.gather import NOTHING, SliceInputs
from tenantry.controllers.slices.gather import gather as gather_slice
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.tasks import all_of
from tenantry.world.parts import Size, choose, is_open, parts_of
from tenantry.world.slices.selection import Choice

BY_PART = "part"
"""Nodes by the slices that they have given parts to, and namespaces by the slice in whose parts their pods run."""


def parts_of_node(node: Node) -> list[str]:
    """Return the slices that a node has given parts to."""
    return list(parts_of(node.metadata.labels))


def part_of_namespace(found: Observed) -> list[str]:
    """Return the slice in whose parts a namespace's pods run."""
    name = found.labels.get(PART)
    return [name] if name else []


def gather(cluster: Cluster, name: str, now: dt.datetime, verdicts: Verdicts) -> SliceInputs:
    """Return what the caches know of a slice: its nodes are those that give it a part."""
    return replace(
        gather_slice(cluster, name, now, verdicts),
        nodes=tuple(cluster.cache(Node.resource).by_index(BY_PART, name)),
        going=(),
        labelled=tuple(cluster.cache(Namespace.resource).by_index(BY_PART, name)),
    )


async def with_own_pods(cluster: Cluster, inputs: SliceInputs) -> SliceInputs:
    """Return the inputs with the slice's own pods on its nodes."""
    # The pods matter only after no new ones come: listing them earlier would cost a request at each look.
    if inputs.labelled or any(is_open(node.metadata.labels, inputs.name) for node in inputs.nodes):
        return inputs  # pods still come
    found = await _pods(cluster, [node.metadata.name for node in inputs.nodes])
    own = {name: [pod.facts for pod in pods if pod.part == inputs.name] for name, pods in found.items()}
    return replace(inputs, pods=own)


async def with_choice(cluster: Cluster, inputs: SliceInputs) -> SliceInputs:
    """Return the inputs with the choice of the nodes that a claim lacks.

    Pods are listed on nodes that would be taken only: listing those of all nodes would cost more than all else.
    """
    if inputs.claim is None or inputs.tenant is None:
        return replace(inputs, choice=NOTHING)
    others: dict[str, Size] = {}
    while True:
        # Read anew after each list: a node may have changed meanwhile.
        # Each turn lists the pods of newly chosen nodes, which may turn out to be too full: then others are chosen.
        nodes: list[Node] = list(cluster.cache(Node.resource))
        facts = (marking.facts(node, others.get(node.metadata.name, Size())) for node in nodes)
        choice: Choice = choose(inputs.claim.spec, facts, inputs.name)
        unseen = [name for name in choice.nodes if name not in others]
        if not unseen:
            return replace(inputs, choice=choice, others=others)
        others |= {name: of_others(pods) for name, pods in (await _pods(cluster, unseen)).items()}


def with_choice_of(cluster: Cluster, inputs: SliceInputs, first: SliceInputs) -> SliceInputs:
    """Return the inputs with a choice that was made before, and its nodes as they are now."""
    found = (cluster.cache(Node.resource).get(name) for name in first.choice.nodes)
    chosen = tuple(node for node in found if node is not None)
    return replace(inputs, choice=first.choice, others=first.others, chosen=chosen)


async def _pods(cluster: Cluster, names: Iterable[str]) -> dict[str, list[PodOnNode]]:
    chosen = list(names)
    return dict(zip(chosen, await all_of(pods_on(cluster, name) for name in chosen), strict=True))
