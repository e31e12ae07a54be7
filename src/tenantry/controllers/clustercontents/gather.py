"""Reads what decides about the contents of one control plane from the caches."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api.clusteraddons import AddOnMode, AddOnName
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.clustercontents import objects
from tenantry.controllers.clustercontents.desired import ContentInputs
from tenantry.controllers.clustercontents.objects import ContentFacts
from tenantry.controllers.clustercontents.reverts import RevertRecord
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.mirror.shapes import part
from tenantry.mirror.things import Thing


def gather(
    cluster: Cluster,
    found: VirtualControlPlane,
    facts: ContentFacts,
    records: Mapping[str, RevertRecord],
    read: Mapping[str, Json],
) -> ContentInputs:
    """Return the inputs about one control plane.

    Args:
        cluster: Its API server, with caches of the operator's own objects, and heads of others.
        found: The VirtualControlPlane.
        facts: What the objects depend on.
        records: How often objects were brought back.
        read: Objects of which only the heads are cached, by `ContentObject.key`.
    """
    wanted = objects.objects(facts)
    seen = {each.key: value for each in wanted if (value := _seen(cluster, each, read)) is not None}
    known: Cache[Thing] = cluster.cache(objects.CONFIG_MAPS)
    record = known.get(f"{objects.SYSTEM}/{objects.RECORD}")
    once = part(record.object, "data") if record is not None else {}
    return ContentInputs(
        wanted=wanted,
        given=found.spec.add_ons,
        seen=seen,
        created=frozenset(each for each in AddOnName if once.get(each) == AddOnMode.ONCE),
        records=records,
        now=cluster.clock.now(),
    )


def _seen(cluster: Cluster, each: objects.ContentObject, read: Mapping[str, Json]) -> Json | None:
    known: Cache[Thing] = cluster.cache(each.resource)
    thing = known.get(each.object_key)
    return read.get(each.key, thing.object) if thing is not None else None
