"""Reads the audit logs of control planes in Pods, which an init container of each Pod prints while the Pod runs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.errors import BadRequest, NotFound
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.kube import wire
from tenantry.kube.client import Client


async def read(client: Client, uid: str) -> list[str]:
    """Return the logs of these containers, sorted by the names of the Pods; [] if no Pod has such a container.

    kubelet returns the newest file of a log only (Kubernetes, "Logging Architecture", log rotation).

    Args:
        client: A user who may read the Pods of control planes, and their logs.
        uid: Of the control plane.

    Raises:
        Forbidden: The user may not read them.
    """
    query = {"labelSelector": f"{objects.UID_LABEL}={uid}"}
    body = await client.request("GET", wire.path(objects.PODS, PROCESS_NAMESPACE), query=query)
    found: list[str] = []
    for name in printing(msgspec.json.decode(body)["items"]):
        path = wire.path(objects.PODS, PROCESS_NAMESPACE, name, "log")
        try:
            log = await client.request("GET", path, query={"container": objects.AUDIT})
        except (BadRequest, NotFound):
            continue  # kubelet has not yet started the container (400), or the Pod has just ended
        found.append(log.decode(errors="replace"))
    return found


def printing(pods: Iterable[Json]) -> list[str]:
    """Return the sorted names of the Pods that have such a container.

    Args:
        pods: The Pods.
    """

    def prints(pod: Json) -> bool:
        return any(each["name"] == objects.AUDIT for each in pod["spec"].get("initContainers", ()))

    return sorted(str(each["metadata"]["name"]) for each in pods if prints(each))
