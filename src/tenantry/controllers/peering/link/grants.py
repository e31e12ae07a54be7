"""Takes back the rights that were given for a peer, and that its host half does not need any more.

    spec.host.nodeIdentity: Impersonation  ─► `tenantry peer allow-node` writes a ClusterRole and its binding
    spec.host.dial: Peer                   ─► the operator makes the account whose token opens the tunnel
    another value, or no host half         ─► they are deleted here
    the PeerCluster is deleted             ─► Kubernetes deletes them

The operator only takes rights away: it cannot write such a ClusterRole itself.
"""

from __future__ import annotations

import logging

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.model import Resource
from tenantry.api.peercluster import PEERS_NAMESPACE, NodeIdentities, PeerCluster, PeerHost
from tenantry.api.peertunnel import Dial, tunnel_name
from tenantry.api.signing import grant_name
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests.guest import ACCOUNTS
from tenantry.engine.cluster import Cluster

log = logging.getLogger(__name__)


class PeerGrants:
    """The rights that were given for peers."""

    def __init__(self) -> None:
        # By PeerCluster: the uid and the generation for which all is taken back.
        self._done: dict[str, tuple[str, int]] = {}

    async def keep(self, home: Cluster, found: PeerCluster) -> None:
        """Take back what a PeerCluster does not need, once for each of its generations.

        Raises:
            ApiError: The API server does not answer.
        """
        meta = found.metadata
        known = (meta.uid, meta.generation)
        if self._done.get(meta.name) == known:
            return
        for kind, namespace, name in unneeded(found):
            try:
                await _withdraw(home, found, kind, namespace, name)
            except Forbidden as error:
                # The rights of an older version: what is left ends with the PeerCluster.
                fields = {"peer": meta.name, "kind": kind.kind, "error": str(error)}
                log.warning("a right for a peer cannot be taken back", extra=fields)
        self._done[meta.name] = known

    def forget(self, name: str) -> None:
        """Take in that a PeerCluster is gone."""
        self._done.pop(name, None)


def unneeded(found: PeerCluster) -> list[tuple[Resource, str, str]]:
    """Return kind, namespace and name of what a PeerCluster does not need, in the order in which it is deleted."""
    half, name = found.spec.host, found.metadata.name
    needed = half if isinstance(half, PeerHost) else None
    objects: list[tuple[Resource, str, str]] = []
    if needed is None or needed.node_identity is not NodeIdentities.IMPERSONATION:
        # The binding first: without it, the role gives no right.
        objects += [(kind.resource, "", grant_name(name)) for kind in (ClusterRoleBinding, ClusterRole)]
    if needed is None or needed.dial is not Dial.PEER:
        objects.append((ACCOUNTS, PEERS_NAMESPACE, tunnel_name(name)))
    return objects


async def _withdraw(home: Cluster, found: PeerCluster, kind: Resource, namespace: str, name: str) -> None:
    live = await liveobjects.find(home, kind, name, namespace)
    owners = live["metadata"].get("ownerReferences", ()) if live is not None else ()
    # Not an object of the name that was made for something else.
    if live is not None and any(each["uid"] == found.metadata.uid for each in owners):
        await liveobjects.delete(home, kind, live)
