"""Keeps VirtualControlPlanes: the process, its connection, the kubeconfig, the status. The glue.

VirtualControlPlane ─► share of the quota ─► mirror's identity, Service ─► Placement.start ─► Secret ─► Link ─► Ready
changed on the host, or its API server is away ─► HostObjects, status
deleted ─► Link ends ─► Placement.remove ─► finalizer off ─► Kubernetes deletes mirrored objects
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Conflict, NotFound, TenantryError, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE, TENANT, TENANT_UID
from tenantry.api.model import Json, Resource
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers import runtime, watched
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.virtualcontrolplane import (
    charge,
    datastore,
    decisive,
    desired,
    firststart,
    offers,
    ownnodes,
    rotation,
    rotations,
    sandboxing,
    serveroptions,
    servicenetwork,
    status,
    upgrade,
    wakes,
)
from tenantry.controllers.virtualcontrolplane.authoritycopies import AuthorityCopies
from tenantry.controllers.virtualcontrolplane.clientaccess import ClientAccess
from tenantry.controllers.virtualcontrolplane.encryptionkeys import EncryptionKeys
from tenantry.controllers.virtualcontrolplane.hostednamespaces import HostedNamespaces
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjects
from tenantry.controllers.virtualcontrolplane.kubeconfigs import Kubeconfigs
from tenantry.controllers.virtualcontrolplane.link import Host, Link
from tenantry.controllers.virtualcontrolplane.rotation import RotationStep
from tenantry.controllers.virtualcontrolplane.shards import Shard
from tenantry.controllers.virtualcontrolplane.sleeper import SYNC_SECONDS, Sleeper
from tenantry.controllers.virtualcontrolplane.snapshots import TURN_SECONDS, Snapshots, misplaced, unusable
from tenantry.controllers.virtualcontrolplane.startslots import StartSlots
from tenantry.controllers.virtualcontrolplane.upgrader import Upgrades
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked
from tenantry.hosting.placement import ReachedPlane, RunningPlane
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.hosting.versions import HostedVersion

RETRY_SECONDS = 30.0
"""When to try again what only a person, or the place itself, can mend."""

log = logging.getLogger(__name__)


class _Connected(msgspec.Struct, frozen=True):
    link: Link
    address: str
    running: RunningPlane
    limits: HostedLimits | None
    plane: HostedPlane
    task: asyncio.Task[None]
    version: HostedVersion


class VirtualControlPlaneController:
    """Reconciles VirtualControlPlanes.

    Args:
        host: What the links of all control planes share.
        group: Runs the links.
        verdicts: Of the quota controller.
        shard: The control planes that this replica serves. If others serve some, the leader charges all of them.
    """

    name = "virtualcontrolplane"
    kind = VirtualControlPlane

    def __init__(self, host: Host, group: asyncio.TaskGroup, verdicts: Verdicts, shard: Shard | None = None) -> None:
        self._host = host
        self._shard = shard or Shard()
        self._verdicts = verdicts
        self._slots = StartSlots()
        self._snapshots = Snapshots(host.placement)
        self._group: asyncio.TaskGroup = group
        self._upgrades = Upgrades(host.placement, self._snapshots)
        self._objects = HostObjects(host.kept)
        self._kubeconfigs = Kubeconfigs(host.kept, self._objects)
        self._namespaces = HostedNamespaces(host.kept, self._objects)
        self._authorities = AuthorityCopies(self._objects, self._namespaces, host.placement)
        self._keys = EncryptionKeys(host.kept, self._objects, self._namespaces, host.placement, self._snapshots)
        self._sleeper = Sleeper(host, group)
        self._access = ClientAccess(host.placement)
        self._former = rotations.FormerClients(host.placement, group)
        self._connected: dict[str, _Connected] = {}  # by uid
        # By key: the uid whose link a reconcile without the object has to end.
        self._uids: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        own = watched.control_planes(watched.own_key)
        offered = watched.defaults(self._of_defaults)
        # Also in a replica that does not lead, which has no other watch of them.
        classes = watched.runtime_classes(lambda change: list(self._uids) if runtime.is_news(change) else ())
        namespaces = watched.watch(Namespace.resource, self._of_namespace)
        return [own, namespaces, offered, classes, *self._host.ranges.of_home()]

    def _of_defaults(self, change: Change[TenancyDefaults]) -> Iterable[str]:
        """Return all control planes, if what they follow of TenancyDefaults has changed."""
        return list(self._uids) if offers.has_changed(change) else ()

    def _of_namespace(self, change: Change[Observed]) -> Iterable[str]:
        """Return the control planes of a namespace that was suspended or resumed, or isolated differently."""
        if change.after is None or not decisive.has_changed(change):
            return ()
        return [key for key in self._uids if key.startswith(f"{change.after.name}/")]

    def look_at(self, uid: str) -> None:
        """Queue a control plane by its uid; one that is not served here needs nothing."""
        for key in [key for key, known in self._uids.items() if known == uid]:
            self._host.home.wake(VirtualControlPlane, key)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one control plane a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
        if found is not None and not self._shard.has(found.metadata.uid):
            found = None  # another replica serves it
        uid = self._uids.get(key, "")
        if uid and (found is None or found.metadata.uid != uid):
            await self._forget(key, uid)
            # Nothing charges a process whose finalizer an administrator has removed; `_remove` leaves none to be found.
            await self._host.placement.remove(uid)
            await self._kubeconfigs.remove(key, uid)
            await self._namespaces.remove(uid)
            del self._uids[key]
        if found is None:
            cluster.forget(self.name, key)
            return None
        self._uids[key] = found.metadata.uid
        if found.metadata.deletion_timestamp:
            if not await ownnodes.give_back(cluster, found):
                await self._remove(cluster, found)
            return None
        namespace = cluster.lookup(Namespace.resource, found.metadata.namespace)
        if namespace is None or TENANT_UID not in namespace.labels:
            message = "the namespace belongs to no tenant: create the VirtualControlPlane in a tenant's namespace"
            # One that sleeps was in a tenant's namespace.
            if namespace is not None or found.status.phase is not PlanePhase.ASLEEP:
                await self._report(cluster, found, Blocked(reason=reasons.INVALID_SPEC, message=message))
            # The watch of namespaces may be behind that of control planes, and its changes wake no key.
            return RETRY_SECONDS
        if desired.FINALIZER not in found.metadata.finalizers:
            # Before the process: a VirtualControlPlane that is deleted in between would leave it behind.
            names = (*found.metadata.finalizers, desired.FINALIZER)
            # Not quiet: from now on, the quota controller charges it.
            await cluster.writer.own(request.finalizers(found, names))
            return None
        return await self._admitted(cluster, found, namespace)

    async def _admitted(self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> float | None:
        """Let clients in or shut them out, before anything that other clients can delay."""
        problem, step = await self._access.bring(cluster, found, namespace), RotationStep()
        if not namespace.deleting:
            is_open = self._access.is_open(cluster, found, namespace)
            async with self._reporting(cluster, found, None):
                await self._kubeconfigs.bring(found, namespace, is_open=is_open)
                if await self._authorities.bring(found, namespace):
                    await self._end(found.metadata.uid)
            reported = self._former.has_reported(cluster, found.metadata.uid)
            step = await rotations.begin(cluster, found, namespace, has_reported=reported)
        if step.status is not None:
            return None
        if problem is not None:
            await self._report(cluster, found, problem)
            return RETRY_SECONDS
        is_asleep = found.status.phase is PlanePhase.ASLEEP
        again = await (self._rest if is_asleep else self._keep)(cluster, found, namespace)
        known = self._connected.get(found.metadata.uid)
        renewal = rotations.renewal_in(cluster, known.running) if known is not None else None
        return rotation.sooner(again, step.again_seconds, renewal)

    async def _rest(self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> float | None:
        await self._end(found.metadata.uid)
        if namespace.deleting:
            # Its pods end with the namespace, and it is deleted in a moment: nothing has to run for that.
            return None
        if (todo := await self._upgrades.rest(cluster, found)).is_last:
            return todo.again_seconds
        again = await self._sleeper.rest(cluster, found, is_open=decisive.is_open(namespace))
        if not self._sleeper.is_at_rest(found):
            return again
        # Without the process, from its files: neither a schedule nor the Secret wakes anything.
        if text := await self._host.placement.kubeconfig(found.metadata.uid):
            at = ReachedPlane(from_pods=self._host.placement.endpoint(found.metadata.uid), kubeconfig=text)
            with suppress(TerminalError):  # another client may have a Secret of this name: reported when it wakes
                await self._objects.bring(self._access.reached(cluster, found, namespace, at), found.metadata.uid)
        return await self._snap(cluster, found, again)

    async def _keep(self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> float | None:
        share = charge.find(found, self._verdicts.get(found.metadata.uid))
        if share.write is not None:
            # Not quiet: the quota controller follows what is charged. The write wakes this controller, too.
            await cluster.writer.own(share.write)
            return None
        if not share.may_run:
            if await self._sleeper.give_up(cluster, found):
                return None
            if self._shard.count == 1:
                await self._report(cluster, found, share.waits)
            return None
        if not self._host.lower.is_synced:  # without the ranges of the host's Services, a process would start anew
            return SYNC_SECONDS
        if self._snapshots.is_restore_due(found):
            if self._snapshots.is_busy(found):
                return TURN_SECONDS
            back = self._upgrades.older(found)
            await self._snapshots.restore(cluster, found, lambda: self._end(found.metadata.uid), back)
            found = cluster.cache(VirtualControlPlane.resource).get(found.key) or found
        return await self._run(cluster, found, namespace, share.waits)

    async def _run(
        self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed, short: Blocked | None
    ) -> float | None:
        known = self._connected.get(found.metadata.uid)
        running = known.running if known is not None and not known.task.done() else None
        again: float | None = None
        try:
            found = await self._keys.bring(
                cluster, found, namespace, known.plane.encryption if known and running else None
            )
            todo = await self._upgrades.bring(cluster, found, lambda: self._end(found.metadata.uid), running)
            if todo.is_last:
                return todo.again_seconds
            if known is not None and todo.version not in (None, known.version):
                await self._end(found.metadata.uid)
                known = running = None
            if known is not None and running is not None:
                problem = short or self._trouble(cluster, found) or todo.problem
                again = await self._follow(cluster, found, namespace, known, problem)
            elif todo.version is None:
                await self._close(found)
                await self._report(cluster, found, todo.problem)
            elif not namespace.deleting:
                await self._start_in_turn(cluster, found, namespace, todo.version)
        except ApiError:
            raise
        except TenantryError as error:
            reason = error.reason if isinstance(error, TerminalError) else reasons.NOT_PLACED
            problem = upgrade.unready(found, str(error)) or Blocked(reason=reason, message=str(error))
            await self._report(cluster, found, problem, None if await self._close(found) else running)
            return RETRY_SECONDS
        again = rotation.sooner(again, RETRY_SECONDS if todo.problem is not None else None, todo.again_seconds)
        return await self._snap(cluster, found, again) if running is not None else again

    async def _close(self, found: VirtualControlPlane) -> bool:
        """End a process that cannot start with new credentials, or owners keep the former; return whether it had to."""
        if not rotation.is_pending(found):
            return False
        await self._end(found.metadata.uid)
        await self._host.placement.stop(found.metadata.uid)
        return True

    def _network(self, found: VirtualControlPlane) -> servicenetwork.ServiceNetwork:
        return self._host.ranges.services(self._host.home, self._host.lower, found.spec.network)

    def _trouble(self, cluster: Cluster, found: VirtualControlPlane) -> Blocked | None:
        """Return what of a control plane that runs does not work."""
        wrong = self._keys.problem(found.metadata.uid) or unusable(found)
        wrong = wrong or misplaced(cluster, found, self._host.placement)
        return wrong or serveroptions.unreachable(found) or servicenetwork.missing(self._network(found))

    async def _snap(self, cluster: Cluster, found: VirtualControlPlane, again: float | None) -> float | None:
        return rotation.sooner(await self._snapshots.take(cluster, found), again)

    async def _follow(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        namespace: Observed,
        known: _Connected,
        short: Blocked | None,
    ) -> float | None:
        """Bring back what has changed on the host, report how the connection is, and let it sleep if it is idle."""
        is_open, is_mirrored = decisive.is_open(namespace), self._access.is_mirrored(cluster, found)
        known.link.open(is_open=is_open and is_mirrored)
        known.link.allow(found.spec.egress)
        wished, wrong = self._wished(found, known)
        is_due = rotations.is_renewed(cluster, known.running) or known.plane != wished
        is_shown = known.link.shows(offers.of(cluster), found.spec.nodes, is_mirrored=is_mirrored)
        is_changed = wrong is None and (is_due or not is_shown or known.limits != desired.limits_of(found))
        # Its watches are those of its kinds; with other limits or authorities, its process starts again.
        if is_changed or await self._host.placement.has_moved(found.metadata.uid):
            await self._end(found.metadata.uid)
            await self._start_in_turn(cluster, found, namespace, known.version)
            return None
        # Kubernetes deletes them first, and the VirtualControlPlane a moment later.
        if not namespace.deleting:
            identity = desired.mirror_objects(found, namespace, is_open=is_open)
            from_pods = self._host.placement.endpoint(found.metadata.uid) or known.running.from_pods
            at = replace(known.running, from_pods=from_pods)
            wanted = (*identity, *self._access.reached(cluster, found, namespace, at))
            await self._bring(cluster, found, wanted, known.running)
            if await self._address(cluster, found, known.address, known.running) != known.address:
                # Its certificate and its pods need the new one.
                await self._end(found.metadata.uid)
                await self._start_in_turn(cluster, found, namespace, known.version)
                return None
        link = known.link
        refusal = "" if is_open else link.refusal
        problem = status.disconnected(link.failure, refusal, has_arrived=link.has_arrived, answers=link.answers)
        short = short or wrong or status.unbound(known.link.refusal)
        overdue = upgrade.overdue_seconds(found, cluster.clock.now()) if problem is not None else None
        if problem is not None and overdue is not None and overdue <= 0:
            problem = upgrade.unready(found, problem.message) or problem
        problem = problem or status.unreachable(self._host.placement.unreachable(found.metadata.uid))
        await self._report(cluster, found, problem, known.running, short)
        current: VirtualControlPlane = cluster.cache(VirtualControlPlane.resource).get(found.key) or found
        if problem is not None:  # it may start elsewhere, which no event reports
            return overdue or (RETRY_SECONDS if problem is status.AWAY else None)
        if await self._former.follow(cluster, current):
            return None
        return await self._sleeper.follow(cluster, current, known.link)

    def _wished(self, found: VirtualControlPlane, known: _Connected) -> tuple[HostedPlane, Blocked | None]:
        """Return the process of the spec; with a spec that makes none, that which runs, and what is wrong."""
        try:
            plane = desired.plane_of(found, known.address, known.plane.store, self._network(found).ranges)
        except TerminalError as error:
            if rotation.is_pending(found):
                raise  # the former credentials must not stay in force
            return known.plane, Blocked(reason=error.reason, message=str(error))
        plane = replace(upgrade.of_version(plane, known.version), encryption=self._keys.of(found.metadata.uid))
        return sandboxing.placed(self._host.home, found, plane, known.plane.runtime_class), None

    async def _start_in_turn(
        self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed, version: HostedVersion
    ) -> None:
        """Start the process, unless too many start: the end of one of those wakes this key."""
        await self._report(cluster, found, status.STARTING, version=version.kubernetes)
        tenant = namespace.labels.get(TENANT, "")
        if not self._slots.take(tenant, found.key):
            return
        try:
            await self._start(cluster, found, namespace, version)
        finally:
            for key in self._slots.give_back(tenant):
                cluster.wake(VirtualControlPlane, key)

    async def _start(
        self, cluster: Cluster, found: VirtualControlPlane, namespace: Observed, version: HostedVersion
    ) -> None:
        is_open = decisive.is_open(namespace)
        await self._bring(cluster, found, desired.mirror_objects(found, namespace, is_open=is_open))
        await self._objects.retire(namespace.name)
        address = await self._address(cluster, found)
        secret = await self._objects.find(desired.SECRETS, SYSTEM_NAMESPACE, datastore.secret_of(found))
        firststart.check(found, network := self._network(found), cluster.cache(VirtualControlPlane.resource))
        wished = desired.plane_of(found, address, datastore.store_of(found, secret), network.ranges)
        wished = replace(wished, encryption=self._keys.of(found.metadata.uid))
        plane = sandboxing.placed(self._host.home, found, upgrade.of_version(wished, version))
        running = await self._host.placement.start(plane)
        self._upgrades.check(version, running)
        # Before anything can fail: other operators name it when they report that they cannot end the process.
        await self._report(cluster, found, status.STARTING, running)
        await self._bring(cluster, found, self._access.reached(cluster, found, namespace, running), running)
        changed = partial(cluster.wake, VirtualControlPlane, found.key)
        is_mirrored, offered = self._access.is_mirrored(cluster, found), offers.of(cluster)
        is_open = is_open and is_mirrored
        link = Link(self._host, found, changed, address, is_open=is_open, offered=offered, is_mirrored=is_mirrored)
        task = self._group.create_task(self._serve(found.key, link, running, changed))
        connected = _Connected(link, address, running, plane.limits, plane, task, version)
        self._connected[found.metadata.uid] = connected
        task.add_done_callback(partial(self._ended, changed))

    async def _bring(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        wanted: Sequence[tuple[Resource, Json]],
        running: RunningPlane | None = None,
    ) -> None:
        """Bring objects on the host to what they should be; a refusal is reported, because the mirror needs them.

        Raises:
            ApiError: The API server refuses, or does not answer.
            TerminalError: Another client has an object of this name.
        """
        async with self._reporting(cluster, found, running):
            await self._objects.bring(wanted, found.metadata.uid)

    async def _address(
        self, cluster: Cluster, found: VirtualControlPlane, before: str = "", running: RunningPlane | None = None
    ) -> str:
        """Return the clusterIP by which pods reach the API server; see `_bring`."""
        async with self._reporting(cluster, found, running):
            return await self._objects.bring_service(found, before)

    @asynccontextmanager
    async def _reporting(
        self, cluster: Cluster, found: VirtualControlPlane, running: RunningPlane | None
    ) -> AsyncGenerator[None]:
        try:
            yield
        except Conflict:
            raise  # the next try succeeds
        except ApiError as error:
            await self._report(cluster, found, status.unkept(error), running)
            raise

    async def _serve(self, key: str, link: Link, running: RunningPlane, changed: Callable[[], None]) -> None:
        """Run a link to its end; no error leaves this method, because it would end all links."""
        try:
            await link.run(running)
        except (TenantryError, OSError) as error:
            log.warning("a control plane is not connected", extra={"key": key, "error": str(error)})
            link.failure = str(error)
        except Exception:  # a bug that one control plane triggers must not end the operator's term
            log.exception("the link of a control plane failed", extra={"key": key})
            link.failure = "an error of the operator, which its log has"
        changed()
        await asyncio.sleep(RETRY_SECONDS)

    def _ended(self, changed: Callable[[], None], task: asyncio.Task[None]) -> None:
        """Connect again, unless the link was ended."""
        if not task.cancelled():
            changed()

    async def _remove(self, cluster: Cluster, found: VirtualControlPlane) -> None:
        if desired.FINALIZER not in found.metadata.finalizers:
            return
        uid = found.metadata.uid
        await self._forget(found.key, uid)
        try:
            await self._host.placement.remove(uid)
            await self._kubeconfigs.remove(found.key, uid)
            await self._namespaces.remove(uid)
            await self._snapshots.remove(cluster, found)
        except TenantryError as error:
            await self._report(cluster, found, Blocked(reason=reasons.NOT_PLACED, message=str(error)))
            raise
        rest = tuple(name for name in found.metadata.finalizers if name != desired.FINALIZER)
        with suppress(NotFound):  # deleted before its finalizer was removed
            await cluster.writer.own(request.finalizers(found, rest), quiet=True)

    async def _forget(self, key: str, uid: str) -> None:
        """End the connection of a control plane that is deleted."""
        await self._end(uid)
        for each in (self._sleeper, self._access, self._former, self._keys):
            each.forget(uid)
        self._objects.forget(key.partition("/")[0])

    async def _end(self, uid: str) -> None:
        known = self._connected.pop(uid, None)
        if known is not None:
            known.task.cancel()
            await asyncio.wait([known.task])

    async def _report(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        problem: Blocked | None,
        running: RunningPlane | None = None,
        short: Blocked | None = None,
        *,
        version: str = "",
    ) -> None:
        # An earlier write of this reconcile has changed its resourceVersion.
        current: VirtualControlPlane = cluster.cache(VirtualControlPlane.resource).get(found.key) or found
        before = current.status  # a process runs before its Secret is written
        known = self._connected.get(current.metadata.uid) if running is not None else None
        reported = self._access.reported(cluster, current, is_connected=known is not None)
        if known is not None and problem is None:
            # Before the conditions, of which one is about an upgrade that goes on.
            reported = replace(reported, status=upgrade.completed(reported.status, cluster.clock.now()))
        written = status.compute(
            reported,
            problem,
            short=short,
            unlimited=running.unlimited if running is not None else "",
            endpoint=running.server if running is not None else before.endpoint,
            now=rfc3339(cluster.clock.now()),
            is_suspended=decisive.is_suspended(cluster.lookup(Namespace.resource, current.metadata.namespace)),
            guards=known.plane.guards if known is not None else None,
            waits=self._sleeper.waits(current.metadata.uid),
        )
        if known is not None and problem is None:
            last = rotation.outcome(current, known.plane.credentials, cluster.clock.now())
            written = replace(written, phase=PlanePhase.AWAKE, last_rotation=last)
        if version and not before.version:  # before its process writes anything
            written = replace(written, version=version)
        if before.phase is PlanePhase.ASLEEP:
            # A spec that has changed during the sleep still has to wake it.
            written = replace(written, observed_generation=before.observed_generation)
        if written != before:
            await cluster.writer.status(replace(current, status=written))
            wakes.wake_owner(cluster, current)
