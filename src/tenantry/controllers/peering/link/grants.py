"""Withdraws the right to act as the Node of a peer, which an administrator granted, when it is not needed any more.

    spec.host.nodeIdentity: Impersonation  ─► `tenantry peer allow-node` writes a ClusterRole and its binding
    Certificate again, or no host half     ─► both are deleted here
    the PeerCluster is deleted             ─► Kubernetes deletes both

The operator only takes a right away from itself: it cannot write such a ClusterRole.
"""

from __future__ import annotations

import logging

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.peercluster import NodeIdentities, PeerCluster, PeerHost
from tenantry.api.signing import grant_name
from tenantry.controllers.peering import liveobjects
from tenantry.engine.cluster import Cluster

# The binding first: without it, the role gives no right.
_KINDS = (ClusterRoleBinding.resource, ClusterRole.resource)

log = logging.getLogger(__name__)


class NodeGrants:
    """The rights of the operator to act as Nodes of peers."""

    def __init__(self) -> None:
        # By PeerCluster: the uid and the generation for which there is no grant any more.
        self._withdrawn: dict[str, tuple[str, int]] = {}

    async def keep(self, home: Cluster, found: PeerCluster) -> None:
        """Withdraw the right of a peer that does not need it, once for each generation of the PeerCluster.

        Raises:
            ApiError: The API server does not answer.
        """
        meta = found.metadata
        known = (meta.uid, meta.generation)
        if is_needed(found):
            self.forget(meta.name)
        elif self._withdrawn.get(meta.name) != known:
            try:
                await _withdraw(home, found)
            except Forbidden as error:
                # The rights of an older version: the grant ends with the PeerCluster.
                log.warning("a right cannot be withdrawn", extra={"peer": meta.name, "error": str(error)})
            self._withdrawn[meta.name] = known

    def forget(self, name: str) -> None:
        """Take in that a PeerCluster is gone."""
        self._withdrawn.pop(name, None)


def is_needed(found: PeerCluster) -> bool:
    """Return whether the operator acts as the Node of a peer by impersonation."""
    half = found.spec.host
    return isinstance(half, PeerHost) and half.node_identity is NodeIdentities.IMPERSONATION


async def _withdraw(home: Cluster, found: PeerCluster) -> None:
    for kind in _KINDS:
        live = await liveobjects.find(home, kind, grant_name(found.metadata.name), "")
        owners = live["metadata"].get("ownerReferences", ()) if live is not None else ()
        # Not an object of the name that an administrator made for something else.
        if live is not None and any(each["uid"] == found.metadata.uid for each in owners):
            await liveobjects.delete(home, kind, live)
