"""Keeps PeerClusters: what serves a home, and the link to a peer. The glue.

guest half ─► Tenant, accounts                         (Kubernetes deletes them with the PeerCluster)
host half  ─► PeerLink ─► Node, mirror, kubelet port ─► status
deleted    ─► pods leave (MapController) ─► namespaces at the peer end ─► Link ends ─► Node, Secrets ─► finalizer
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, TenantryError, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PROPOSED_LABELS
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import (
    FINALIZER,
    GIVE_UP,
    NODE_PREFIX,
    PEERS_NAMESPACE,
    InvitationPhase,
    InvitationStatus,
    OfferStatus,
    PeerCluster,
    PeerGuest,
    PeerHost,
    node_name,
    tenant_name,
)
from tenantry.api.peertunnel import Dial
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import FederationDefaults, TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.peering import discovery, givenup, liveobjects, removal, status
from tenantry.controllers.peering.guests import guest, invitations, inviting, offering, offers, presence
from tenantry.controllers.peering.guests.presence import GuestPresence, Stage
from tenantry.controllers.peering.inventory import profiles
from tenantry.controllers.peering.link import labels, virtualnode
from tenantry.controllers.peering.link.grants import PeerGrants
from tenantry.controllers.peering.link.link import PeeringHost, PeerLink
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.controllers.peering.removal import GIVE_UP_SECONDS, Removal, RemovalInputs
from tenantry.controllers.peering.status import GuestState, HostState
from tenantry.controllers.peering.tunnels import diallers
from tenantry.controllers.peering.tunnels.diallers import TunnelDiallers
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import Wanted
from tenantry.engine.events import EventKind
from tenantry.engine.lease import Lease
from tenantry.engine.plan import Blocked
from tenantry.mirror.things import NODES
from tenantry.world.leases import instant

RETRY_SECONDS = 10.0
"""When a link that has ended begins again."""

INVITATION_SECONDS = 5.0
"""How often the Secret of an open invitation is looked at. Its end is final at once; only the account is left."""

REPAIR_SECONDS = 300.0
"""How often what serves a home is compared; the garbage collector and other clients may have deleted a part of it."""

FIRST_LOOK_SECONDS = 5.0
"""How often a guest is looked at that has not been seen yet."""

LOOK_SECONDS = 30.0
"""How often the Lease of a guest is looked at."""

PROFILE_SECONDS = 5.0
"""When a ClusterProfile that could not be written is tried again."""

log = logging.getLogger(__name__)


class _Connected(msgspec.Struct, frozen=True):
    link: PeerLink
    task: asyncio.Task[None]
    uid: str


class PeerController:
    """Reconciles PeerClusters; the key is the name.

    Args:
        host: What the links of all peers share.
        group: Runs the links.
    """

    name = "peercluster"
    kind = PeerCluster

    def __init__(self, host: PeeringHost, group: asyncio.TaskGroup) -> None:
        self._host = host
        self._group: asyncio.TaskGroup = group
        self._connected: dict[str, _Connected] = {}
        self._diallers = TunnelDiallers(group, host.connection.server)
        self._grants = PeerGrants()
        # By name of a deleted PeerCluster at whose peer nothing can be written: since when.
        self._silent: dict[str, float] = {}
        # By the name of a guest: the renewal of its Lease that was seen last.
        self._renewals: dict[str, str] = {}
        # By the name of a guest: what was written for it, and until when that is taken to be still there.
        self._written: dict[str, tuple[object, float]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(resource=PeerCluster.resource, decode=watched.decoder(PeerCluster), keys=watched.own_key),
            Watch(resource=NamespaceMap.resource, decode=watched.decoder(NamespaceMap), keys=watched.own_key),
            watched.tenants(_of_tenant),
            watched.defaults(lambda _: list(self._connected)),
            profiles.watch(),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one PeerCluster a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        found: PeerCluster | None = cluster.cache(PeerCluster.resource).get(key)
        known = self._connected.get(key)
        half = found.spec.host if found is not None else None
        is_same = found is not None and known is not None and found.metadata.uid == known.uid
        if known is not None and not (is_same and _goes_on(half, known.link.half)):
            await self._disconnect(key)
        if found is None:
            self._silent.pop(key, None)
            self._grants.forget(key)
            self._host.tunnels.close(key)
            await self._diallers.stop(key)
            cluster.forget(self.name, key)
            return None
        if found.metadata.deletion_timestamp:
            return await self._remove(cluster, found)
        ends = discovery.ends(found)
        if ends is not None and ends <= cluster.clock.now():
            await self._forget(cluster, found)
            return None
        again = await self._keep(cluster, found)
        return again if ends is None else (ends - cluster.clock.now()).total_seconds()

    async def _keep(self, cluster: Cluster, found: PeerCluster) -> float | None:
        """Serve the home, keep the link to the peer, and report both; return in how many seconds to look again."""
        half = found.spec.host
        await self._grants.keep(cluster, found)
        served = await self._serve(cluster, found)
        tunnel = await self._diallers.keep(cluster, found, lambda: cluster.wake(PeerCluster, found.metadata.name))
        served = replace(served, tunnel=tunnel)
        state: HostState | None = None
        if isinstance(half, PeerHost):
            if FINALIZER not in found.metadata.finalizers:
                # Before the Node: a PeerCluster that is deleted in between would leave it behind.
                await cluster.writer.own(request.finalizers(found, (*found.metadata.finalizers, FINALIZER)))
                return None
            state = await self._use(cluster, found, half)
            if await self._use_again(cluster, found, answers=state.answers):
                return None
            state = replace(state, tunnel=await self._tunnel(cluster, found, half))
            state = await self._show(cluster, found, served, state)
        wanted = status.compute(found, served, state, rfc3339(cluster.clock.now()))
        if (wanted.labels, wanted.token_audiences) != (found.status.labels, found.status.token_audiences):
            # It wakes this key, and the controllers of namespaces that select the peer.
            with suppress(NotFound):
                await cluster.writer.own(request.replace(replace(found, status=wanted), subresource="status"))
        elif wanted != found.status:
            await cluster.writer.status(replace(found, status=wanted))
        again = _again(served)
        if again is not None and isinstance(found.spec.guest, PeerGuest):
            again = offering.next_look(found.spec.guest, cluster.clock.now(), again)
        if state is not None and profiles.is_passing(state.inventoried):
            return min(again or PROFILE_SECONDS, PROFILE_SECONDS)
        return again

    async def _show(self, cluster: Cluster, found: PeerCluster, served: GuestState, state: HostState) -> HostState:
        """Show the peer to other programs, with the status that it gets; return its state with the outcome."""
        shown = replace(found, status=status.compute(found, served, state, rfc3339(cluster.clock.now())))
        given = labels.of_node(shown, _federation(cluster))
        return replace(state, inventoried=await profiles.keep(cluster, shown, given))

    async def _forget(self, cluster: Cluster, found: PeerCluster) -> None:
        """Delete a PeerCluster that was only discovered, unless it has changed."""
        meta = found.metadata
        asked = request.delete(PeerCluster.resource, "", meta.name, uid=meta.uid, version=found.version)
        with suppress(NotFound):
            await cluster.writer.send(asked)

    # -- the guest half -----------------------------------------------------------------------------

    async def _look(self, cluster: Cluster, found: PeerCluster) -> GuestPresence | None:
        """Return what is known of the home that is served here; None if there is no guest half."""
        half, name = found.spec.guest, found.metadata.name
        if not isinstance(half, PeerGuest):
            self._renewals.pop(name, None)
            return None
        data = await cluster.live.find(Lease.resource, PEERS_NAMESPACE, name)
        lease = msgspec.json.decode(data, type=Lease) if data is not None else None
        others = (each for each in cluster.cache(PeerCluster.resource) if each.metadata.uid != found.metadata.uid)
        taken = {
            other.cluster_id or each.status.guest_id
            for each in others
            if isinstance(other := each.spec.guest, PeerGuest)
        }
        now, seen = cluster.clock.now(), self._renewals.get(name)
        state = presence.judge(found, half, lease, seen=seen, taken={self._host.home_id, *taken}, now=now)
        self._renewals[name] = (lease.spec.renew_time or "") if lease is not None else ""
        return state

    async def _serve(self, cluster: Cluster, found: PeerCluster) -> GuestState:
        """Keep what serves a home; return its state."""
        half, name = found.spec.guest, found.metadata.name
        state = await self._look(cluster, found)
        if state is None or not isinstance(half, PeerGuest):
            await self._stop_serving(cluster, found)
            return GuestState()
        tenant: Tenant | None = cluster.cache(Tenant.resource).get(tenant_name(name))
        unserved = GuestState(presence=state, problem=guest.foreign(found, tenant), invitation=found.status.invitation)
        unserved = replace(unserved, offered=found.status.offered)
        if unserved.problem is not None:
            return unserved
        if state.stage is Stage.ENDED and tenant is not None:
            await self._delete(cluster, Tenant.resource, "", tenant.metadata.name)
        now, known_id = cluster.clock.monotonic(), found.status.guest_id
        written = (found.metadata.uid, half, state.stage, tenant is None, known_id)
        before, until = self._written.get(name, (None, 0.0))
        # It is looked at more often than it has to be repaired.
        is_due = before != written or now > until
        for resource, value in guest.objects(found, half, state.stage) if is_due else ():
            try:
                await cluster.writer.send(request.apply(resource, value))
            except (Forbidden, Invalid, BadRequest) as error:
                return replace(unserved, problem=Blocked(reason=reasons.REFUSED, message=str(error)))
        if is_due:
            self._written[name] = (written, now + REPAIR_SECONDS)
        await self._propose(cluster, found, half)
        problem = state.problem or guest.unready(cluster.cache(Tenant.resource).get(tenant_name(name)))
        invitation = await inviting.keep(cluster, found, half)
        offered = await offering.keep(cluster, found, half)
        return GuestState(presence=state, problem=problem, invitation=invitation, offered=offered)

    async def _propose(self, cluster: Cluster, found: PeerCluster, half: PeerGuest) -> None:
        """Show the other cluster which labels this one proposes for its Node."""
        core = cluster.lookup(Namespace.resource, tenant_name(found.metadata.name))
        text = labels.proposal(half.labels)
        if core is None or core.annotations.get(PROPOSED_LABELS, "") == text:
            return  # a namespace that is not there yet: the Tenant wakes this key when it is ready
        body: Json = {"metadata": {"uid": core.uid, "annotations": {PROPOSED_LABELS: text or None}}}
        with suppress(NotFound, Conflict):
            await cluster.writer.own(request.patch(Namespace.resource, "", core.name, body))

    async def _stop_serving(self, cluster: Cluster, found: PeerCluster) -> None:
        """Delete what served a home, the Tenant last, which shows that there is more to do."""
        tenant: Tenant | None = cluster.cache(Tenant.resource).get(tenant_name(found.metadata.name))
        if tenant is None or guest.foreign(found, tenant) is not None:
            return
        self._written.pop(found.metadata.name, None)
        others = (*invitations.objects(found), *offers.objects(found, OfferStatus()))
        for resource, value in (*others, *guest.objects(found, PeerGuest())):
            meta = value["metadata"]
            await self._delete(cluster, resource, meta.get("namespace", ""), meta["name"])

    # -- the host half ------------------------------------------------------------------------------

    async def _use(self, cluster: Cluster, found: PeerCluster, half: PeerHost) -> HostState:
        """Begin the link, unless the half is of another cluster than was discovered; return its state."""
        wrong = discovery.problem(found)
        if wrong is None:
            return self._connect(cluster, found, half)
        await self._disconnect(found.metadata.name)
        return HostState(failure=wrong)

    def _connect(self, cluster: Cluster, found: PeerCluster, half: PeerHost) -> HostState:
        """Begin the link unless there is one; return its state."""
        key = found.metadata.name
        known = self._connected.get(key)
        if known is None:
            link = PeerLink(self._host, found, half, lambda: cluster.wake(PeerCluster, key))
            task = self._group.create_task(self._run(cluster, key, link))
            known = self._connected[key] = _Connected(link, task, found.metadata.uid)
        link = known.link
        link.label(labels.of_node(found, _federation(cluster)))
        link.give_up(is_given_up=bool(found.give_up))
        probe, facts = link.probe, link.probe.facts
        return HostState(
            cluster_id=facts.cluster_id,
            version=facts.version,
            labels=facts.labels,
            answers=probe.answers,
            silence=probe.silence,
            twice=link.twice,
            has_node=link.has_node,
            failure=_told(link.failure),
            offer=facts.offer or UNSET,
            given_up=givenup.condition(found, self._map(cluster, key), answers=probe.answers),
            audiences=link.audiences,
        )

    def _map(self, cluster: Cluster, key: str) -> NamespaceMap | None:
        return cluster.cache(NamespaceMap.resource).get(key)

    async def _use_again(self, cluster: Cluster, found: PeerCluster, *, answers: bool) -> bool:
        """Use a peer again that was given up, once it is back; return whether its event wakes this key."""
        if not givenup.is_over(found, self._map(cluster, found.metadata.name), answers=answers):
            return False
        body: Json = {"metadata": {"uid": found.metadata.uid, "annotations": {GIVE_UP: None}}}
        with suppress(NotFound, Conflict):
            await cluster.writer.own(request.patch(PeerCluster.resource, "", found.metadata.name, body))
        return True

    async def _run(self, cluster: Cluster, key: str, link: PeerLink) -> None:
        """Run a link until cancelled; one that ends begins again."""
        while True:
            try:
                await link.run()
                link.failure = None
            except TenantryError as error:
                log.warning("the link to a peer has ended", extra={"peer": key, "error": str(error)})
                link.failure = error
            except Exception as error:  # a bug in one link must not end the operator
                log.exception("the link to a peer has failed", extra={"peer": key})
                link.failure = TenantryError(f"{type(error).__name__}: see the log of the operator")
            cluster.wake(PeerCluster, key)
            if link.failure:
                await asyncio.sleep(RETRY_SECONDS)

    async def _disconnect(self, key: str) -> None:
        known = self._connected.pop(key, None)
        if known is not None:
            known.task.cancel()
            await asyncio.wait({known.task})

    async def _tunnel(self, cluster: Cluster, found: PeerCluster, half: PeerHost) -> Wanted | None:
        """Let the peer open its tunnel, if it connects to this cluster; return whether it is open."""
        if half.dial is Dial.PEER:
            return await diallers.admit(self._host.tunnels, cluster, found)
        self._host.tunnels.close(found.metadata.name)
        return None

    async def _remove(self, cluster: Cluster, found: PeerCluster) -> float | None:
        """Remove what was made for a peer, in order; return in how many seconds to look again."""
        key = found.metadata.name
        if FINALIZER not in found.metadata.finalizers:
            return None
        known = self._map(cluster, key)
        left = {*known.spec.desired, *known.status.current} if known is not None else set[str]()
        if left and isinstance(found.spec.host, PeerHost):
            # After a restart, too: the peer still has what belongs to this cluster.
            await self._use(cluster, found, found.spec.host)
            if found.spec.host.dial is Dial.PEER:
                await diallers.admit(self._host.tunnels, cluster, found)
        asked = RemovalInputs(
            left=left,
            silence=self._silence(cluster, key),
            deleting=(cluster.clock.now() - instant(found.metadata.deletion_timestamp)).total_seconds(),
            at_once=found.ends_at_once,
        )
        decided = removal.decide(asked)
        if decided is Removal.WAIT:
            return GIVE_UP_SECONDS / 2
        if decided is Removal.GIVE_UP:
            note = removal.leftovers(asked, found.spec.host.guest if isinstance(found.spec.host, PeerHost) else key)
            log.warning("a peer is removed, and something may be left there", extra={"peer": key, "left": sorted(left)})
            cluster.recorder.say(found, EventKind.WARNING, reasons.PEER_GIVEN_UP, note)
        await self._disconnect(key)
        await self._delete(cluster, NODES, "", node_name(key))
        for name in self._secrets(found):
            await self._delete(cluster, SECRETS, PEERS_NAMESPACE, name)
        others = tuple(each for each in found.metadata.finalizers if each != FINALIZER)
        with suppress(NotFound):
            await cluster.writer.own(request.finalizers(found, others), quiet=True)
        return None

    def _silence(self, cluster: Cluster, key: str) -> float:
        """Return for how many seconds nothing could be written at the peer of a deleted PeerCluster."""
        known = self._connected.get(key)
        if known is not None and known.link.may_write:
            self._silent.pop(key, None)
            return 0.0
        now = cluster.clock.monotonic()
        return now - self._silent.setdefault(key, now)

    def _secrets(self, found: PeerCluster) -> list[str]:
        half = found.spec.host
        given = [half.credentials_secret_name] if isinstance(half, PeerHost) else []
        return [f"{found.metadata.name}-node", *given]

    async def _delete(self, cluster: Cluster, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object of ours, unless it is gone, or a Node of the name belongs to another client."""
        live = await liveobjects.find(cluster, resource, name, namespace)
        if live is None or (resource == NODES and not virtualnode.is_of(live, name.removeprefix(NODE_PREFIX))):
            return
        await liveobjects.delete(cluster, resource, live)


def _federation(cluster: Cluster) -> FederationDefaults:
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    return defaults.spec.federation if defaults is not None else FederationDefaults()


def _goes_on(half: PeerHost | UnsetType | None, other: PeerHost) -> bool:
    """Return whether a link goes on with another half: it takes in other labels as it is."""
    return isinstance(half, PeerHost) and replace(half, labels={}) == replace(other, labels={})


def _told(failure: TenantryError | None) -> Blocked | None:
    """Return why a link has ended, for the status."""
    if failure is None:
        return None
    if isinstance(failure, TerminalError):
        return Blocked(reason=failure.reason, message=str(failure))
    return Blocked(reason=reasons.UNREACHABLE, message=str(failure), passing=True)


def _again(served: GuestState) -> float | None:
    """Return in how many seconds to look at a guest again; None for never."""
    if isinstance(served.invitation, InvitationStatus) and served.invitation.phase is InvitationPhase.OPEN:
        return INVITATION_SECONDS
    if served.presence is None:
        return None
    if not served.presence.guest_id:
        return FIRST_LOOK_SECONDS
    left = served.presence.next_seconds
    return LOOK_SECONDS if left is None else min(LOOK_SECONDS, left + 1)


def _of_tenant(change: Change[Tenant]) -> Iterable[str]:
    found = change.after or change.before
    prefix = tenant_name("")
    return [found.metadata.name.removeprefix(prefix)] if found is not None and found.key.startswith(prefix) else ()
