"""One control plane that runs, connected: its cluster in the runtime, the mirror of its pods, and its gate. The glue.

    hosted control plane ◄─ watch, write ─ Cluster "vcp/NAMESPACE/NAME" ─ PodMirror ─ write ─► namespace on the host
          └── CONNECT ──► Gate ─ decide ─► own pods; kubelet paths ─► the host's API server, as the mirror; spec.egress

The mirror writes with a token of a ServiceAccount that has rights in one namespace only. What it reads of the host is
watched once for all control planes.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import NotFound, Unauthorized
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import FIELD_MANAGER
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE, PREFIX, PlaneNodes, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import (
    classrules,
    desired,
    firstnode,
    inside,
    metrics,
    slicenodes,
)
from tenantry.controllers.virtualcontrolplane.admission import Admission
from tenantry.controllers.virtualcontrolplane.advice import Advice
from tenantry.controllers.virtualcontrolplane.classrules import NamespaceClassRules, SnapshotClassRules
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections, PlaneSides
from tenantry.controllers.virtualcontrolplane.destinations import BY_OWNER, Destinations, owner_of
from tenantry.controllers.virtualcontrolplane.egress import HostRanges
from tenantry.controllers.virtualcontrolplane.hostnodes import HostNodes
from tenantry.controllers.virtualcontrolplane.inside import InsideController
from tenantry.controllers.virtualcontrolplane.metrics import MetricsService, PodMeasures
from tenantry.controllers.virtualcontrolplane.nodeslink import NodesLink
from tenantry.controllers.virtualcontrolplane.planegate import PlaneGate
from tenantry.controllers.virtualcontrolplane.remainder import Remainder
from tenantry.engine import request
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.pace import Pace
from tenantry.engine.reader import Reader
from tenantry.engine.request import ApiRequest, Verb
from tenantry.engine.runtime import Runtime
from tenantry.engine.slots import Slots
from tenantry.engine.tasks import in_background
from tenantry.engine.writer import Turns, Writer
from tenantry.hosting import kubeletpaths
from tenantry.hosting.admission import AdmissionServer
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.placement import Placement, RunningPlane
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection, IssuedToken
from tenantry.mirror import cachedpods, classmirror, nodesizes, things
from tenantry.mirror.adoption import adopted_names
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.classes import CLASSES, SNAPSHOT
from tenantry.mirror.classmirror import ClassMirror
from tenantry.mirror.copies import Copies, of_ingress
from tenantry.mirror.definitionmirror import DefinitionMirror, lower_watch
from tenantry.mirror.endpointmirror import EndpointMirror, upper_slices
from tenantry.mirror.endpoints import BY_ADDRESS, addresses_of
from tenantry.mirror.eventmirror import EventMirror
from tenantry.mirror.kinds import claims, ingresses, services
from tenantry.mirror.kinds.offered import Offered, copied, kind_of
from tenantry.mirror.kinds.table import KINDS
from tenantry.mirror.nodesizes import NodeSizes
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.podmirror import PodMirror
from tenantry.mirror.podtrial import PodTrial
from tenantry.mirror.profile import Profile
from tenantry.mirror.servicelinks import ServiceLinks
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, PODS
from tenantry.mirror.uppernodes import UpperNodes
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.upperpods import UpperPods
from tenantry.mirror.volumemirror import VolumeMirror
from tenantry.mirror.writtensecrets import WrittenSecrets

LOWER = ClusterId("mirrored")
"""The id under which the runtime has the host's API server for mirrored objects."""

TOKEN_SECONDS = 3600
_RENEW_PART = 0.8
_CONNECTIONS = 16
"""How many requests of one mirror the host serves at once."""

_WRITES_PER_SECOND = 20.0
_BURST = 450
"""How fast one mirror writes to the host: 200 pods take 400 writes, two each, and do not wait for their turn.

A write of a mirror costs a host of two cores 15 to 20 ms of CPU, with what follows from it. A flood gets a third of one
core, so that others hardly notice it [measured: docs/benchmarks.md].
"""

_INSIDE_CONNECTIONS = 32
_WORKERS = 256
"""How many keys are reconciled at once: pods that wait for their turn must not keep others from being followed."""

_CHANGES_PER_SECOND = 10.0
"""How often a pod is followed that changes all the time: each change comes up within 300 ms."""

log = logging.getLogger(__name__)


def _rank(asked: ApiRequest) -> int:
    """Return the rank of a request: what exists is finished before further pods begin."""
    return 1 if asked.resource == PODS and asked.verb is Verb.CREATE and not asked.subresource else 0


class MirroredObjects:
    """Holds the watches of what mirrors read of the host, so that their caches are in step before a mirror reads.

    Args:
        ranges: What gates never dial.
    """

    name = "mirrored"
    kind = CachedPod

    def __init__(self, ranges: HostRanges) -> None:
        self._ranges = ranges

    def watches(self) -> Sequence[Watch]:
        """Return the watches; the mirrors add their own keys to them."""
        selectors = things.selector(PREFIX)
        pods = Watch(
            resource=PODS,
            decode=cachedpods.decoder(PREFIX),
            keys=lambda _: (),
            selectors=selectors,
            indexes={BY_ADDRESS: addresses_of, BY_OWNER: owner_of},
        )
        copied = [
            Watch(resource=resource, decode=things.headed, keys=lambda _: (), selectors=selectors)
            for resource in things.COPIED.values()
        ]
        objects = [
            Watch(
                resource=each.resource,
                decode=things.whole,
                keys=lambda _: (),
                selectors=selectors,
                indexes={BY_ADDRESS: services.addresses} if each.resource == services.RESOURCE else None,
                optional=each.is_optional,
                awaited=not each.is_optional,
            )
            for each in KINDS
        ]
        shown = [classmirror.lower_watch(each, lambda _: ()) for each in (*CLASSES, SNAPSHOT)]
        return [
            pods,
            *copied,
            *objects,
            *shown,
            lower_watch(lambda _: ()),
            *self._ranges.of_lower(),
            classrules.watch(lambda _: ()),
            metrics.lower_watch(),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - it has no keys
        """Do nothing: there are no keys."""
        return None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the links of all control planes share.

    Args:
        home: The cluster that the operator runs in.
        lower: The same API server, with the mirrored objects in its caches.
        kept: The same API server, with the objects of `hostobjects` in its caches.
        connection: How the operator reaches it.
        runtime: Control planes are added to it.
        placement: Where they run.
        ranges: What gates never dial.
        instance: The replica, for events.
        connections: The control planes that users can work with.
    """

    home: Cluster
    lower: Cluster
    kept: Cluster
    connection: Connection
    runtime: Runtime
    placement: Placement
    ranges: HostRanges
    instance: str
    connections: PlaneConnections = msgspec.field(default_factory=PlaneConnections)


class Link:
    """The connection to one control plane.

    Args:
        host: What all links share.
        found: The VirtualControlPlane.
        is_open: Whether users have access; see `open`.
        changed: Called when users can work inside, and when its API server is away or back.
        address: The clusterIP by which its pods reach its API server.
        offered: The kinds of the host that administrators offer.
        is_mirrored: Whether its objects are mirrored; otherwise, it is connected, and nothing follows it.
    """

    def __init__(
        self,
        host: Host,
        found: VirtualControlPlane,
        changed: Callable[[], None],
        address: str,
        *,
        is_open: bool,
        offered: tuple[Offered, ...] = (),
        is_mirrored: bool = True,
    ) -> None:
        self._offered = offered
        self._nodes = found.spec.nodes
        self._is_mirrored = is_mirrored
        self._host = host
        profile = desired.profile_of(found, address)
        self._profile = replace(profile, is_adopted=adopted_names(profile, host.lower.cache_of))
        self._plane = desired.plane_of(found, address)
        self._contents = NodesLink(host.home, host.lower, host.runtime, host.placement, found, host.connections.pods)
        self._key = found.key
        self._id = ClusterId(f"vcp/{found.key}")
        self._changed = changed
        self._is_open = is_open
        path = host.placement.gate(self._plane.uid)
        self._gate = PlaneGate(path, found.spec.egress, lambda: host.ranges.networks(host.home, host.lower))
        self._tls: ssl.SSLContext | None = None
        self._upper: Cluster | None = None
        self._sides: PlaneSides | None = None
        self._has_arrived = False
        self.refusal = ""
        """Why the binding of the users cannot be written; "" if it can."""
        self.failure = ""
        """Why the connection ended; "" while it has not."""

    def shows(self, offered: tuple[Offered, ...], shown: PlaneNodes, *, is_mirrored: bool) -> bool:
        """Return whether it mirrors, and which kinds and nodes it shows, are as wished."""
        return (self._offered, self._nodes, self._is_mirrored) == (offered, shown, is_mirrored)

    def open(self, *, is_open: bool) -> None:
        """Give the users access, or take it from them while their tenant is suspended."""
        if is_open != self._is_open:
            self._is_open = is_open
            if self._upper is not None:
                self._upper.wake(InsideController, inside.KEY)

    def allow(self, egress: PlaneEgress) -> None:
        """Change the hosts outside that its gate reaches; connections that are not admitted any more end."""
        self._gate.allow(egress)

    @property
    def has_arrived(self) -> bool:
        """Return whether users could work inside since the connection began."""
        return self._has_arrived

    @property
    def profile(self) -> Profile:
        """Return how its pods are mirrored."""
        return self._profile

    @property
    def is_busy(self) -> bool:
        """Return whether the mirror has something to do now."""
        return self._upper is None or self._upper.has_work

    def pods(self) -> tuple[list[CachedPod], list[CachedPod]]:
        """Return the pods inside, and those on the host; none if they are not mirrored."""
        if self._upper is None or not self._is_mirrored or self._plane.has_nodes:
            return [], []
        below: list[CachedPod] = list(self._host.lower.cache(PODS).by_index(BY_OWNER, self._profile.owner_uid))
        own = [each for each in below if things.is_of(self._profile, each.key, each.meta.get("labels"))]
        return list(self._upper.cache(PODS)), own

    @property
    def answers(self) -> bool:
        """Return whether the API server answers as far as its watches show."""
        return self._upper is not None and not self._upper.outage.is_away

    async def run(self, running: RunningPlane) -> None:
        """Mirror, or bring nodes inside, until cancelled.

        Raises:
            TenantryError: The control plane cannot be connected.
        """
        users_side = Client(running.connection, field_manager=FIELD_MANAGER, max_connections=_INSIDE_CONNECTIONS)
        if not self._plane.has_nodes:
            self._tls = await self._host.placement.kubelet_tls(self._plane.uid, (), None)
            await self._mirror(users_side)
            return
        async with users_side:
            await self._follow_nodes(users_side)

    async def _mirror(self, users_side: Client) -> None:
        host, profile = self._host, self._profile
        mirror = Client(self._mirror_connection(), field_manager=FIELD_MANAGER, max_connections=_CONNECTIONS)
        async with users_side, mirror:
            upper = self._entered(users_side)
            side = LowerSide(
                cluster=host.lower,
                writer=Writer(mirror, host.lower, Pace(_WRITES_PER_SECOND, _BURST), Turns(Slots(_CONNECTIONS), _rank)),
                node=self._node,
                nodes=HostNodes(host.home.cache(Node.resource)),
                reason=reasons.HOST_REFUSED,
            )
            self._sides = PlaneSides(
                profile=profile,
                upper=upper,
                lower=side.writer,
                reader=Reader(mirror),
                is_mirrored=self._is_mirrored,
            )
            if not self._is_mirrored:
                await self._hold(upper)
                return
            upper_nodes = UpperNodes(profile, upper, side, self._noticed)
            upper_pods = UpperPods(profile, upper)
            kinds = (*KINDS, *(kind_of(each, profile) for each in self._offered))
            tables = {
                each.resource: UpperObjects(each.resource, profile, upper, is_optional=each.is_optional)
                for each in kinds
            }
            naming = [
                (tables[ingresses.RESOURCE], of_ingress),
                *((tables[each.resource], copied(each)) for each in self._offered),
            ]
            copies = Copies(profile, upper, side, upper_pods=upper_pods, upper_objects=naming)
            written = WrittenSecrets(profile, upper, side, [(each, tables[each.resource]) for each in self._offered])
            links = ServiceLinks(profile, upper, host.lower, tables[services.RESOURCE])
            pods = PodMirror(
                profile, upper, side, upper_pods=upper_pods, upper_nodes=upper_nodes, copies=copies, links=links
            )
            first = partial(self._first_node, upper_nodes)
            inner = InsideController(self._plane, lambda: self._is_open, first, self._now_usable, self._refused)
            slices = upper_slices(profile, upper)
            objects = [ObjectMirror(each, profile, upper, side, tables[each.resource], slices=slices) for each in kinds]
            ends = EndpointMirror(profile, upper, side, upper_services=tables[services.RESOURCE], upper_slices=slices)
            events = EventMirror(profile, upper, side, upper_nodes, lambda: pods.is_busy)
            rules = NamespaceClassRules(profile.namespace, host.home, host.lower)
            custom = [*(each.resource for each in kinds if each.is_optional), SNAPSHOT.resource]
            offered = DefinitionMirror(custom, profile, upper, side)
            shown_volumes = VolumeMirror(profile, upper, side, tables[claims.RESOURCE])
            shown = [
                *(ClassMirror(each, profile, upper, host.lower, rules) for each in CLASSES),
                ClassMirror(SNAPSHOT, profile, upper, host.lower, SnapshotClassRules(rules, host.lower)),
            ]
            source = things.source(profile.mark(things.WRITTEN_MARK))
            sizes = NodeSizes(upper, side, upper_nodes, Remainder(profile.namespace, host.home, upper, source))
            others = [
                events,
                ends,
                offered,
                written,
                *slicenodes.shown(self._nodes, upper_nodes, self._profile.namespace, host.home),
                shown_volumes,
                MetricsService(host.lower),
                sizes,
                *objects,
                *shown,
            ]
            host.runtime.add(
                upper, [pods, copies, inner, *others], workers=_WORKERS, busy_per_second=_CHANGES_PER_SECOND
            )
            try:
                upper.wake(MetricsService, metrics.KEY)
                upper.wake(NodeSizes, nodesizes.KEY)
                admission = Admission(objects, Advice(PodTrial(profile, side, upper_nodes)))
                step = AdmissionServer(host.placement.admission(self._plane.uid), admission.answer)
                read = partial(_read_once, mirror)
                measured = PodMeasures(profile, upper, host.lower.cache(PODS), upper_nodes, read)
                reads = measured.serve(host.placement.forwarded(self._plane.uid))
                connected = host.placement.connected(self._plane.uid)
                async with self._decided(upper, upper_nodes, mirror), step.serve(), reads, connected:
                    await asyncio.get_running_loop().create_future()
            finally:
                await self._disconnect()

    def _entered(self, users_side: Client) -> Cluster:
        """Return the cluster of the control plane."""
        self._upper = Cluster(self._id, users_side, clock=self._host.home.clock, instance=self._host.instance)
        self._upper.outage.listen(self._changed)
        return self._upper

    async def _hold(self, upper: Cluster) -> None:
        """Stay connected without a mirror, until cancelled: its objects move to the host.

        Nothing that is deleted inside is deleted on the host any more. No Services are created inside, because nothing
        answers for the host, and no connection passes a gate.
        """
        inner = InsideController(self._plane, lambda: self._is_open, _no_first_node, self._now_usable, self._refused)
        self._host.runtime.add(upper, [inner])
        try:
            async with self._host.placement.connected(self._plane.uid):
                await asyncio.get_running_loop().create_future()
        finally:
            await self._disconnect()

    async def _follow_nodes(self, users_side: Client) -> None:
        """Bring nodes of the host inside, until cancelled. Nothing is mirrored."""
        upper = self._entered(users_side)
        inner = InsideController(self._plane, lambda: self._is_open, _no_first_node, self._now_usable, self._refused)
        joining = self._contents.joining(self._gate.recheck)
        self._host.runtime.add(upper, [inner, *joining])
        decide = self._contents.destinations(self._gate.outside)
        kept = self._contents.kept(users_side, self._host.instance)
        try:
            async with (
                self._gate.serve(decide, tunnels=self._contents.tunnels),
                self._host.placement.connected(self._plane.uid),
                kept,
            ):
                await asyncio.get_running_loop().create_future()
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        self._has_arrived = False
        self._host.connections.put(self._key, None)
        await self._host.runtime.remove(self._id)

    def _refused(self, refusal: str) -> None:
        if refusal != self.refusal:
            self.refusal = refusal
            self._changed()

    def _now_usable(self) -> None:
        self._has_arrived = True
        self._host.connections.put(self._key, self._sides)
        self._changed()

    @asynccontextmanager
    async def _decided(self, upper: Cluster, upper_nodes: UpperNodes, mirror: Client) -> AsyncGenerator[None]:
        lower = self._host.lower
        known = upper.cache(PODS), lower.cache(PODS), lower.cache(services.RESOURCE)
        decided = Destinations(self._profile, *known, upper_nodes, self._gate.outside)
        if self._tls is None:
            raise RuntimeError("the gate has no certificate")
        kubelet = KubeletInputs(
            tls=self._tls,
            translate=partial(kubeletpaths.translate, locate=decided.locate),
            transport=mirror.transport,
        )
        serving = self._gate.serve(decided.decide, kubelet=kubelet, settled=decided.settled)
        async with in_background(decided.settle(upper, lower)), serving:
            yield

    # -- what the mirror needs of the host --------------------------------------------------------

    async def _node(self, name: str) -> Json | None:
        data = await self._host.home.live.find(NODES, "", name)
        return msgspec.json.decode(data, type=Json) if data is not None else None

    async def _noticed(self, addresses: Sequence[str]) -> None:
        self._tls = await self._host.placement.kubelet_tls(self._plane.uid, addresses, self._tls)

    async def _first_node(self, upper_nodes: UpperNodes) -> bool:
        """Create the upper node of a node that its pods can use, unless there is one; return whether there is."""
        # The certificate was issued anew when the process started.
        if await upper_nodes.announce():
            return True
        home = self._host.home
        namespace = home.lookup(Namespace.resource, self._profile.namespace)
        name = firstnode.choose(home.cache(Node.resource), namespace.labels if namespace is not None else {})
        return bool(name and await upper_nodes.bring(name))

    # -- the mirror's identity --------------------------------------------------------------------

    def _mirror_connection(self) -> Connection:
        """Return the host's API server with a token of the mirror, requested anew before it expires."""
        source = f"the ServiceAccount {self._profile.namespace!r} of namespace {MIRRORS_NAMESPACE!r}"
        return msgspec.structs.replace(self._host.connection.anonymous(source), issue=self._issue)

    async def _issue(self) -> IssuedToken:
        asked = request.token(
            desired.SERVICE_ACCOUNTS, MIRRORS_NAMESPACE, self._profile.namespace, seconds=TOKEN_SECONDS
        )
        try:
            data = await self._host.home.writer.send(asked)
        except NotFound as error:
            # To the mirror, NotFound would mean that the object that it writes is gone.
            raise Unauthorized(f"the mirror has no identity until it is restored: {error}", status=401) from error
        return IssuedToken(msgspec.json.decode(data)["status"]["token"], TOKEN_SECONDS * _RENEW_PART)


async def _no_first_node() -> bool:
    return True


async def _read_once(client: Client, path: str, query: Mapping[str, str]) -> bytes:
    return await client.request("GET", path, query=query, attempts=1)
