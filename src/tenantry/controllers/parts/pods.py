"""Pods on a node that is given out in parts: whose part each is in, and what it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api.marks import PART_OPEN, PART_SUFFIX
from tenantry.controllers.slices.pods import Pod, PodFacts, observe
from tenantry.engine.cluster import Cluster
from tenantry.world.parts import Size, size_of

Requests = Mapping[str, str | int]

_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
RUNNING = {"fieldSelector": f"spec.nodeName!=,{_NOT_ENDED}"}
"""Selects the pods that have something of a node: those that have ended have nothing."""


class _Resources(msgspec.Struct, frozen=True):
    requests: Requests | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None
    node_selector: Mapping[str, str] | None = None
    overhead: Requests | None = None
    resources: _Resources | None = None


class _Live(msgspec.Struct, frozen=True):
    spec: _Spec


_live = msgspec.json.Decoder(_Live)


class PodOnNode(msgspec.Struct, frozen=True):
    """A pod on a node.

    Args:
        facts: As slices see it.
        part: The slice whose part it was bound to at admission; "" for none.
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
    return PodOnNode(observe(data), part, _size(spec))


async def pods_on(cluster: Cluster, node: str) -> list[PodOnNode]:
    """Return the pods that have something of a node."""
    selectors = {"fieldSelector": f"spec.nodeName={node},{_NOT_ENDED}"}
    return [read(raw) async for raw in cluster.live.raw(Pod.resource, selectors=selectors)]


def of_others(pods: Iterable[PodOnNode]) -> Size:
    """Return what pods that are in no part have together."""
    return sum((pod.size for pod in pods if not pod.part), Size())


def _size(spec: _Spec) -> Size:
    """Return what the scheduler counts for a pod: source, Kubernetes, "Init Containers", "Resource sharing"."""
    beside = Size()
    most = Size()
    for each in spec.init_containers or ():
        size = _of(each.resources)
        if each.restart_policy == "Always":
            beside += size  # it runs on beside what comes after it
            size = Size()
        most = _larger(most, beside + size)
    together = sum((_of(each.resources) for each in spec.containers), beside)
    whole = _larger(most, together)
    if spec.resources is not None and spec.resources.requests:
        whole = _larger(whole, _of(spec.resources))
    return whole + size_of(spec.overhead or {})


def _of(resources: _Resources) -> Size:
    return size_of(resources.requests or {})


def _larger(one: Size, other: Size) -> Size:
    return Size(max(one.cpu, other.cpu), max(one.memory, other.memory))
