"""Whether a peer that is back still runs pods that home has let go: they are compared by uid, and quota waits for them.

    NamespaceMap.status.lost ─► pods there, by the uid that they are marked with ─► none without its pod here: removed

The mirror deletes them: a pod there whose pod here is gone. Both sides are read from their API servers, the peer first,
because a pod there always follows one here.
"""

from __future__ import annotations

from contextlib import suppress

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import Json
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import PREFIX, node_name
from tenantry.controllers.evictions import PODS
from tenantry.controllers.offloading.leaving import BoundPod
from tenantry.engine.cluster import Cluster
from tenantry.mirror import things

LOOK_SECONDS = 2.0
"""How often the pods at the peer are looked at until those that were let go are gone."""

UID = f"{PREFIX}/uid"
"""The mark of a pod at a peer: the uid of the pod here."""


class StrayPods:
    """The pods at one peer that home has let go.

    Args:
        name: The PeerCluster at home.
        home: The home.
    """

    def __init__(self, name: str, home: Cluster) -> None:
        self._name = name
        self._home = home

    async def confirm(self, cluster: Cluster, namespace: str, there: str) -> float | None:
        """Remove the record of pods that were let go once none runs; return in how many seconds to look again.

        Args:
            cluster: The peer.
            namespace: At home.
            there: The namespace at the peer; "" if it is gone, with everything in it.

        Raises:
            ApiError: One side refuses, or does not answer.
        """
        known: NamespaceMap | None = self._home.cache(NamespaceMap.resource).get(self._name)
        if known is None or namespace not in known.status.lost:
            return None
        if there and await self._has_any(cluster, namespace, there):
            return LOOK_SECONDS
        # At its version: more may have been let go meanwhile.
        about: Json = {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
        body: Json = {"metadata": about, "status": {"lost": {namespace: None}}}
        with suppress(NotFound, Conflict):
            await self._home.writer.patch(NamespaceMap.resource, "", self._name, body, subresource="status")
        return LOOK_SECONDS

    async def _has_any(self, cluster: Cluster, namespace: str, there: str) -> bool:
        marked = things.selector(PREFIX)
        below = [each async for each in cluster.live.items(PODS, BoundPod, namespace=there, selectors=marked)]
        bound = {"fieldSelector": f"spec.nodeName={node_name(self._name)}"}
        above = self._home.live.items(PODS, BoundPod, namespace=namespace, selectors=bound)
        uids = {each.metadata.uid async for each in above}
        return any(each.metadata.annotations.get(UID) not in uids for each in below)
