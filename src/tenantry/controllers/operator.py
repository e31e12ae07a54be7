"""The operator: elects a leader among its replicas and runs every controller on the one that leads.

    acquire the lease ─► cluster ─► lease lost, another holder preferred, or SIGTERM ─► acquire again, or end

A replica that does not lead keeps no caches: it costs the API server one request every two seconds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.errors import ApiError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.peercluster import PeerCluster
from tenantry.api.requests import ClusterRoleRequest, RoleRequest
from tenantry.api.tenant import Tenant
from tenantry.controllers.clusterapi import controller as clusterapi
from tenantry.controllers.contributions.controller import ContributionController
from tenantry.controllers.conversion.controller import IN_SHARDS, conversions
from tenantry.controllers.dedicatedcluster.controller import DedicatedClusterController
from tenantry.controllers.fairness.controller import FairnessController
from tenantry.controllers.hosts.clashes import Clashes
from tenantry.controllers.hosts.controller import HostController
from tenantry.controllers.inheritance.controller import InheritanceController
from tenantry.controllers.inheritance.propagation import Propagation
from tenantry.controllers.installation.controller import InstallationController
from tenantry.controllers.installation.shipment import Shipment
from tenantry.controllers.limits.controller import LimitController
from tenantry.controllers.limits.gather import LimitCache
from tenantry.controllers.nodehandover.controller import NodeHandoverController
from tenantry.controllers.nodes import bandwidth, records
from tenantry.controllers.nodes.addresses import AddressCache, AddressController
from tenantry.controllers.nodes.controller import NodeController
from tenantry.controllers.nodeviews.controller import VIEWS, NodeViewController
from tenantry.controllers.offloading.controller import MapController, OffloadingController
from tenantry.controllers.parts import nodes as shared_nodes
from tenantry.controllers.parts.controller import PartController
from tenantry.controllers.peering.controller import PeerController
from tenantry.controllers.peering.inventory.clusterid import ClusterIdController
from tenantry.controllers.peering.link.link import PeeringHost
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.controllers.quota.controller import QuotaController
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.requesters.controller import RequesterController
from tenantry.controllers.requests.roles import RoleRequestController
from tenantry.controllers.requests.tenants import TenantRequestController
from tenantry.controllers.rules.controller import RulesController
from tenantry.controllers.sharding import ShardKeeper, bystanders
from tenantry.controllers.slices.controller import SliceController
from tenantry.controllers.subnamespace.controller import SubnamespaceController
from tenantry.controllers.tenant.controller import TenantController
from tenantry.controllers.tenantmetrics.pages import Pages, served
from tenantry.controllers.tenantmetrics.refusals import RefusalController
from tenantry.controllers.virtualcontrolplane.charging import ChargeController
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections
from tenantry.controllers.virtualcontrolplane.controller import VirtualControlPlaneController
from tenantry.controllers.virtualcontrolplane.egress import HostRanges
from tenantry.controllers.virtualcontrolplane.hostobjects import KEPT, HostObjectController
from tenantry.controllers.virtualcontrolplane.link import LOWER, Host, MirroredObjects
from tenantry.controllers.virtualcontrolplane.ownnodes import NodeMoveController
from tenantry.controllers.virtualcontrolplane.shards import Shard, lease_name
from tenantry.controllers.virtualcontrolplane.sleeper import SleepingPodsController
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.controllers.webhook.controller import KEY as WEBHOOK
from tenantry.controllers.webhook.controller import WebhookController
from tenantry.controllers.webhook.mutations import ServedMutation, WebhookPlace, no_mutations
from tenantry.controllers.webhook.server import REVIEWS, WebhookServer
from tenantry.engine.clock import SystemClock
from tenantry.engine.cluster import HOME, Cluster
from tenantry.engine.lease import Election
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Controller, Runtime
from tenantry.engine.tasks import cancelled_at_end, first_error
from tenantry.hosting.machines import Machines
from tenantry.hosting.placement import Placement
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.version import require_supported

CONNECTIONS = 64
METRICS_TENANTS = 100
FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
FINISH_SECONDS = 8.0
STOP_SECONDS = 10.0
"""How long a stop may take; a pod gets 30 seconds, a local cluster's supervisor waits as long as this."""

log = logging.getLogger(__name__)


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator runs.

    Args:
        metrics_address: `host:port` of /metrics, /healthz and /readyz.
        secure_metrics_address: `host:port` of /metrics with TLS, for clients that may read it; "" for none.
        metrics_tenants: How many tenants, the largest, have series of their own.
        namespace: The namespace of its Lease.
        identity: The name of this replica; unique.
        placement: Where the control planes of VirtualControlPlanes run; None if none can run here.
        machines: What moves the machines of real nodes to other clusters; None if nothing does.
        shards: The number of parts in which replicas divide them; 1 if the leader serves all. All replicas have the
            same number.
        kubelet_address: The IP address at which the API server reaches the kubelet ports of Nodes that stand for peers.
        tunnel_address: The IP address and the port at which peers open tunnels; None to have no tunnels.
        webhook: How mutations are served as a webhook; None if the API server has mutating policies.
    """

    metrics_address: str
    secure_metrics_address: str = ""
    metrics_tenants: int = METRICS_TENANTS
    namespace: str
    identity: str
    placement: Placement | None = None
    machines: Machines | None = None
    shards: int = 1
    kubelet_address: str = "127.0.0.1"
    tunnel_address: tuple[str, int] | None = None
    webhook: WebhookPlace | None = None


async def operate(
    connection: Connection,
    options: OperatorOptions,
    shipped: Callable[[Client], Awaitable[Shipment | None]],
    mutated: Callable[[Client], Awaitable[Sequence[ServedMutation]]] = no_mutations,
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        connection: Where the cluster is, and who we are.
        options: How it runs.
        shipped: Reads what the operator repairs of its installation; None for nothing.
        mutated: Reads what its webhook serves.

    Raises:
        ConfigError: The API server is too old, or the credentials are wrong.
        InputError: The metrics address cannot be listened on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A stop gives the work time to end; asyncio's own handling of SIGINT ends in a KeyboardInterrupt.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    operator = _Operator(options, shipped, mutated)
    async with (
        Client(
            connection,
            field_manager=marks.FIELD_MANAGER,
            max_connections=CONNECTIONS,
            observer=partial(operator.metrics.observe_request, HOME),
        ) as client,
        # The lease has connections of its own: a burst of work must not make it late.
        Client(connection, field_manager="tenantry-election", max_connections=2) as election_client,
        # As for the lease: a scrape must not wait behind writes.
        Client(connection, field_manager="tenantry-metrics", max_connections=2) as reviewing_client,
        served(
            Pages(operator.metrics, operator.refresh, lambda: operator.home, options.metrics_tenants),
            operator.is_ready,
            address=options.metrics_address,
            secure_address=options.secure_metrics_address,
            send=Cluster(HOME, reviewing_client, clock=operator.clock, instance=options.identity).writer.send,
            clock=operator.clock,
        ),
    ):
        await _until(stop, operator.run(client, election_client))


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run work until an event is set, and then give it `STOP_SECONDS` to end.

    Raises:
        TenantryError: The work fails.
    """
    try:
        async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as group:
            working = group.create_task(work)
            await stop.wait()
            log.info("stopping")
            deadline.reschedule(asyncio.get_running_loop().time() + STOP_SECONDS)
            working.cancel()
    except TimeoutError:
        log.warning("work under way did not end in time", extra={"seconds": STOP_SECONDS})
    # The command line reports one error as one sentence.
    except ExceptionGroup as failed:
        known = failed.subgroup(TenantryError)
        raise known.exceptions[0] if known is not None else failed from failed


def controllers(
    cluster_uid: str,
    shipment: Shipment | None = None,
    verdicts: Verdicts | None = None,
    machines: Machines | None = None,
    connections: PlaneConnections | None = None,
) -> list[Controller]:
    """Return the controllers that the leader runs, with the state that they share.

    Args:
        cluster_uid: The uid of the namespace kube-system.
        shipment: What the leader repairs of the installation; None for nothing.
        verdicts: Of the quota controller, if controllers outside this list read them, too.
        machines: What moves the machines of real nodes to other clusters; None if nothing does.
        connections: The control planes that this process is connected to; None for none.
    """
    # Controllers never call each other. One controller writes verdicts, addresses, clashes or limits, and others read
    # them; the Propagation is the copying itself, which two controllers carry out with the same caches of kinds and
    # sources.
    verdicts = verdicts or Verdicts()
    addresses = AddressCache()
    clashes = Clashes()
    limits = LimitCache()
    propagation = Propagation()
    return [
        TenantController(cluster_uid, addresses, clashes, limits),
        SubnamespaceController(
            cluster_uid,
            verdicts=verdicts,
            addresses=addresses,
            clashes=clashes,
            propagation=propagation,
            limits=limits,
        ),
        QuotaController(verdicts),
        InheritanceController(propagation),
        NodeController("nodes", lambda node, _: bandwidth.plan(node)),
        NodeController("node-records", records.plan),
        FairnessController(),
        RulesController(),
        HostController(clashes),
        AddressController(addresses),
        LimitController(limits),
        TenantRequestController(),
        RequesterController(),
        RoleRequestController(RoleRequest),
        SliceController(verdicts),
        DedicatedClusterController(connections.pods if connections is not None else None),
        *clusterapi.controllers(),
        ContributionController(),
        NodeHandoverController(machines),
        PartController(verdicts),
        NodeController("shared-nodes", lambda node, _: shared_nodes.plan(node)),
        RoleRequestController(ClusterRoleRequest),
        *([InstallationController(shipment)] if shipment is not None else ()),
    ]


class _Operator:
    def __init__(
        self,
        options: OperatorOptions,
        shipped: Callable[[Client], Awaitable[Shipment | None]],
        mutated: Callable[[Client], Awaitable[Sequence[ServedMutation]]],
    ) -> None:
        self.metrics = Metrics()
        self._options = options
        self._shipped = shipped
        self._mutated = mutated
        self._mutations: Sequence[ServedMutation] = ()
        self.clock = SystemClock()
        self._runtime: Runtime | None = None
        # Those of the webhook and of shards, which replicas without the lead have, too.
        self._others: list[Runtime] = []
        self._leads = False
        self.home: Cluster | None = None
        """Its caches have all tenants; None while this replica does not lead."""

    def is_ready(self) -> bool:
        """Return whether this replica is ready: it leads and its caches are in step, or it stands by."""
        # A standby is ready, or a Deployment with two replicas would never become Available.
        return not self._leads or (self._runtime is not None and self._runtime.is_synced)

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        self.metrics.leader.labels("tenantry-operator").set(1 if self._leads else 0)
        leading = [self._runtime] if self._runtime is not None else []
        self.metrics.show(each for runtime in (*leading, *self._others) for each in runtime.counts())

    @contextmanager
    def _shown(self, runtime: Runtime) -> Generator[None]:
        """Show a runtime in the metrics while the context is open."""
        self._others.append(runtime)
        try:
            yield
        finally:
            self._others.remove(runtime)

    async def run(self, client: Client, election_client: Client) -> None:
        """Lead and stand by in turns, and serve shards and the webhook, until cancelled."""
        cluster_uid = await self._wait_for_cluster(client)
        webhook = self._options.webhook
        if webhook is None:
            await self._take_part(client, election_client, cluster_uid)
            return
        self._mutations = await self._mutated(client)
        reviews = Cluster(REVIEWS, client, clock=self.clock, instance=self._options.identity)
        runtime = Runtime(clock=self.clock, metrics=self.metrics)
        server = WebhookServer(reviews, webhook.address, self._mutations, self.metrics)
        with first_error(), self._shown(runtime):
            async with asyncio.TaskGroup() as group:
                group.create_task(server.run(runtime))
                group.create_task(self._take_part(client, election_client, cluster_uid))

    async def _take_part(self, client: Client, election_client: Client, cluster_uid: str) -> None:
        """Lead and stand by in turns, and serve shards, until cancelled."""
        if self._options.placement is None or self._options.shards == 1:
            await self._stand(client, election_client, cluster_uid)
            return
        with first_error():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stand(client, election_client, cluster_uid))
                group.create_task(self._keep_shards(client, election_client, self._options.placement))

    async def _stand(self, client: Client, election_client: Client, cluster_uid: str) -> None:
        """Lead and stand by in turns, until cancelled."""
        election = Election(
            election_client,
            self.clock,
            namespace=self._options.namespace,
            identity=self._options.identity,
            version=__version__,
        )
        while True:
            await election.acquire()
            self._leads = True
            try:
                await self._lead(client, election, cluster_uid)
            finally:
                self._leads = False
                self._runtime = None
                self.home = None
                # Also when cancelled: the next leader would wait until the lease expires.
                await asyncio.shield(election.release())

    async def _lead(self, client: Client, election: Election, cluster_uid: str) -> None:
        # A new cluster for each term: caches of an earlier term may have missed deletions.
        home = Cluster(HOME, client, clock=self.clock, instance=self._options.identity)
        runtime = Runtime(clock=self.clock, metrics=self.metrics)
        try:
            shipment = await self._shipped(client)
        except ApiError as error:
            # An outage must not end the process: another replica may lead, or this one when the outage is over.
            log.warning("the installation could not be read", extra={"error": str(error)})
            await asyncio.sleep(LAST_RETRY_SECONDS)
            return
        if shipment is None:
            log.warning("the installed objects are not repaired: the operator may not read its ClusterRoleBinding")
        # The same API server with caches of its own, which keep other parts of the same kinds.
        views = Cluster(VIEWS, client, clock=self.clock, instance=self._options.identity)
        runtime.add(views, [NodeViewController()])
        self._runtime = runtime
        self.home = home
        # The links of control planes have no end of their own.
        async with cancelled_at_end() as group:
            verdicts = Verdicts()
            connections = PlaneConnections()
            planes = self._control_planes(runtime, home, client, group, verdicts, connections)
            peers = self._peers(runtime, home, client, group, cluster_uid=cluster_uid, verdicts=verdicts)
            own = controllers(cluster_uid, shipment, verdicts, self._options.machines, connections)
            runtime.add(home, [*own, *planes, *peers, *self._webhook(), RefusalController(home, shipment)])
            if self._options.webhook is not None:
                # No event reports that there is no configuration yet.
                home.wake(ServedMutation, WEBHOOK)
            running = group.create_task(runtime.run())
            holding = group.create_task(election.hold())
            try:
                await asyncio.wait({running, holding}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # The process must stop while it holds the lease: writes under way may finish.
                runtime.stop()
                if runtime.is_synced:
                    await asyncio.wait({running}, timeout=FINISH_SECONDS)
                raise
            finally:
                running.cancel()
                holding.cancel()

    def _webhook(self) -> list[Controller]:
        """Return the controller of the webhook's configuration, if mutations are served as a webhook."""
        place = self._options.webhook
        return [WebhookController(self._mutations, place)] if place is not None else []

    def _peers(
        self,
        runtime: Runtime,
        home: Cluster,
        client: Client,
        group: asyncio.TaskGroup,
        *,
        cluster_uid: str,
        verdicts: Verdicts,
    ) -> list[Controller]:
        """Return the controllers of other clusters, of which one adds a cluster for each peer."""
        tunnels = TunnelEndpoint(home, self._options.tunnel_address, lambda name: home.wake(PeerCluster, name))
        group.create_task(tunnels.run())
        host = PeeringHost(
            home=home,
            home_id=cluster_uid,
            connection=client.connection,
            runtime=runtime,
            instance=self._options.identity,
            address=self._options.kubelet_address,
            tunnels=tunnels,
        )
        return [
            PeerController(host, group),
            ClusterIdController(cluster_uid),
            MapController(),
            OffloadingController(verdicts),
        ]

    def _control_planes(  # noqa: PLR0917 - what the leader has
        self,
        runtime: Runtime,
        home: Cluster,
        client: Client,
        group: asyncio.TaskGroup,
        verdicts: Verdicts,
        connections: PlaneConnections,
    ) -> list[Controller]:
        """Return the controller of VirtualControlPlanes, which adds a cluster for each."""
        placement = self._options.placement
        if placement is None:
            return [UnplacedController(), *conversions(None)]
        if self._options.shards > 1:
            return [ChargeController(verdicts), *conversions(None, IN_SHARDS)]
        return self._serving(runtime, home, client, placement, group, verdicts, Shard(), connections)

    async def _keep_shards(self, client: Client, election_client: Client, placement: Placement) -> None:
        """Serve the shards of control planes whose Leases this replica holds, until cancelled."""
        elections = [
            Election(
                election_client,
                self.clock,
                namespace=self._options.namespace,
                identity=self._options.identity,
                name=lease_name(index),
            )
            for index in range(self._options.shards)
        ]

        async def serve_shard(shard: Shard, election: Election) -> None:
            # Caches of its own for each term, as of the leader.
            home = Cluster(HOME, client, clock=self.clock, instance=self._options.identity)
            runtime = Runtime(clock=self.clock, metrics=self.metrics)
            async with cancelled_at_end() as group:
                planes = self._serving(runtime, home, client, placement, group, Verdicts(), shard)
                runtime.add(home, [*planes, *bystanders()])
                running = group.create_task(runtime.run())
                holding = group.create_task(election.hold())
                with self._shown(runtime):
                    await asyncio.wait({running, holding}, return_when=asyncio.FIRST_COMPLETED)
                running.cancel()
                holding.cancel()

        await ShardKeeper(elections, serve_shard).run()

    def _serving(  # noqa: PLR0917 - what the two callers have
        self,
        runtime: Runtime,
        home: Cluster,
        client: Client,
        placement: Placement,
        group: asyncio.TaskGroup,
        verdicts: Verdicts,
        shard: Shard,
        connections: PlaneConnections | None = None,
    ) -> list[Controller]:
        """Return the controllers that serve the control planes of a shard."""
        # Its caches keep whole pods, of which those of other controllers keep little.
        lower = Cluster(LOWER, client, clock=self.clock, instance=self._options.identity)
        ranges = HostRanges(client.connection.server)
        runtime.add(lower, [MirroredObjects(ranges), SleepingPodsController(home), NodeMoveController(home)])
        kept = Cluster(KEPT, client, clock=self.clock, instance=self._options.identity)
        runtime.add(kept, [HostObjectController(home)])
        host = Host(
            home=home,
            lower=lower,
            kept=kept,
            connection=client.connection,
            runtime=runtime,
            placement=placement,
            ranges=ranges,
            instance=self._options.identity,
            connections=connections or PlaneConnections(),
        )
        planes = VirtualControlPlaneController(host, group, verdicts, shard)
        group.create_task(placement.follow(shard.has, planes.look_at))
        # Of several replicas, each knows only the inside of its own control planes.
        return [planes] if shard.count > 1 else [planes, *conversions(host.connections)]

    async def _wait_for_cluster(self, client: Client) -> str:
        """Return the cluster's uid, once it answers and has the kinds.

        Raises:
            ConfigError: It is too old.
        """
        told = ""
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await require_supported(client)
                await client.request("GET", wire.path(Tenant.resource), query={"limit": "1"})
                return (await client.get(Namespace, "kube-system")).metadata.uid
            except NotFound:
                problem = "the cluster does not have the kind Tenant yet; run `tenantry install`"
            except ApiError as error:
                problem = str(error)
            # One line for each new problem: a missing CRD would fill the log.
            if problem != told:
                log.warning("waiting for the cluster", extra={"problem": problem})
                told = problem
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY_SECONDS)
