"""Reconciles NodeHandovers on the host; the key is the name of the node, even if only marks of the Node are left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, NotFound, RetryableError, TenantryError
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.conclusion import problem_of
from tenantry.controllers.joining import tokens
from tenantry.controllers.nodehandover import desired, status
from tenantry.controllers.nodehandover.desired import MachineStep
from tenantry.controllers.nodehandover.gather import HandoverInputs, gather, with_pods
from tenantry.controllers.nodehandover.status import HandoverProgress
from tenantry.controllers.slices import pods
from tenantry.controllers.slices.nodes import is_handed_over
from tenantry.controllers.slices.pods import BY_BOUND, Pod, PodFacts
from tenantry.controllers.slices.stages import report_departures
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting.machines import MachineJoin, MachinePlace, Machines

RETRY_SECONDS = 5.0
"""When to try again to move a machine: no event reports that it is possible now."""


class NodeHandoverController:
    """Takes nodes from the host and gives them back.

    Args:
        machines: Moves the machines of real nodes; None if nothing does.
    """

    name = "nodehandover"
    kind = NodeHandover

    def __init__(self, machines: Machines | None = None) -> None:
        self._machines = machines
        # Node to the key of the control plane that it serves.
        self._planes: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first NodeHandover on."""
        return [
            watched.node_handovers(self._of_handover),
            watched.nodes(self._of_node),
            watched.control_planes(self._of_plane),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Carry out the next stage of one handover; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        inputs = await gather(cluster, key, self._machines)
        if inputs.handover is not None:
            # Pods are the most numerous objects: a cluster without handovers must not pay for watching them.
            there: Cache[PodFacts] = await cluster.require(self.name, self._pods())
            inputs = await with_pods(cluster, await gather(cluster, key, self._machines), there)
        decision = desired.plan(inputs)
        if decision.machine is not None and self._machines is not None:
            try:
                place = await self._move(cluster, inputs, decision.machine, self._machines)
            except ApiError:
                raise
            except TenantryError as error:
                return await self._tell_failure(cluster, inputs, error)
            if place is not None and decision.progress is not None:
                decision = replace(decision, progress=replace(decision.progress, place=place))
        outcome = await cluster.writer.apply(decision.work.plan)
        report_departures(cluster, decision.work, outcome)
        progress = decision.progress
        problem = problem_of(outcome)
        # What passes is tried again in silence: conditions must not flap.
        if problem is not None and not problem.passing and inputs.handover is not None:
            stage = inputs.handover.status.stage
            progress = HandoverProgress(stage=stage, reason=problem.reason, message=problem.message, stalled=True)
        await self._tell(cluster, inputs, progress)
        if outcome.error is not None:
            raise outcome.error
        if inputs.handover is None:
            cluster.forget(self.name, key)
            return None
        return 0.0 if decision.work.goes_on else decision.work.again

    async def _move(
        self, cluster: Cluster, inputs: HandoverInputs, step: MachineStep, machines: Machines
    ) -> MachinePlace | None:
        """Do something with the machine of a node; return where it will be, if that is decided now."""
        if step is MachineStep.REMAKE:
            await machines.remake(inputs.name)
            return None
        found = inputs.handover
        if found is None:
            return None
        if step is MachineStep.CLEAN:
            return await machines.clean(inputs.name, found.spec.plane.uid)
        wanted = await self._join_of(cluster, found)
        if wanted is not None:
            await machines.join(inputs.name, found.spec.plane.uid, wanted)
        elif found.status.stage is HandoverStage.WIPED:
            told = "the Secret with the token of the machine, which status.join names, is gone or cannot be read"
            raise RetryableError(told, None)
        return None

    async def _join_of(self, cluster: Cluster, found: NodeHandover) -> MachineJoin | None:
        """Return how a machine joins; None if the Secret with its token is gone, or has none that can be read.

        Raises:
            ApiError: The API server does not answer.
        """
        join = found.status.join
        if join is UNSET:
            return None
        # Not cached: a cache of Secrets would have those of all tenants.
        data = await cluster.live.find(tokens.SECRETS, join.secret.namespace, join.secret.name)
        if data is None:
            return None
        token = tokens.read(join.secret, data)
        if token is None or not token.secret:
            return None
        # Also one that was used: until its certificate is there, the kubelet waits for it with the same token.
        return MachineJoin(server=join.server, ca=join.ca, token=token.text, version=found.spec.version)

    async def _tell_failure(self, cluster: Cluster, inputs: HandoverInputs, error: TenantryError) -> float:
        """Report why a machine cannot be moved; return in how many seconds to try again."""
        if inputs.handover is not None:
            stage = inputs.handover.status.stage
            await self._tell(
                cluster, inputs, HandoverProgress(stage=stage, reason=reasons.MACHINE_FAILED, message=str(error))
            )
        return RETRY_SECONDS

    async def _tell(self, cluster: Cluster, inputs: HandoverInputs, progress: HandoverProgress | None) -> None:
        # As the writes have left it: a finalizer that was added has another resourceVersion.
        found: NodeHandover | None = cluster.cache(NodeHandover.resource).get(inputs.name)
        if found is None or inputs.handover is None or found.metadata.uid != inputs.handover.metadata.uid:
            return
        if found.status.stage is not inputs.handover.status.stage:
            # The link has set another stage meanwhile, which decides anew: its event queues the key again.
            progress = None
        node: Node | None = cluster.cache(Node.resource).get(inputs.name)
        told = status.compute(found, node, progress, rfc3339(inputs.now))
        if told != found.status:
            with suppress(NotFound):
                # Not quiet: the link of the control plane and the cluster's controller have this cache, too.
                await cluster.writer.own(request.replace(replace(found, status=told), subresource="status"))

    def _pods(self) -> Watch:
        return Watch(resource=Pod.resource, decode=pods.observe, keys=self._of_pod, indexes={BY_BOUND: pods.bound_to})

    # -- keys of changes ----------------------------------------------------------------------------

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        after = change.after
        if after is not None:
            plane = after.spec.plane
            self._planes[after.metadata.name] = object_key(plane.namespace, plane.name)
        elif change.before is not None:
            self._planes.pop(change.before.metadata.name, None)
        return watched.own_key(change)

    def _of_node(self, change: Change[Node]) -> Iterable[str]:
        sides = [each for each in (change.before, change.after) if each is not None]
        concerned = [each.metadata.name for each in sides if each.metadata.name in self._planes]
        concerned += [each.metadata.name for each in sides if is_handed_over(each)]
        # Heartbeats change only the conditions, of every node, every few seconds.
        is_heartbeat = change.before is not None and change.after is not None and _seen(sides[0]) == _seen(sides[1])
        return () if is_heartbeat else concerned[:1]

    def _of_plane(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        before, after = change.before, change.after
        value = after or before
        if value is None or (before is not None and after is not None and before.metadata.uid == after.metadata.uid):
            return ()
        return [name for name, plane in self._planes.items() if plane == value.key]

    def _of_pod(self, change: Change[PodFacts]) -> Iterable[str]:
        return {each.node for each in (change.before, change.after) if each is not None and each.node in self._planes}


def _seen(node: Node) -> object:
    return node.metadata.uid, node.metadata.labels, node.metadata.annotations, node.spec, node.is_ready
