"""The audiences whose tokens may go to a peer: those that an administrator allows, without this cluster's own.

A token that the API server of this cluster accepts would let the peer act here as the ServiceAccount of a pod.

Source: Kubernetes, "Managing Service Accounts" (TokenRequest): a request without audiences gets all of the API server.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tenantry.api.model import Resource
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.engine import request
from tenantry.engine.cluster import Cluster

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_ACCOUNT = "default"
"""Kubernetes makes one of this name in every namespace; in this one it has no rights."""

_SECONDS = 600


class _Spec(msgspec.Struct, frozen=True):
    audiences: list[str]


class _TokenRequest(msgspec.Struct, frozen=True):
    spec: _Spec


async def travelling(home: Cluster, allowed: Collection[str]) -> tuple[str, ...]:
    """Return the audiences whose tokens may go to a peer, sorted.

    Args:
        home: This cluster.
        allowed: `spec.host.tokenAudiences` of the PeerCluster.

    Raises:
        ApiError: The API server does not say which audiences are its own.
    """
    if not allowed:
        return ()
    asked = request.token(_ACCOUNTS, PEERS_NAMESPACE, _ACCOUNT, seconds=_SECONDS)
    own = msgspec.json.decode(await home.writer.send(asked), type=_TokenRequest).spec.audiences
    return tuple(sorted(set(allowed) - set(own)))
