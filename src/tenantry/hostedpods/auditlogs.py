"""Reads the audit logs of control planes in Pods, which a container of each Pod prints."""

from __future__ import annotations

import msgspec

from tenantry.api.errors import NotFound
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
    pods: list[Json] = msgspec.json.decode(body)["items"]
    printing = [each for each in pods if any(part["name"] == objects.AUDIT for part in each["spec"]["containers"])]
    found: list[str] = []
    for name in sorted(str(each["metadata"]["name"]) for each in printing):
        path = wire.path(objects.PODS, PROCESS_NAMESPACE, name, "log")
        try:
            log = await client.request("GET", path, query={"container": objects.AUDIT})
        except NotFound:
            continue  # the Pod has just ended
        found.append(log.decode(errors="replace"))
    return found
