"""Writes of slices: marks of nodes, labels of namespaces, and asking pods to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PARTS
from tenantry.api.node import Node
from tenantry.controllers.slices import status
from tenantry.controllers.slices.desired import LAST_SECONDS, Eviction, label_patch, slice_of
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.pods import Pod, PodFacts
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed

Json = dict[str, Any]

ATTEMPTS = 5
"""How often a node is tried that its kubelet writes at the same time."""

TOGETHER = 16
"""How many pods of one slice are asked at once."""

log = logging.getLogger(__name__)


async def mark(cluster: Cluster, name: str, nodes: Iterable[Node], patch: Callable[[Node], Json]) -> None:
    """Change nodes at the version at which they were seen, and tell the cache.

    Args:
        cluster: Whose client writes.
        name: The slice: a node that another one has is left alone.
        nodes: As last seen; where only a kubelet has written since, it is tried again.
        patch: From a node to the merge patch that it needs; {} for none.

    Raises:
        Conflict: Another slice has a node, or it changes all the time; look at it again.
    """
    written = await asyncio.gather(*(_mark(cluster, name, node, patch) for node in nodes))
    failed = next((each for each in written if each is not None), None)
    if failed is not None:
        raise failed


async def _mark(cluster: Cluster, name: str, node: Node, patch: Callable[[Node], Json]) -> Conflict | None:
    """Change one node; return what went wrong, so that the changes of the others are not cancelled."""
    problem: Conflict | None = None
    with suppress(NotFound):
        for _ in range(ATTEMPTS):
            body = patch(node)
            if not body:
                return None
            try:
                await cluster.writer.patch(Node.resource, "", node.key, body, quiet=True)
            except Conflict as error:
                problem = error
            else:
                return None
            node = await cluster.live.get(Node, node.key)
            if slice_of(node) not in {"", name} or (not slice_of(node) and PARTS in node.metadata.labels):
                return problem
    return problem


async def label(cluster: Cluster, namespaces: Sequence[Observed], name: str | None) -> None:
    """Bind the pods that will be made in namespaces to a slice, or to none."""
    for namespace in namespaces:
        with suppress(NotFound):  # it was deleted meanwhile
            # Not quietly: its share of the quota is another now.
            await cluster.writer.patch(Namespace.resource, "", namespace.name, {"metadata": label_patch(name)})


async def send_away(cluster: Cluster, what: Eviction, why: Mapping[str, str]) -> None:
    """Ask pods to leave, or delete them.

    Args:
        cluster: Whose client writes.
        what: Which pods.
        why: What their people are told, by the pod's key.
    """
    gate = asyncio.Semaphore(TOGETHER)

    async def one(pod: PodFacts, *, ends: bool) -> None:
        async with gate:
            went = await (_end(cluster, pod) if ends else cluster.writer.evict(Pod.resource, *_identity(pod)))
        if went and pod.key in why:
            cluster.recorder.say(pod.object, EventKind.WARNING, reasons.PODS_LEAVING, why[pod.key])

    await asyncio.gather(*(one(pod, ends=False) for pod in what.ask), *(one(pod, ends=True) for pod in what.end))


async def _end(cluster: Cluster, pod: PodFacts) -> bool:
    was_there = await cluster.writer.end_pod(Pod.resource, *_identity(pod), grace_seconds=LAST_SECONDS)
    return was_there and not pod.deleting


def _identity(pod: PodFacts) -> tuple[str, str, str]:
    return pod.namespace, pod.name, pod.uid


async def tell(cluster: Cluster, inputs: SliceInputs, progress: SliceProgress, now: str) -> None:
    """Write both statuses, where they change, and an event where the state does.

    Args:
        cluster: Whose client writes.
        inputs: As it is now.
        progress: How far the slice is.
        now: RFC 3339.

    Raises:
        ApiError: The API server refuses.
    """
    if inputs.slice is not None:
        told = status.of_slice(inputs.slice, progress, now)
        if told != inputs.slice.status:
            await cluster.writer.status(msgspec.structs.replace(inputs.slice, status=told))
    claim = inputs.claim
    if claim is None:
        return
    said = msgspec.structs.replace(status.of_claim(claim, progress, inputs.lease, now), slice=inputs.name)
    if said == claim.status:
        return
    before = claim.status.state
    await cluster.writer.status(msgspec.structs.replace(claim, status=said))
    if before is not progress.state:
        cluster.recorder.say(claim, EventKind.NORMAL, progress.state.value, progress.message)
