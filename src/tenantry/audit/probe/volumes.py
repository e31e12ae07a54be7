"""Tries whether a new volume has data of another tenant: one pod writes, its claim is deleted, another pod looks."""

from __future__ import annotations

import asyncio
import contextlib

from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.model import Json
from tenantry.audit import kinds
from tenantry.audit.context import AuditContext
from tenantry.audit.probe import objects
from tenantry.audit.probe.findings import ProbeFailure, VolumeContent
from tenantry.audit.probe.objects import ProbeImage
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.podruns import NotReady, Pods, create, create_least_restricted, create_pod, why
from tenantry.policy.request import part

DONE_SECONDS = 120.0
"""How long a pod may take, its volume included."""

GONE_SECONDS = 20.0
"""How long the deletion of a volume may take; another check reports a class that retains it."""

KEPT_PHASES = ("Released", "Failed")
"""The phases of a volume that is not deleted."""

READER, WRITER = "reader", "writer"


async def probe(
    admin: Client, person: Client, context: AuditContext, image: ProbeImage
) -> VolumeContent | ProbeFailure:
    """Return the content of a new volume of the tenant. The caller deletes what this creates.

    Args:
        admin: The administrator's client; the probe's namespace exists.
        person: The tenant's client.
        context: The namespace and its surroundings.
        image: The image that pods run.
    """
    pods = Pods(admin, (node.name for node in context.real_nodes))
    name, namespace = f"{context.name}-{READER}", context.namespace

    def reader(bare: bool) -> Json:  # noqa: FBT001 - called by one function
        arguments = ("find", objects.VOLUME, context.name)
        return objects.with_claim(objects.pod(name, READER, image, arguments, bare=bare), name)

    try:
        class_name = await _default_class(person, name, namespace)
        if not class_name:
            return ProbeFailure("there is no default StorageClass: a claim without a class stays Pending")
        await _write(admin, pods, context, image, class_name)
        await create(person, kinds.CLAIMS, objects.claim(name), namespace)
        await create_least_restricted(person, reader, namespace)
        return (await pods.report(name, namespace, VolumeContent, DONE_SECONDS))[1]
    except (ApiError, NotReady) as error:
        return ProbeFailure(str(error))


async def _default_class(person: Client, name: str, namespace: str) -> str:
    """Return the StorageClass of a claim of the tenant that names none."""
    try:
        made = await create(person, kinds.CLAIMS, objects.claim(name), namespace, dry_run=True)
    except (Forbidden, Invalid) as error:
        raise NotReady(f"a legitimate claim is refused: {error}") from error
    return str(part(made, "spec").get("storageClassName") or "")


async def _write(admin: Client, pods: Pods, context: AuditContext, image: ProbeImage, class_name: str) -> None:
    """Write to a volume from a pod of the probe's namespace, and delete the pod and the claim."""
    namespace = context.name
    await create(admin, kinds.CLAIMS, objects.claim(WRITER, class_name), namespace)
    value = objects.pod(WRITER, WRITER, image, ("leave", objects.VOLUME, context.name), bare=True)
    nodes = [node for node in context.real_nodes if node.is_open]
    await create_pod(admin, objects.on_nodes(objects.with_claim(value, WRITER), nodes), namespace)
    ended, log = await pods.ended(WRITER, namespace, DONE_SECONDS)
    if '"left"' not in log:
        raise NotReady(f"the pod {WRITER!r} could not write to its volume: {why(ended)}")
    found = await admin.request("GET", wire.path(kinds.CLAIMS, namespace, WRITER))
    volume = str(part(admin.decode(dict[str, object], found), "spec").get("volumeName", ""))
    with contextlib.suppress(NotReady, TimeoutError):
        async with asyncio.timeout(GONE_SECONDS), contextlib.aclosing(pods.versions(volume, "", kinds.VOLUMES)) as seen:
            await anext(seen)
            await admin.delete(kinds.PODS, namespace, WRITER)
            await admin.delete(kinds.CLAIMS, namespace, WRITER)
            async for each in seen:
                is_retained = part(each, "spec").get("persistentVolumeReclaimPolicy") != "Delete"
                if is_retained and part(each, "status").get("phase") in KEPT_PHASES:
                    return
