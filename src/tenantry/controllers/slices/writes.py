"""Writes of slices: marks of nodes, labels of namespaces, and asking pods to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Conflict, NotFound, TooManyRequests
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PARTS
from tenantry.controllers.nodes.controller import Node, decode_node
from tenantry.controllers.slices import status
from tenantry.controllers.slices.desired import LAST_SECONDS, Eviction, label_patch, slice_of
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.pods import Pod, PodFacts
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed, observe
from tenantry.engine.runtime import Engine
from tenantry.kube import wire

Json = dict[str, Any]

ATTEMPTS = 5
"""How often a node is tried that its kubelet writes at the same time."""

TOGETHER = 16
"""How many pods of one slice are asked at once."""

log = logging.getLogger(__name__)


async def mark(engine: Engine, name: str, nodes: Iterable[Node], patch: Callable[[Node], Json]) -> None:
    """Change nodes at the version at which they were seen, and tell the cache.

    Args:
        engine: Whose client writes.
        name: The slice: a node that another one has is left alone.
        nodes: As last seen; where only a kubelet has written since, it is tried again.
        patch: From a node to the merge patch that it needs; {} for none.

    Raises:
        Conflict: Another slice has a node, or it changes all the time; look at it again.
    """
    written = await asyncio.gather(*(_mark(engine, name, node, patch) for node in nodes))
    failed = next((each for each in written if each is not None), None)
    if failed is not None:
        raise failed


async def _mark(engine: Engine, name: str, node: Node, patch: Callable[[Node], Json]) -> Conflict | None:
    """Change one node; return what went wrong, so that the others are not broken off."""
    cache, key = engine.cache(Node.resource), node.key
    cache.expect(key)
    found: Node | None = None
    problem: Conflict | None = None
    try:
        for _ in range(ATTEMPTS):
            body = patch(node)
            if not body:
                return None
            try:
                found = decode_node(msgspec.Raw(await engine.client.merge_patch(Node.resource, "", key, body)))
            except Conflict as error:
                problem = error
            else:
                return None
            node = await engine.client.get(Node, key)
            if slice_of(node) not in {"", name} or (not slice_of(node) and PARTS in node.metadata.labels):
                return problem
    except NotFound:
        cache.forget(key, node.version)
    finally:
        change = cache.settle(key, found)
        if change is not None:
            engine.news(Node.resource, change)
    return problem


async def label(engine: Engine, namespaces: Sequence[Observed], name: str | None) -> None:
    """Bind the pods that will be made in namespaces to a slice, or to none."""
    for namespace in namespaces:
        cache = engine.cache(Namespace.resource)
        patch = {"metadata": label_patch(name)}
        try:
            data = await engine.client.merge_patch(Namespace.resource, "", namespace.name, patch)
        except NotFound:
            continue  # it was deleted meanwhile
        change = cache.put(observe(Namespace.resource, data))
        if change is not None:
            engine.news(Namespace.resource, change)  # its share of the quota is another now


async def send_away(engine: Engine, what: Eviction, why: Mapping[str, str]) -> None:
    """Ask pods to leave, or delete them.

    Args:
        engine: Whose client writes.
        what: Which pods.
        why: What their people are told, by the pod's key.
    """
    gate = asyncio.Semaphore(TOGETHER)

    async def one(pod: PodFacts, *, ends: bool) -> None:
        async with gate:
            went = await (_end(engine, pod) if ends else _ask(engine, pod))
        if went and pod.key in why:
            engine.recorder.say(pod.object, EventKind.WARNING, reasons.PODS_LEAVING, why[pod.key])

    await asyncio.gather(*(one(pod, ends=False) for pod in what.ask), *(one(pod, ends=True) for pod in what.end))


async def _ask(engine: Engine, pod: PodFacts) -> bool:
    """Evict a pod; False where its disruption budget does not let it go now."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    path = wire.path(Pod.resource, pod.namespace, pod.name, "eviction")
    try:
        # Not `request`, which would wait and ask again in here.
        async with engine.client.open("POST", path, body=wire.encode_json(body)) as answer:
            await answer.read()
    except TooManyRequests:
        log.debug("disruption budget", extra={"key": pod.key})
        return False
    except (NotFound, Conflict):
        return False  # it is gone, or another one of its name is there
    return True


async def _end(engine: Engine, pod: PodFacts) -> bool:
    options = {"gracePeriodSeconds": LAST_SECONDS, "preconditions": {"uid": pod.uid}}
    path = wire.path(Pod.resource, pod.namespace, pod.name)
    try:
        await engine.client.request("DELETE", path, body=wire.encode_json(options))
    except (NotFound, Conflict):
        return False
    return not pod.deleting


async def tell(engine: Engine, inputs: SliceInputs, progress: SliceProgress, now: str) -> None:
    """Write both statuses, where they change, and an event where the state does.

    Args:
        engine: Whose client writes.
        inputs: As it is now.
        progress: How far the slice is.
        now: RFC 3339.

    Raises:
        ApiError: The API server refuses.
    """
    if inputs.slice is not None:
        told = status.of_slice(inputs.slice, progress, now)
        if told != inputs.slice.status:
            await engine.write_status(msgspec.structs.replace(inputs.slice, status=told))
    claim = inputs.claim
    if claim is None:
        return
    said = msgspec.structs.replace(status.of_claim(claim, progress, inputs.lease, now), slice=inputs.name)
    if said == claim.status:
        return
    before = claim.status.state
    await engine.write_status(msgspec.structs.replace(claim, status=said))
    if before is not progress.state:
        engine.recorder.say(claim, EventKind.NORMAL, progress.state.value, progress.message)
