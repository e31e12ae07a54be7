"""Reads from the caches what decides about the parts of one slice."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PART
from tenantry.api.node import Node
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.gather import gather as gather_slice
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.world.parts import parts_of

BY_PART = "part"
"""Nodes by the slices that they have given parts to, and namespaces by the slice in whose parts their pods run."""


def parts_of_node(node: Node) -> list[str]:
    """Return the slices that a node has given parts to."""
    return list(parts_of(node.metadata.labels))


def part_of_namespace(found: Observed) -> list[str]:
    """Return the slice in whose parts a namespace's pods run."""
    name = found.labels.get(PART)
    return [name] if name else []


def gather(cluster: Cluster, name: str, now: dt.datetime) -> SliceInputs:
    """Return what is known of a slice: its nodes are those where it has a part."""
    return msgspec.structs.replace(
        gather_slice(cluster, name, now),
        nodes=tuple(cluster.cache(Node.resource).by_index(BY_PART, name)),
        labelled=tuple(cluster.cache(Namespace.resource).by_index(BY_PART, name)),
    )
