"""Writes the id of this cluster as the ClusterProperty of KEP-2149, while the cluster has the kind: the glue.

The property is created and never changed: an id must not change while other clusters know it, and a person or another
program may have chosen one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from tenantry.api import reasons
from tenantry.api.clusterinventory import CLUSTER_ID, ClusterProperty, ClusterPropertySpec
from tenantry.api.errors import AlreadyExists
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import ObjectMeta
from tenantry.controllers import watched
from tenantry.engine.cache import Change
from tenantry.engine.cluster import CRDS, Cluster, Watch
from tenantry.engine.crds import CrdState
from tenantry.engine.events import EventKind

LISTED_SECONDS = 2.0
"""How long after the kind came its objects are expected to be listed; no event reports that there are none."""

log = logging.getLogger(__name__)


class ClusterIdController:
    """Reconciles the ClusterProperty with the id of this cluster; the key is its name.

    Args:
        cluster_uid: The uid of the namespace kube-system.
    """

    name = "clusterid"
    kind = ClusterProperty

    def __init__(self, cluster_uid: str) -> None:
        self._cluster_uid = cluster_uid

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller: the property, and its kind."""
        return [
            Watch(
                resource=ClusterProperty.resource,
                decode=watched.decoder(ClusterProperty),
                keys=watched.own_key,
                selectors={"fieldSelector": f"metadata.name={CLUSTER_ID}"},
                optional=True,
                awaited=False,
            ),
            watched.definitions(_of_kind),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Create the property unless it is there; return in how many seconds to look again, None for never.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        resource = ClusterProperty.resource
        kind: CrdState | None = cluster.cache(CRDS).get(resource.full_name)
        if kind is None or not kind.established or resource.version not in kind.versions:
            return None
        if not cluster.is_listed(resource):
            return LISTED_SECONDS
        found: ClusterProperty | None = cluster.cache(resource).get(CLUSTER_ID)
        if found is None:
            meta = ObjectMeta(name=CLUSTER_ID, labels={MANAGED_BY: MANAGER})
            wanted = ClusterProperty(metadata=meta, spec=ClusterPropertySpec(value=self._cluster_uid))
            with suppress(AlreadyExists):  # its event wakes this key
                await cluster.writer.create(wanted, quiet=True)
        elif found.spec.value != self._cluster_uid and not found.metadata.deletion_timestamp:
            note = (
                f"the value is {found.spec.value[:64]!r}, and Tenantry and its peers know this cluster as"
                f" {self._cluster_uid!r}: the property stays as it is; delete it to have it written anew"
            )
            cluster.recorder.say(found, EventKind.WARNING, reasons.CLUSTER_ID_DIFFERS, note)
        return None


def _of_kind(change: Change[CrdState]) -> Iterable[str]:
    found = change.after or change.before
    return [CLUSTER_ID] if found is not None and found.key == ClusterProperty.resource.full_name else []
