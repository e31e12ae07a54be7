"""As whom this process acts for the Node of a peer at home, and with which certificate its kubelet port serves.

    Certificate     certificates of the Node, which the cluster signs          ─► system:node:NODE
    Impersonation   the operator's own credentials, for a user of one name     ─► system:node:NODE
                    a serving certificate that no authority has signed

For the second, an administrator gives the operator a ClusterRole: the operator cannot take the right to be another user
itself. In both, the API server limits what the Node reads and writes as it does for a kubelet.

Sources: Kubernetes, "Using Node Authorization", "User impersonation", "Kubelet authentication/authorization".
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from cryptography import x509

from tenantry.api.errors import ConfigError, Forbidden, NotFound
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.node import Node
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.signing import NODE, NODES_GROUP
from tenantry.controllers.peering.link import certificates
from tenantry.controllers.peering.link.certificates import (
    LOOK_SECONDS,
    NodeAccess,
    NodeCertificate,
    NodeCertificates,
    NodePair,
)
from tenantry.engine.clock import Clock
from tenantry.engine.cluster import Cluster
from tenantry.engine.writer import Writer
from tenantry.hosting.selfsigned import self_signed
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

_LIFE = dt.timedelta(days=365)
_CONNECTIONS = 4
"""To the API server of the home, which is near. Each one that is opened costs 1.5 ms of CPU, four times a write."""


class NodeKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that stands for a Node needs.

    Args:
        connection: To the API server of the home, as the Node.
        serving: The certificate of the kubelet port.
    """

    connection: Connection
    serving: NodeCertificate


class NodeIdentity(Protocol):
    """A way to act as one Node."""

    async def keys(self) -> NodeKeys:
        """Return what to use now.

        Raises:
            TenantryError: This cluster does not let this process be the Node.
        """
        ...

    def renewals(self, known: NodeKeys) -> AsyncGenerator[NodeKeys]:
        """Yield what to use instead, whenever something was renewed.

        Args:
            known: What is used now.

        Raises:
            TenantryError: What is used has ended, and there is nothing new.
        """
        ...


class CertifiedNode:
    """The Node has certificates of the cluster.

    Args:
        node: The name of the Node.
        secret: The Secret in `tenantry-peers` that keeps them.
        home: The cluster that has the Node.
        own: How the operator reaches it.
        address: The IP address of the kubelet port.
    """

    def __init__(self, node: str, secret: str, *, home: Cluster, own: Connection, address: str) -> None:
        self._node = node
        self._own = own
        self._addresses = [address]
        access = NodeAccess(reader=home.live, writer=home.writer, as_node=self._as_node, clock=home.clock)
        self._certificates = NodeCertificates(node, (PEERS_NAMESPACE, secret), home=access)

    async def keys(self) -> NodeKeys:
        """Return what to use now; see `NodeIdentity`."""
        return self._of(await self._certificates.pair(self._addresses))

    async def renewals(self, known: NodeKeys) -> AsyncGenerator[NodeKeys]:  # noqa: ARG002 - the Secret has what is known
        """Yield renewed certificates; see `NodeIdentity`."""
        async for pair in self._certificates.renewals(await self._certificates.pair(self._addresses), self._addresses):
            yield self._of(pair)

    def _of(self, pair: NodePair) -> NodeKeys:
        return NodeKeys(connection=self._connection(pair.client), serving=pair.serving)

    def _connection(self, own: NodeCertificate) -> Connection:
        unnamed = self._own.anonymous(f"the Node {self._node!r}")
        return msgspec.structs.replace(unnamed, certificate=own.certificate, key=own.key)

    @asynccontextmanager
    async def _as_node(self, own: NodeCertificate) -> AsyncGenerator[Writer]:
        async with node_client(self._connection(own)) as client:
            yield Writer(client)


class ImpersonatedNode:
    """The operator acts as the Node, in a cluster that signs no certificates of nodes.

    Args:
        node: The name of the Node.
        peer: The name of the PeerCluster, for messages.
        own: How the operator reaches the cluster that has the Node.
        address: The IP address of the kubelet port.
        clock: The clock.
    """

    def __init__(self, node: str, peer: str, *, own: Connection, address: str, clock: Clock) -> None:
        self._node = node
        self._peer = peer
        self._connection = msgspec.structs.replace(own, impersonate=NODE + node, impersonate_groups=(NODES_GROUP,))
        self._address = address
        self._clock = clock

    async def keys(self) -> NodeKeys:
        """Return what to use now; see `NodeIdentity`.

        Raises:
            ConfigError: No administrator has allowed it.
        """
        async with node_client(self._connection) as client:
            try:
                await client.get(Node, self._node)
            except NotFound:
                pass
            except Forbidden as error:
                raise ConfigError(
                    f"this process may not act as the Node {self._node!r}, as spec.host.nodeIdentity says: {error};"
                    f" `tenantry peer allow-node {self._peer}` allows it"
                ) from error
        return self._keys()

    async def renewals(self, known: NodeKeys) -> AsyncGenerator[NodeKeys]:
        """Yield another serving certificate at two thirds of the life of the last one; see `NodeIdentity`."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._clock.now() >= known.serving.renewed:
                known = self._keys()
                yield known

    def _keys(self) -> NodeKeys:
        names = [x509.IPAddress(ipaddress.ip_address(self._address))]
        certificate, key = self_signed(NODE + self._node, names, now=self._clock.now(), life=_LIFE)
        return NodeKeys(connection=self._connection, serving=certificates.read(certificate, key))


def node_client(connection: Connection) -> Client:
    """Return a client that acts as a Node."""
    return Client(connection, field_manager=FIELD_MANAGER, max_connections=_CONNECTIONS)
