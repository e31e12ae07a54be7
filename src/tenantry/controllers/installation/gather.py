"""Reads what decides about installed objects: which ones to read comes from caches, the rest from the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json, object_key
from tenantry.controllers.installation.comparison import differing, marks_of
from tenantry.controllers.installation.desired import RepairInputs
from tenantry.controllers.installation.release import HelmRelease, release_of
from tenantry.controllers.installation.shipment import Shipment, ShippedObject, foreign
from tenantry.engine.cluster import Cluster

_json = msgspec.json.Decoder(Json)


class InstalledState(msgspec.Struct, frozen=True, gc=False):
    """What the cache keeps of an installed object.

    Args:
        key: `namespace/name`, or the name of a cluster-scoped object.
        version: The resourceVersion.
        uid: Of the object.
        is_shipped: It is as this version ships it.
    """

    key: str
    version: int
    uid: str
    is_shipped: bool


def observer(shipped: Mapping[str, ShippedObject]) -> Callable[[msgspec.Raw], Any]:
    """Return the function that decodes the installed objects of a kind.

    Args:
        shipped: Those of this version, by key.
    """

    def observe(raw: msgspec.Raw) -> InstalledState:
        value = _json.decode(raw)
        meta = value["metadata"]
        key = object_key(meta.get("namespace", ""), meta["name"])
        own = shipped.get(key)
        # Objects that this version does not ship are ignored.
        is_shipped = own is None or not differing(own.value(), value)
        return InstalledState(key, int(meta["resourceVersion"]), meta["uid"], is_shipped)

    return observe


def suspects(cluster: Cluster, shipment: Shipment) -> list[ShippedObject]:
    """Return the objects that are missing from the caches or differ there."""
    found: list[ShippedObject] = []
    for each in shipment.objects:
        state: InstalledState | None = cluster.cache(each.resource).get(each.key)
        if state is None or not state.is_shipped:
            found.append(each)
    return found


async def installed(cluster: Cluster, shipment: Shipment) -> tuple[str, HelmRelease | None]:
    """Return which foreign installation is there, see `shipment.foreign`, and the release of Helm that it is of."""
    data = await cluster.live.find(Namespace.resource, "", SYSTEM_NAMESPACE)
    meta: Json = _json.decode(data)["metadata"] if data is not None else {}
    labels, annotations = marks_of(meta, "labels"), marks_of(meta, "annotations")
    return foreign(shipment, labels, annotations), release_of(labels, annotations)


async def gather(cluster: Cluster, shipped: ShippedObject, version: str, release: HelmRelease | None) -> RepairInputs:
    """Read one object from the API server itself."""
    data = await cluster.live.find(shipped.resource, shipped.namespace, shipped.name)
    live = _json.decode(data) if data is not None else None
    return RepairInputs(shipped=shipped, version=version, live=live, release=release)
