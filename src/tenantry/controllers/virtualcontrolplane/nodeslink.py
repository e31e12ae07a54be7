"""What follows the process of a control plane with nodes of its own: its nodes, its contents, and its gate. The glue.

Cluster "vcp/NAMESPACE/NAME"           InsideController, JoinController, StrangeTokenController
Cluster "vcp/NAMESPACE/NAME/contents"  ContentController, with caches of the operator's own objects, and heads of others
Gate                                   the machines that were handed over, and spec.egress
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from tenantry.api.nodehandover import NodeHandover
from tenantry.api.planenetwork import DEFAULT_DOMAIN
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.clustercontents import controller as contents
from tenantry.controllers.clustercontents.controller import ContentController
from tenantry.controllers.clustercontents.objects import ContentFacts
from tenantry.controllers.joining.controller import JoinController
from tenantry.controllers.joining.podcounts import PodCounts
from tenantry.controllers.joining.strangetokens import StrangeTokenController
from tenantry.controllers.joining.tokens import OfferedTokens
from tenantry.controllers.virtualcontrolplane import servicenetwork
from tenantry.controllers.virtualcontrolplane.egress import SERVICE_CIDRS
from tenantry.controllers.virtualcontrolplane.ownmachines import OwnMachine, machines, of_own_nodes
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster, ClusterId
from tenantry.engine.runtime import Controller, Runtime
from tenantry.hosting.destinations import Destination
from tenantry.hosting.noderuntime import NodeEndpoint
from tenantry.hosting.nodetunnels import NodeTunnels
from tenantry.hosting.outside import OutsideRule
from tenantry.hosting.placement import Placement
from tenantry.kube.client import Client


class NodesLink:
    """The connection to one control plane with nodes of its own.

    Args:
        home: The host.
        lower: The same API server, with the addresses of Services.
        runtime: The control plane is added to it.
        placement: Where its process runs.
        found: The VirtualControlPlane.
        counts: Gets how the pods on its nodes are counted.
    """

    def __init__(  # noqa: PLR0917 - what a link has
        self,
        home: Cluster,
        lower: Cluster,
        runtime: Runtime,
        placement: Placement,
        found: VirtualControlPlane,
        counts: PodCounts | None = None,
    ) -> None:
        self._counts = counts or PodCounts()
        self._home = home
        self._lower = lower
        self._runtime = runtime
        self._placement = placement
        self._key = found.key
        self._uid = found.metadata.uid
        self._network = found.spec.network
        self.tunnels = NodeTunnels(self._may_have_tunnel, lambda: placement.front_proxy_tls(self._uid))
        """The tunnels of its machines from outside."""

    def _services(self) -> str:
        return servicenetwork.of(self._network, self._lower.cache(SERVICE_CIDRS), ()).ranges

    def _endpoint(self) -> NodeEndpoint | None:
        return self._placement.node_endpoint(self._uid)

    def _facts(self) -> ContentFacts:
        return ContentFacts(
            service_range=self._services(),
            domain=self._network.dns_domain or DEFAULT_DOMAIN,
            runtime=self._placement.node_runtime(),
            has_tunnels=any(each.is_outside for each in self._machines()),
        )

    def joining(self, moved: Callable[[], None]) -> Sequence[Controller]:
        """Return what brings nodes inside, and deletes tokens that no machine joins with.

        Args:
            moved: Called when a machine may have come or gone.
        """
        offered = OfferedTokens()
        return (
            JoinController(self._uid, self._home, self._endpoint, moved, offered, self._services),
            StrangeTokenController(self._key, self._uid, self._home, offered),
        )

    def destinations(self, outside: Callable[[], OutsideRule]) -> Callable[[str, int], Destination]:
        """Return the rule of the gate.

        Args:
            outside: Returns the rule for hosts outside of the cluster.
        """
        return of_own_nodes(outside, self._machines, self.tunnels.is_open)

    def _machines(self) -> list[OwnMachine]:
        known: Cache[NodeHandover] = self._home.cache(NodeHandover.resource)
        return machines(known, self._uid)

    def _may_have_tunnel(self, node: str) -> bool:
        return any(each.is_outside and each.name == node for each in self._machines())

    @asynccontextmanager
    async def kept(self, users_side: Client, instance: str) -> AsyncGenerator[None]:
        """Keep the contents of the control plane while the context is open.

        Args:
            users_side: Its API server.
            instance: The replica, for events.
        """
        # Caches of its own: others of this control plane select other objects of the same kinds.
        upper = Cluster(ClusterId(f"vcp/{self._key}/contents"), users_side, clock=self._home.clock, instance=instance)
        self._counts.put(self._uid, lambda: None if upper.outage.is_away else upper.live)
        kept = ContentController(self._home, self._key, self._uid, self._facts)
        self._runtime.add(upper, [kept], is_required=False)
        try:
            # Without any object of its own, no event comes.
            upper.wake(ContentController, contents.KEY)
            yield
        finally:
            self._counts.forget(self._uid)
            await self._runtime.remove(upper.id)
