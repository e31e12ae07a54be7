"""Tries whether a new volume has what somebody else has left: one pod writes, its claim goes, another pod looks."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.audit import kinds, stage
from tenantry.audit.attempts import table
from tenantry.audit.findings import Missed, Volume
from tenantry.audit.place import Place
from tenantry.audit.podrunner import NotReady, Pods, create, create_pod, has_ended, why
from tenantry.audit.stage import Image
from tenantry.kube import wire
from tenantry.kube.client import Client

DONE_SECONDS = 120.0
"""How long a pod may take, its volume included."""

GONE_SECONDS = 20.0
"""How long a volume may take to go; a class that keeps it is told by another check."""

ENDS = ("Released", "Failed")
"""How a volume stays that is not deleted."""

READER, WRITER = "reader", "writer"


async def probe(admin: Client, person: Client, place: Place, image: Image) -> Volume | Missed:
    """Return what was in a volume of the tenant's when it came. Whoever calls this takes away what it makes.

    Args:
        admin: Of whoever asked; the namespace of nobody's is there.
        person: The tenant's.
        place: Where.
        image: What pods run.
    """
    pods = Pods(admin, (node.name for node in place.real_nodes))
    name = f"{place.name}-{READER}"
    try:
        class_name = await _class(person, name, place.namespace)
        if not class_name:
            return Missed("there is no default StorageClass: a claim that names none waits for ever")
        await _write(admin, pods, place, image, class_name)
        await create(person, kinds.CLAIMS, stage.claim(name), place.namespace)
        return await _read(person, pods, place, image, name)
    except (ApiError, NotReady) as error:
        return Missed(str(error))


async def _class(person: Client, name: str, namespace: str) -> str:
    """Return of which StorageClass a claim of the tenant's is that names none."""
    try:
        made = await create(person, kinds.CLAIMS, stage.claim(name), namespace, dry_run=True)
    except (Forbidden, Invalid) as error:
        raise NotReady(f"an honest claim is refused: {error}") from error
    return str(table(made, "spec").get("storageClassName") or "")


async def _write(admin: Client, pods: Pods, place: Place, image: Image, class_name: str) -> None:
    """Let a pod of nobody's write to a volume, and take that away."""
    namespace = place.name
    await create(admin, kinds.CLAIMS, stage.claim(WRITER, class_name), namespace)
    value = stage.pod(WRITER, WRITER, image, ("leave", stage.VOLUME, place.name), bare=True)
    nodes = [node for node in place.real_nodes if node.is_open]
    await create_pod(admin, stage.on_real(stage.with_claim(value, WRITER), nodes), namespace)
    ended = await pods.until(WRITER, namespace, has_ended, DONE_SECONDS)
    if '"left"' not in await pods.log(WRITER, namespace):
        raise NotReady(f"the pod {WRITER!r} could not write to its volume: {why(ended)}")
    found = await admin.request("GET", wire.path(kinds.CLAIMS, namespace, WRITER))
    volume = str(table(msgspec.json.decode(found, type=dict[str, object]), "spec").get("volumeName", ""))
    with contextlib.suppress(NotReady, TimeoutError):
        async with asyncio.timeout(GONE_SECONDS), contextlib.aclosing(pods.versions(volume, "", kinds.VOLUMES)) as seen:
            await anext(seen)
            await admin.delete(kinds.PODS, namespace, WRITER)
            await admin.delete(kinds.CLAIMS, namespace, WRITER)
            async for each in seen:
                if table(each, "status").get("phase") in ENDS and _is_kept(each):
                    return


def _is_kept(volume: dict[str, object]) -> bool:
    return table(volume, "spec").get("persistentVolumeReclaimPolicy") != "Delete"


async def _read(person: Client, pods: Pods, place: Place, image: Image, name: str) -> Volume:
    arguments, namespace = ("find", stage.VOLUME, place.name), place.namespace
    try:
        value = stage.pod(name, READER, image, arguments, bare=True)
        await create_pod(person, stage.with_claim(value, name), namespace)
    except (Forbidden, Invalid):
        value = stage.pod(name, READER, image, arguments)
        await create_pod(person, stage.with_claim(value, name), namespace)
    ended = await pods.until(name, namespace, has_ended, DONE_SECONDS)
    words = await pods.log(name, namespace)
    try:
        return msgspec.json.decode(words, type=Volume)
    except msgspec.MsgspecError as error:
        raise NotReady(f"the pod {name!r} in {namespace!r} tells nothing: {why(ended)}") from error
