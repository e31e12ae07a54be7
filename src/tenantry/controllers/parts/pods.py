"""Pods on a node that is allocated in parts: the part of each, and its requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api.marks import PART_OPEN, PART_SUFFIX
from tenantry.controllers.slices.pods import Pod, PodFacts, observe
from tenantry.engine.cluster import Cluster
from tenantry.world.parts import Size, rounded_up
from tenantry.world.podrequests import PodSpecRequests

_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
RUNNING = {"fieldSelector": f"spec.nodeName!=,{_NOT_ENDED}"}
"""Selects the pods that use capacity of a node: finished ones use none."""


class _Spec(PodSpecRequests, frozen=True, rename="camel"):
    node_selector: Mapping[str, str] | None = None


class _Live(msgspec.Struct, frozen=True):
    spec: _Spec


_live = msgspec.json.Decoder(_Live)


class PodOnNode(msgspec.Struct, frozen=True):
    """A pod on a node.

    Args:
        facts: As slices see it.
        part: The slice of the part that it was bound to at admission; "" for none.
        size: What the scheduler counts for it.
    """

    facts: PodFacts
    part: str
    size: Size


def read(data: msgspec.Raw) -> PodOnNode:
    """Return a pod on a node.

    Raises:
        msgspec.MsgspecError: The data is no pod.
    """
    spec = _live.decode(data).spec
    chosen = (label.partition(PART_SUFFIX) for label in spec.node_selector or ())
    part = next((name for name, _, what in chosen if what == PART_OPEN), "")
    return PodOnNode(observe(data), part, rounded_up(spec.requested("cpu"), spec.requested("memory")))


async def pods_on(cluster: Cluster, node: str) -> list[PodOnNode]:
    """Return the pods that use capacity of a node."""
    selectors = {"fieldSelector": f"spec.nodeName={node},{_NOT_ENDED}"}
    return [read(raw) async for raw in cluster.live.raw(Pod.resource, selectors=selectors)]


def of_others(pods: Iterable[PodOnNode]) -> Size:
    """Return the total of the pods that are in no part."""
    return sum((pod.size for pod in pods if not pod.part), Size())
