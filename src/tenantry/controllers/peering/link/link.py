"""One peer that this cluster uses, connected: its clusters in the runtime, the mirror of pods, and its Node. The glue.

home   node identity ◄─ pods of the Node ─ PodMirror, Copies ─ working token ─► peer: pods in mapped namespaces
Node, Lease ◄─ NodeReports                PeerNamespaces ─────────────► peer: Subnamespaces
API server ─ logs, exec ─► KubeletServer ─ byte streams ───────────────► peer: pods/log, pods/exec
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ConfigError, Forbidden, TenantryError
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.model import Json, object_key
from tenantry.api.peercluster import (
    AUDIENCES_ALLOWED_IN,
    MAX_INSTANCES,
    PREFIX,
    NodeIdentities,
    PeerCluster,
    PeerHost,
    node_name,
    tenant_name,
)
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests import offers
from tenantry.controllers.peering.link import audiences, peerfacts, virtualnode
from tenantry.controllers.peering.link.certificates import NodeCertificate
from tenantry.controllers.peering.link.following import FollowedQuotas
from tenantry.controllers.peering.link.homelease import DURATION_SECONDS, WRITE_SECONDS, HomeLease, LeasedPace
from tenantry.controllers.peering.link.identity import CertifiedNode, ImpersonatedNode, NodeIdentity, node_client
from tenantry.controllers.peering.link.namespaces import PeerNamespaces
from tenantry.controllers.peering.link.nodereports import NodeReports
from tenantry.controllers.peering.link.peerclient import PeerAccess
from tenantry.controllers.peering.link.peerfacts import PeerFacts
from tenantry.controllers.peering.link.probe import PeerProbe
from tenantry.controllers.peering.link.reflections import Reflections
from tenantry.controllers.peering.link.virtualnode import Readiness, VirtualNodeInputs
from tenantry.controllers.peering.status import SILENT_SECONDS
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.engine.cluster import Cluster, ClusterId
from tenantry.engine.reader import Reader
from tenantry.engine.runtime import Controller, Runtime
from tenantry.engine.scope import By, WatchScope
from tenantry.engine.tasks import in_background
from tenantry.engine.writer import Writer
from tenantry.hosting import kubeletpaths, kubeletserver
from tenantry.hosting.certificates import KUBELET_CLIENT_USER
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.kubeletserver import KubeletServer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.copies import Copies
from tenantry.mirror.eventmirror import EventMirror
from tenantry.mirror.kinds import services
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.places import NamespacePairs
from tenantry.mirror.podlimits import PodLimits
from tenantry.mirror.podmirror import PodMirror
from tenantry.mirror.podnodes import OneNode
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, NODES, PODS
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.upperpods import UpperPods

_CONNECTIONS = 16
_WRITES_PER_SECOND = 20.0
_BURST = 450
"""As for the mirrors of control planes: a flood of one tenant must not keep a peer busy."""

_NO_ADDRESSES = ("hostIP", "hostIPs", "podIP", "podIPs")
"""Without a network between the clusters, an address of the peer has no meaning at home."""

_CLIENT_CA = ("kube-system", "extension-apiserver-authentication", "client-ca-file")
"""Where a cluster publishes the authority of its clients (Kubernetes, "Configure the Aggregation Layer")."""


class PeeringHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the links of all peers share.

    Args:
        home: The cluster that the operator runs in.
        home_id: The uid of its namespace kube-system.
        connection: How the operator reaches it.
        runtime: Peers are added to it.
        instance: The replica, for events.
        address: The IP address at which the API server of the home reaches this process.
        tunnels: Those of peers that this process cannot connect to.
    """

    home: Cluster
    home_id: str
    connection: Connection
    runtime: Runtime
    instance: str
    address: str
    tunnels: TunnelEndpoint


class PeerLink:
    """The connection to one peer.

    Args:
        host: What all links share.
        found: The PeerCluster.
        half: Its host half.
        changed: Called when something changes that the status of the PeerCluster reports.
    """

    def __init__(self, host: PeeringHost, found: PeerCluster, half: PeerHost, changed: Callable[[], None]) -> None:
        self._host = host
        self._half = half
        self._name = found.metadata.name
        self._known_id = half.cluster_id or found.status.cluster_id
        self._node_name = node_name(self._name)
        self._changed = changed
        self._access = PeerAccess(host.home, host.home_id, self._name, half, host.tunnels)
        self._pairs = NamespacePairs()
        # The guest's core namespace has its Subnamespaces; what is mirrored is in the namespaces of these.
        self._core = WatchScope(By.NAMESPACE)
        self._core.add(tenant_name(half.guest))
        self._places = WatchScope(By.NAMESPACE)
        self._mirror: PodMirror | None = None
        self._upper: Cluster | None = None
        self._quotas: FollowedQuotas | None = None
        self._services: ObjectMirror | None = None
        self._served: Cluster | None = None
        self._peer: Cluster | None = None
        self._reports: NodeReports | None = None
        self._lease: HomeLease | None = None
        # With its memory of requests that are not signed yet: a link that begins again must not request more.
        self._identity = self._node_identity()
        self._labels: Mapping[str, str] = {}
        self._is_given_up = False
        self.probe = PeerProbe(host.home.clock, self._noticed)
        """What is known of whether the peer answers."""
        self.audiences: tuple[str, ...] | None = None
        """Those whose tokens go to the peer; None until the API server has said which are its own."""
        self.has_node = False
        """Whether the Node is there, and pods are mirrored."""
        self.failure: TenantryError | None = None
        """Why the connection ended; None while it has not."""

    @property
    def half(self) -> PeerHost:
        """Return the host half that it was made for."""
        return self._half

    def label(self, labels: Mapping[str, str]) -> None:
        """Give the Node these labels, which are admitted already, from now on."""
        if labels != self._labels:
            self._labels = labels
            if self._reports is not None:
                self._reports.wake()

    def give_up(self, *, is_given_up: bool) -> None:
        """Keep the Node not ready, or not any more: new pods must not come before the old ones at the peer are gone."""
        if is_given_up != self._is_given_up:
            self._is_given_up = is_given_up
            if self._reports is not None:
                self._reports.wake()

    @property
    def may_write(self) -> bool:
        """Return whether the peer answers, and this home holds its Lease there."""
        return self.probe.answers and self._lease is not None and self._lease.is_held

    @property
    def twice(self) -> str:
        """Return the identity of another home that has the id of this one, and uses the peer; "" for none."""
        return self._lease.twice if self._lease is not None else ""

    async def run(self) -> None:
        """Stay connected until cancelled.

        Raises:
            TenantryError: The peer cannot be used.
        """
        host = self._host
        await self._access.reach(self._report)
        await self._access.accept()
        async with self._access.client() as client:
            lease = self._lease = HomeLease(
                f"{host.home_id}/{host.instance}",
                self._half.guest,
                reader=Reader(client),
                writer=Writer(client),
                clock=host.home.clock,
                changed=self._changed,
            )
            await self._begin(client, lease)
            name = ClusterId(f"peer/{self._name}")
            peer = self._peer = Cluster(name, client, clock=host.home.clock, instance=host.instance)
            # All that is written there, by whatever controller.
            peer.writer = Writer(client, peer, LeasedPace(lease, _WRITES_PER_SECOND, _BURST), seconds=WRITE_SECONDS)
            self.probe.follow(peer.outage)
            quotas = self._quotas = FollowedQuotas(
                host.home.clock,
                wake=partial(peer.wake, PeerNamespaces),
                wake_pods=self._wake_pods,
                look_again=self._look_again,
                is_counted=self._is_counted,
            )
            namespaces = PeerNamespaces(
                self._name,
                host.home,
                guest=self._half.guest,
                home_id=host.home_id,
                scope=self._core,
                paired=self._paired,
                quotas=quotas,
            )
            host.runtime.add(peer, [namespaces], is_required=False)
            try:
                async with (
                    in_background(lease.keep()),
                    in_background(self._access.keep_fresh()),
                    in_background(self.probe.keep_asking(partial(self._ask, client), self._report)),
                ):
                    await self._be_node(client, peer)
            finally:
                self.has_node = False
                self._mirror = self._upper = None
                await host.runtime.remove(peer.id)

    async def _begin(self, client: Client, lease: HomeLease) -> None:
        """Wait until this replica may write at the peer.

        Raises:
            TenantryError: The peer does not serve this cluster, or does not answer.
        """
        home, found = self._host.home, await self._host.home.live.get(PeerCluster, self._name)
        before = found.status.instances
        if self._host.instance not in before:
            # Before it takes the Lease, so that the next leader knows whom it follows.
            await self._record(found, (*before, self._host.instance)[-MAX_INSTANCES:])
        ours = {f"{self._host.home_id}/{each}" for each in before}
        try:
            await self.probe.ask(partial(self._ask, client))
        except Forbidden:
            # Of a guest that is suspended because it was silent, the Lease is what shows that it is back.
            with suppress(TenantryError, TimeoutError):
                async with asyncio.timeout(2 * DURATION_SECONDS):
                    await lease.take(ours)
            raise
        await lease.take(ours)
        if before and before != (self._host.instance,):
            await self._record(await home.live.get(PeerCluster, self._name), (self._host.instance,))

    async def _record(self, found: PeerCluster, instances: tuple[str, ...]) -> None:
        await self._host.home.writer.status(replace(found, status=replace(found.status, instances=instances)))

    async def _ask(self, client: Client) -> PeerFacts:
        """Ask the peer about itself.

        Raises:
            TenantryError: It does not serve this cluster, or does not answer.
        """
        home_id, guest = self._host.home_id, self._half.guest
        found = await peerfacts.read(client, guest, home_id=home_id, known_id=self._known_id)
        self._known_id = found.cluster_id
        return found

    def _report(self, failure: TenantryError | None) -> None:
        self.failure = failure

    def _noticed(self) -> None:
        """Report that the peer is away, or back."""
        if self._mirror is not None:
            # Silence causes no event, and neither does what the peer has not changed when it is back.
            self._mirror.look_again(self._pairs.uppers)
        if self._reports is not None:
            self._reports.wake()
        self._changed()

    def _paired(self, pairs: Mapping[str, str], leaving: Collection[str]) -> None:
        """Mirror other namespaces from now on."""
        changed = self._pairs.set(pairs, leaving)
        self._places.set(self._pairs.lowers)
        if changed and self._mirror is not None:
            self._mirror.look_again(changed)
        if self._services is not None and self._served is not None:
            self._served.wake(Reflections, self._name)
            self._services.look_again(changed)

    def _wake_pods(self, keys: Iterable[str]) -> None:
        if self._mirror is not None:
            self._mirror.wake(keys)

    def _look_again(self, namespace: str) -> None:
        if self._mirror is not None:
            self._mirror.look_again([namespace])

    def _is_counted(self, namespace: str) -> bool:
        """Return whether the mirror knows all pods of a namespace, on both sides."""
        upper, peer, place = self._upper, self._peer, self._pairs.lower(namespace)
        if upper is None or peer is None or not place:
            return False
        return upper.is_listed(PODS) and peer.is_listed_in(PODS, place)

    # -- the Node ---------------------------------------------------------------------------------

    async def _be_node(self, client: Client, peer: Cluster) -> None:
        host = self._host
        # Before any certificate: one for a Node of the name would make this process that Node.
        await self._check_name()
        self.audiences = await audiences.travelling(host.home, self._half.token_audiences)
        await peer.listed(Subnamespace.resource)
        self._changed()
        keys = await self._identity.keys()
        async with node_client(keys.connection) as as_node:
            upper = Cluster(ClusterId(f"node/{self._name}"), as_node, clock=host.home.clock, instance=host.instance)
            mirror, others = self._mirrors(upper, peer)
            host.runtime.add(upper, [mirror, *others], is_required=False)
            self._mirror, self._upper = mirror, upper
            try:
                server = await self._kubelet(client, upper, keys.serving)
                async with self._reflected(peer), server.serve() as port, self._node(as_node, port):
                    self.has_node, self.failure = True, None
                    self._changed()
                    # Pods, streams and watches do not notice a renewal.
                    async for renewed in self._identity.renewals(keys):
                        await as_node.transport.use(renewed.connection)
                        server.use(await self._serving_context(renewed.serving))
            finally:
                await host.runtime.remove(upper.id)

    @asynccontextmanager
    async def _reflected(self, peer: Cluster) -> AsyncGenerator[None]:
        """Mirror Services as the operator: the Node authorizer does not give them to a node."""
        host = self._host
        async with Client(host.connection, field_manager=FIELD_MANAGER, max_connections=_CONNECTIONS) as client:
            upper = Cluster(ClusterId(f"services/{self._name}"), client, clock=host.home.clock, instance=host.instance)
            profile, at_home, at_peer = self._profile(), WatchScope(By.NAMESPACE), WatchScope(By.NAMESPACE)
            objects = UpperObjects(services.RESOURCE, profile, upper, scope=at_home)
            side = msgspec.structs.replace(self._side(peer), scope=at_peer)
            mirror = ObjectMirror(services.KIND.apart(), profile, upper, side, objects)
            scopes = Reflections(self._name, host.home, peer, profile=profile, at_home=at_home, at_peer=at_peer)
            host.runtime.add(upper, [mirror, scopes], is_required=False)
            self._services, self._served = mirror, upper
            upper.wake(Reflections, self._name)
            try:
                yield
            finally:
                self._services = self._served = None
                await host.runtime.remove(upper.id)

    def _node_identity(self) -> NodeIdentity:
        node, host = self._node_name, self._host
        if self._half.node_identity is NodeIdentities.IMPERSONATION:
            clock = host.home.clock
            return ImpersonatedNode(node, self._name, own=host.connection, address=host.address, clock=clock)
        secret = f"{self._name}-node"
        return CertifiedNode(node, secret, home=host.home, own=host.connection, address=host.address)

    async def _check_name(self) -> None:
        """Refuse the name of a Node that is there already.

        Raises:
            ConfigError: There is such a Node.
        """
        found = await liveobjects.find(self._host.home, NODES, self._node_name, "")
        if found is not None and not virtualnode.is_of(found, self._name):
            raise ConfigError(
                f"Node {self._node_name!r} exists and does not stand for a peer: give the PeerCluster another name"
            )

    def _profile(self) -> Profile:
        return Profile(
            owner_uid=self._host.home_id,
            namespace="",
            prefix=PREFIX,
            pairs=self._pairs,
            computed=False,
            node=self._node_name,
            limits=PodLimits(audiences=self.audiences or (), allowed_by=AUDIENCES_ALLOWED_IN),
            hidden=_NO_ADDRESSES,
            is_apart=True,
        )

    def _side(self, peer: Cluster) -> LowerSide:
        return LowerSide(
            cluster=peer,
            writer=peer.writer,
            node=_no_node,
            nodes={},
            reason=reasons.PEER_REFUSED,
            unfit_reason=reasons.NOT_FEDERABLE,
            lost_reason=reasons.POD_LOST,
            token_reason=reasons.TOKEN_NOT_MIRRORED,
            is_silent=lambda: self.probe.silence >= SILENT_SECONDS,
            silent_reason=reasons.UNREACHABLE,
            scope=self._places,
            room=self._quotas,
        )

    def _mirrors(self, upper: Cluster, peer: Cluster) -> tuple[PodMirror, list[Controller]]:
        profile, side = self._profile(), self._side(peer)
        upper_pods = UpperPods(profile, upper)
        sources = {kind: WatchScope(By.KEY) for kind in COPIED}
        copies = Copies(profile, upper, side, upper_pods=upper_pods, sources=sources)
        node = OneNode(self._node_name)
        mirror = PodMirror(profile, upper, side, upper_pods=upper_pods, upper_nodes=node, copies=copies, links=None)
        events = EventMirror(profile, upper, side, node, lambda: mirror.is_busy)
        return mirror, [copies, events]

    async def _serving_context(self, serving: NodeCertificate) -> ssl.SSLContext:
        namespace, name, key = _CLIENT_CA
        published: Json = msgspec.json.decode(await self._host.home.live.read(COPIED["ConfigMap"], namespace, name))
        data: Json = published.get("data") or {}
        authority = str(data.get(key, ""))
        return kubeletserver.serving_context(serving.certificate, serving.key, authority.encode())

    async def _kubelet(self, client: Client, upper: Cluster, serving: NodeCertificate) -> KubeletServer:
        inputs = KubeletInputs(
            tls=await self._serving_context(serving),
            translate=partial(kubeletpaths.translate, locate=partial(self._locate, upper)),
            transport=client.transport,
            clients=frozenset({KUBELET_CLIENT_USER}),
        )
        return KubeletServer(self._node_name, inputs, address=self._host.address)

    def _locate(self, upper: Cluster, namespace: str, pod: str, node: str) -> tuple[str, str] | None:
        """Return the pod at the peer of a pod of this Node; None if it has none."""
        below = self._pairs.lower(namespace)
        known, found = upper.cache_of(PODS), self._peer.cache_of(PODS) if self._peer is not None else None
        above: CachedPod | None = known.get(object_key(namespace, pod)) if known is not None else None
        there: CachedPod | None = found.get(object_key(below, pod)) if found is not None and below else None
        if node != self._node_name or above is None or there is None:
            return None
        # Not a pod of an earlier uid, nor one that another client has made there.
        is_its = str(part(there.meta, "annotations").get(f"{PREFIX}/uid", "")) == above.uid
        return (below, pod) if is_its else None

    @asynccontextmanager
    async def _node(self, client: Client, port: int) -> AsyncGenerator[None]:
        reports = NodeReports(
            partial(self._inputs, port),
            reader=Reader(client),
            writer=Writer(client),
            operator=self._host.home.writer,
            clock=self._host.home.clock,
        )
        self._reports = reports
        try:
            await reports.report()
            async with in_background(reports.run()):
                yield
        finally:
            self._reports = None

    def _inputs(self, port: int) -> VirtualNodeInputs:
        # A node that is not ready loses its pods: a short cut must not count.
        half, is_ready = self._half, self.probe.answers or 0 < self.probe.silence < SILENT_SECONDS
        ready = Readiness(is_ready=True, reason=reasons.ANSWERS, message="the API server of the peer answers")
        away = Readiness(is_ready=False, reason=reasons.UNREACHABLE, message="the API server of the peer is silent")
        if self._is_given_up:
            words = "an administrator has given the peer up: it is used again when it runs none of the old pods"
            is_ready, away = False, Readiness(is_ready=False, reason=reasons.GIVEN_UP, message=words)
        return VirtualNodeInputs(
            name=self._node_name,
            peer=self._name,
            labels=self._labels,
            resources=offers.least(half.accept.hard, self.probe.facts.offer, self._host.home.clock.now()),
            address=self._host.address,
            port=port,
            version=self.probe.facts.version,
            readiness=ready if is_ready else away,
        )


async def _no_node(_name: str) -> Json | None:
    return None
