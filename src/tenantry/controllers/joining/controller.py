"""Brings nodes of the host into one control plane, and out of it: a controller of the control plane. The glue.

NodeHandover, Node on the host ─┐
Node inside, its pods ──────────┼─► writes inside ─► status of the NodeHandover
its requests for certificates ──┘
"""

from __future__ import annotations

import asyncio
import secrets
import string
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import KUBEADM_CONFIGS
from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import MachineKind, NodeHandover, NodeHandoverStatus
from tenantry.api.signing import NODE, SigningRequest
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import signingrequests, watched
from tenantry.controllers.conclusion import is_refusal
from tenantry.controllers.joining import machines, signing, tokens
from tenantry.controllers.joining.desired import JoinInputs, decide, orphaned, version_of
from tenantry.controllers.joining.machines import JoinMachineInputs, JoinObstacle
from tenantry.controllers.joining.tokens import JoinToken, OfferedTokens
from tenantry.controllers.slices import pods
from tenantry.controllers.slices.pods import BY_NODE, Pod, PodFacts
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import Wanted, replaced
from tenantry.engine.events import EventKind
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.hosting.noderuntime import NodeEndpoint

_LETTERS = string.ascii_lowercase + string.digits
_ID, _SECRET = 6, 16


class JoinController:
    """Reconciles the Nodes inside of one control plane; the keys are their names.

    Args:
        uid: The uid of the VirtualControlPlane.
        home: The host: its caches have the NodeHandovers and the Nodes.
        endpoint: Returns where machines reach the control plane; None if none can.
        moved: Called when a machine may have come or gone.
        offered: Gets the tokens that are offered inside.
        services: Returns the ranges of Services inside, with commas between them.
    """

    name = "joining"
    kind = Node

    def __init__(  # noqa: PLR0917 - what a link has
        self,
        uid: str,
        home: Cluster,
        endpoint: Callable[[], NodeEndpoint | None],
        moved: Callable[[], None],
        offered: OfferedTokens,
        services: Callable[[], str] = str,
    ) -> None:
        self._uid = uid
        self._home = home
        self._endpoint = endpoint
        self._moved = moved
        self._offered = offered
        self._services = services

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first node on that leaves."""
        on_host = (watched.node_handovers(self._of_handover), watched.nodes(self._of_host))
        return [
            *(msgspec.structs.replace(each, cluster=self._home) for each in on_host),
            watched.nodes(watched.own_key),
        ]

    def _pods(self) -> Watch:
        return Watch(resource=Pod.resource, decode=pods.observe, keys=self._of_pod, indexes={BY_NODE: pods.leaving_of})

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or found.spec.plane.uid != self._uid:
            return ()
        self._moved()
        return [found.metadata.name]

    def requests(self) -> Watch:
        """Return the watch of requests for certificates, from the first machine on that joins."""
        return Watch(resource=SigningRequest.resource, decode=signingrequests.bounded, keys=self._of_request)

    def _of_request(self, change: Change[SigningRequest]) -> Iterable[str]:
        asked = change.after
        if asked is None:
            return ()
        if not signing.is_first(asked):
            name = asked.spec.username.removeprefix(NODE)
            return [name] if self._handover(name) is not None else ()
        every: Cache[NodeHandover] = self._home.cache(NodeHandover.resource)
        return [each.metadata.name for each in every if each.spec.plane.uid == self._uid and signing.is_of(asked, each)]

    def _of_host(self, change: Change[Node]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or self._handover(found.metadata.name) is None:
            return ()
        return [found.metadata.name] if change.before is None or change.after is None else ()

    def _of_pod(self, change: Change[PodFacts]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or not found.node:
            return ()
        handover = self._handover(found.node)
        return [found.node] if handover is not None and handover.metadata.deletion_timestamp else ()

    def _handover(self, name: str) -> NodeHandover | None:
        found: NodeHandover | None = self._home.cache(NodeHandover.resource).get(name)
        return found if found is not None and found.spec.plane.uid == self._uid else None

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one node a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One of both API servers failed; the queue tries again.
        """
        # A NodeHandover that is not known yet is not gone.
        await self._home.listed(NodeHandover.resource, Node.resource)
        found, inside = self._handover(key), cluster.cache(Node.resource).get(key)
        if found is None:
            await self._write(cluster, orphaned(inside) if inside is not None else ())
            return None
        if not found.metadata.deletion_timestamp and found.status.kind in {MachineKind.REAL, MachineKind.CONTRIBUTED}:
            return await self._join(cluster, found) if found.status.stage in machines.STAGES else None
        leaving: list[PodFacts] = []
        if found.metadata.deletion_timestamp:
            # Users inside create as many pods as they like: no memory is spent on them before.
            there: Cache[PodFacts] = await cluster.require(self.name, self._pods())
            leaving = list(there.by_index(BY_NODE, key))
        inputs = JoinInputs(
            handover=found,
            below=self._home.cache(Node.resource).get(key),
            inside=inside,
            pods=leaving,
            version=version_of(found, self._running_version(found)),
            now=cluster.clock.now(),
        )
        decision = decide(inputs)
        try:
            await self._write(cluster, decision.writes)
        except ApiError as error:
            if is_refusal(error):
                await self._tell(cluster, found, found.status, _refused(error))
            raise
        await self._tell(cluster, found, decision.status, decision.obstacle)
        return decision.again_seconds

    def _running_version(self, found: NodeHandover) -> str:
        """Return the patch release of the control plane; "" if that is not known."""
        known = self._home.cache_of(VirtualControlPlane.resource)
        plane: VirtualControlPlane | None = known.get(_plane_key(found)) if known is not None else None
        return plane.status.version if plane is not None else ""

    async def _join(self, cluster: Cluster, found: NodeHandover) -> float | None:
        """Bring a machine a step further; see `reconcile`."""
        requests: Cache[SigningRequest] = await cluster.require(self.name, self.requests())
        token, now = await self._token(found), cluster.clock.now()
        inputs = JoinMachineInputs(
            handover=found,
            inside=cluster.cache(Node.resource).get(found.metadata.name),
            token=token,
            fresh=await self._fresh(found),
            # It may have to open a port.
            endpoint=await asyncio.to_thread(self._endpoint) if machines.needs_token(token, now) else None,
            requests=sorted(
                (each for each in requests if signing.is_of(each, found)), key=lambda each: each.metadata.name
            ),
            now=now,
            services=self._services(),
        )
        decision = machines.decide(inputs)
        if decision.status.join != found.status.join:
            # Before it is inside: what deletes tokens that no status names would see it first.
            self._offered.put(found.metadata.name, inputs.fresh, now)
        await self._write(self._home, decision.home)
        try:
            await self._write(cluster, decision.inside)
        except ApiError as error:
            if is_refusal(error):
                await self._tell(cluster, found, decision.status, _refused(error))
            raise
        for each in decision.events:
            self._home.recorder.say(found, EventKind.WARNING, each.reason, each.message)
        await self._tell(cluster, found, decision.status, decision.obstacle)
        return decision.again_seconds

    async def _token(self, found: NodeHandover) -> JoinToken | None:
        join = found.status.join
        if join is UNSET:
            return None
        # Not cached: an approval must not rest on a record of a moment ago.
        data = await self._home.live.find(tokens.SECRETS, join.secret.namespace, join.secret.name)
        return tokens.read(join.secret, data) if data is not None else None

    async def _fresh(self, found: NodeHandover) -> JoinToken:
        """Return a token that was never used: at first the one of Cluster API, if it has made one."""
        of, expires = found.spec.bootstrap, self._home.clock.now() + tokens.LIFE
        if of is not UNSET and found.status.join is UNSET:
            with suppress(Forbidden):
                data = await self._home.live.find(KUBEADM_CONFIGS, of.namespace, of.name)
                given = tokens.given_by(data, expires) if data is not None else None
                if given is not None:
                    return given
        token_id, value = ("".join(secrets.choice(_LETTERS) for _ in range(count)) for count in (_ID, _SECRET))
        return JoinToken(id=token_id, secret=value, expires=expires)

    async def _tell(
        self, cluster: Cluster, found: NodeHandover, status: NodeHandoverStatus, obstacle: JoinObstacle | None
    ) -> None:
        """Write the status of a NodeHandover, with what keeps the node out."""
        reason, message = (obstacle.reason, obstacle.message) if obstacle is not None else (reasons.NODE_JOINING, "")
        wanted = Wanted(reasons.JOIN_REFUSED, obstacle is not None, reason, message, only_true=True)
        generation, now = found.metadata.generation, rfc3339(cluster.clock.now())
        told = replace(status, conditions=replaced(status.conditions, [wanted], generation=generation, now=now))
        if told != found.status:
            with suppress(NotFound):
                # Not quiet: the host's side, and what counts nodes, follow the stage.
                await self._home.writer.own(request.replace(replace(found, status=told), "status"))

    async def _write(self, cluster: Cluster, writes: tuple[DirectWrite, ...]) -> None:
        outcome = await cluster.writer.apply(Plan(writes=writes))
        if outcome.error is not None:
            raise outcome.error


def _plane_key(found: NodeHandover) -> str:
    return object_key(found.spec.plane.namespace, found.spec.plane.name)


def _refused(error: ApiError) -> JoinObstacle:
    """Return the obstacle that a refusal of the API server inside is."""
    message = f"the API server of the cluster refuses the operator, by a webhook or a policy inside, perhaps: {error}"
    return JoinObstacle(reasons.NODE_BLOCKED, message)
