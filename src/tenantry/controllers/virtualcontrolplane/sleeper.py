"""Brings control planes to sleep and wakes them. The glue.

    awake ─► process reports that no client was active ─► sleep.decide ─► status.phase Asleep
    Asleep ─► process ends ─► pods deleted, if so wished ─► status.charged {} ─► waits
    client, time, pods and nodes on the host, spec, request ─► sleep.wake_reason ─► status.phase Starting ─► as a start

Each step is read from the status, so that an operator goes on where another one has ended.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import (
    PREFIX,
    PlanePhase,
    SleepWorkloads,
    VirtualControlPlane,
    VirtualControlPlaneStatus,
)
from tenantry.controllers import controlplane
from tenantry.controllers.joining import certificates
from tenantry.controllers.lineage import subnamespace_key
from tenantry.controllers.virtualcontrolplane import desired, ownnodes, sleep
from tenantry.controllers.virtualcontrolplane.destinations import BY_OWNER
from tenantry.controllers.virtualcontrolplane.link import Host, Link
from tenantry.controllers.virtualcontrolplane.sleep import LOOK_AGAIN_SECONDS, Sleep, SleepInputs, StayAwake
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting import activity
from tenantry.hosting.reports import Activity
from tenantry.mirror import cachedpods, things, tokens
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.things import COPIED, PODS

FRESH_SECONDS = 5.0
"""How long an answer counts: clients may be active again since."""

SYNC_SECONDS = 1.0
"""When to look again if the pods of the host are not known yet, at the start of the operator."""

FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 30.0
"""When to wait for clients again after an error; twice as long each time in a row."""

log = logging.getLogger(__name__)


class SleepingPodsController:
    """Has control planes that sleep look at their pods on the host when those change; the key is the namespace.

    Args:
        home: It reconciles the VirtualControlPlanes.
    """

    name = "sleeping-pods"
    kind = CachedPod

    def __init__(self, home: Cluster) -> None:
        self._home = home

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=PODS,
                decode=cachedpods.decoder(PREFIX),
                keys=_namespace,
                selectors=things.selector(PREFIX),
            )
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - it reads no cache
        """Wake the keys of a namespace's control planes that sleep."""
        known = self._home.cache_of(VirtualControlPlane.resource)
        for found in known.by_index(BY_NAMESPACE, key) if known is not None else ():
            if found.status.phase is PlanePhase.ASLEEP:
                self._home.wake(VirtualControlPlane, found.key)
        return None


def _namespace(change: Change[CachedPod]) -> Iterable[str]:
    found = change.after or change.before
    return [found.key.partition("/")[0]] if found is not None else ()


def _owner_of(cluster: Cluster, found: VirtualControlPlane) -> Tenant | Subnamespace | None:
    """Return the Tenant or Subnamespace whose owners work with a control plane; None if it is another one there."""
    name, namespace = found.metadata.name, cluster.lookup(Namespace.resource, found.metadata.namespace)
    kind, key = Tenant, name
    if namespace is not None and name != namespace.name:
        kind, key = Subnamespace, subnamespace_key(namespace)
    cache = cluster.cache_of(kind.resource) if key.rpartition("/")[2] == name else None
    return cache.get(key) if cache is not None else None


def _is_converting(cluster: Cluster, found: VirtualControlPlane) -> bool:
    owner = _owner_of(cluster, found)
    return owner is not None and controlplane.is_under_way(owner)


def is_handed_over(cluster: Cluster, found: VirtualControlPlane) -> bool:
    """Return whether the objects of a control plane move to the host now."""
    owner = _owner_of(cluster, found)
    return owner is not None and controlplane.is_handed_over(owner)


def is_entering(cluster: Cluster, found: VirtualControlPlane) -> bool:
    """Return whether objects of the host move into a control plane, or are about to."""
    owner = _owner_of(cluster, found)
    return owner is not None and controlplane.is_entering(owner)


class _Question(msgspec.Struct, frozen=True):
    """What a process is asked; see `activity.ask`."""

    idle_seconds: int | None
    task: asyncio.Task[_Answer]


class _Answer(msgspec.Struct, frozen=True):
    """The answer; no activity if there is none. `at` is the monotonic time."""

    activity: Activity | None
    at: float


class Sleeper:
    """Keeps the sleep of all control planes.

    Args:
        host: What the links of all control planes share.
        group: Runs what waits for clients.
    """

    def __init__(self, host: Host, group: asyncio.TaskGroup) -> None:
        self._host = host
        self._group: asyncio.TaskGroup = group
        # By uid.
        self._questions: dict[str, _Question] = {}
        self._knocks: dict[str, asyncio.Task[None]] = {}
        self._knocked: set[str] = set()
        self._stopped: set[str] = set()
        # Since when control planes that are to sleep wait for certificates, by the monotonic clock.
        self._renewals: dict[str, float] = {}

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane that is deleted."""
        self._end_question(uid)
        self._end_rest(uid)
        self._renewals.pop(uid, None)

    def waits(self, uid: str) -> str:
        """Return why a control plane that is to sleep stays awake, for its users; "" if it does not."""
        return sleep.RENEWAL if uid in self._renewals else ""

    # -- awake ------------------------------------------------------------------------------------

    async def follow(self, cluster: Cluster, found: VirtualControlPlane, link: Link) -> float | None:
        """Have a control plane that is connected sleep if it is time; return in how many seconds to look again.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        uid, asked = found.metadata.uid, sleep.requested(found)
        if asked is PlanePhase.AWAKE:
            await self._write(cluster, found, sleep.handled(found))
            return None
        # One of several processes does not know the clients of the others.
        seconds = found.spec.sleep.after_idle_seconds if found.spec.replicas == 1 else 0
        if asked is None and not seconds:
            self._end_question(uid)
            self._renewals.pop(uid, None)
            return None
        reported = self._answer(cluster, found, None if asked is not None else seconds)
        if reported is None:
            return None
        upper, lower = link.pods()
        now, nodes = cluster.clock.now(), ownnodes.handovers(self._host.home, found)
        soon = now + certificates.MARGIN + dt.timedelta(seconds=sleep.SOON_SECONDS)
        since = self._renewals.get(uid)
        is_kept = found.spec.sleep.workloads is SleepWorkloads.KEEP
        inputs = SleepInputs(
            now=now,
            after_seconds=seconds,
            is_requested=asked is not None,
            activity=reported,
            is_busy=link.is_busy or ownnodes.wait_for(self._host.home, found),
            waiting=sleep.waiting(upper, lower, link.profile),
            renewal=tokens.next_renewal(self._host.lower.cache(COPIED["Secret"]), lower, link.profile)
            if is_kept
            else None,
            certificate=certificates.first_end(nodes, now),
            following=certificates.first_end(nodes, soon),
            waited_seconds=cluster.monotonic() - since if since is not None else 0.0,
            is_converting=_is_converting(cluster, found),
        )
        decided = sleep.decide(inputs)
        if isinstance(decided, Sleep) or not decided.is_renewal:
            self._renewals.pop(uid, None)
        if isinstance(decided, StayAwake):
            if decided.is_renewal and since is None:
                self._renewals[uid] = cluster.monotonic()
                return SYNC_SECONDS  # so that Ready has the reason
            log.debug("a control plane stays awake", extra={"key": found.key, "reason": decided.reason})
            if decided.again_seconds is None:
                self._asked(cluster, found, seconds)
            return decided.again_seconds
        await self._begin(cluster, found, decided, lower)
        return None

    async def give_up(self, cluster: Cluster, found: VirtualControlPlane) -> bool:
        """Let a control plane that waits for room sleep again if a user requests it; return whether it does."""
        if sleep.requested(found) is not PlanePhase.ASLEEP or not found.status.kubeconfig_secret:
            return False
        now = cluster.clock.now()
        # What is due inside is not known: its process does not run.
        message = "it sleeps by request; the quota does not cover it, and the next connection asks for room again"
        ends = certificates.first_end(ownnodes.handovers(self._host.home, found), now)
        due = ends - certificates.MARGIN if ends is not None else now + sleep.MOST_SLEEP
        # One that is due already waits for room with the next client: it would otherwise not come to rest.
        next_wake = min(due, now + sleep.MOST_SLEEP) if due > now else now + sleep.MOST_SLEEP
        decided = Sleep(next_wake=next_wake, message=message)
        await self._begin(cluster, found, decided, self._lower(found))
        return True

    def _answer(self, cluster: Cluster, found: VirtualControlPlane, seconds: int | None) -> Activity | None:
        """Return the answer of the process if there is a fresh one; if not, one comes, and wakes the key."""
        task = self._asked(cluster, found, seconds)
        if not task.done():
            return None
        self._end_question(found.metadata.uid)
        answer = task.result()
        if answer.activity is not None and cluster.monotonic() - answer.at <= FRESH_SECONDS:
            return answer.activity
        self._asked(cluster, found, seconds)
        return None

    def _asked(self, cluster: Cluster, found: VirtualControlPlane, seconds: int | None) -> asyncio.Task[_Answer]:
        """Return the task that asks the process; it wakes the key at its end.

        A reconcile never waits for the process: users inside can make it slow, and workers are few.
        """
        uid = found.metadata.uid
        known = self._questions.get(uid)
        if known is None or known.idle_seconds != seconds:
            self._end_question(uid)
            changed = partial(cluster.wake, VirtualControlPlane, found.key)
            known = _Question(seconds, self._group.create_task(self._ask(uid, seconds, changed)))
            self._questions[uid] = known
        return known.task

    async def _ask(self, uid: str, seconds: int | None, changed: Callable[[], None]) -> _Answer:
        """Return what the process reports; no error leaves this method, because it would end the operator's term."""
        found: Activity | None = None
        try:
            # One of several processes does not know the clients of the others: such a control plane sleeps on request.
            first = self._host.placement.activity(uid)[0]
            found = await activity.ask(first, seconds)
        except (TenantryError, OSError) as error:
            log.warning("a control plane does not report its activity", extra={"uid": uid, "error": str(error)})
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        except Exception:  # a bug that one control plane triggers
            log.exception("a control plane could not be asked for its activity", extra={"uid": uid})
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        # After the end of this task, which the reconcile looks at.
        asyncio.get_running_loop().call_soon(changed)
        return _Answer(found, self._host.home.monotonic())

    async def _begin(
        self, cluster: Cluster, found: VirtualControlPlane, decided: Sleep, lower: Iterable[CachedPod]
    ) -> None:
        written = sleep.asleep(found, decided, sleep.digest(lower), cluster.clock.now())
        log.info("a control plane sleeps", extra={"key": found.key, "next": written.next_wake})
        await self._write(cluster, found, written)

    # -- asleep -----------------------------------------------------------------------------------

    async def rest(self, cluster: Cluster, found: VirtualControlPlane, *, is_open: bool) -> float | None:
        """Keep a control plane asleep, or wake it; return in how many seconds to look again.

        Its link has ended.

        Args:
            cluster: It has the object.
            found: The control plane.
            is_open: Whether users have access: their tenant is not suspended.

        Raises:
            ApiError: The API server failed; the queue tries again.
            TenantryError: Its process cannot be ended.
        """
        uid, now = found.metadata.uid, cluster.clock.now()
        self._end_question(uid)
        if not self._host.lower.is_synced:
            return SYNC_SECONDS
        if not is_open:
            # Without one that waits for them, clients get a 503 at once.
            self._end_knock(uid)
        lower = self._lower(found)
        reason = sleep.wake_reason(
            found,
            now,
            sleep.digest(lower),
            is_knocked=uid in self._knocked,
            is_joined=ownnodes.wait_for(self._host.home, found),
        )
        if reason:
            log.info("a control plane wakes", extra={"key": found.key, "reason": reason})
            self._end_rest(uid)
            woken = sleep.waking(replace(found, status=sleep.handled(found)), reason, now)
            await self._write(cluster, found, woken)
            return None
        if uid not in self._stopped:
            await self._host.placement.stop(uid)
            self._stopped.add(uid)
        if found.spec.sleep.workloads is SleepWorkloads.DELETE:
            for each in lower:
                namespace, _, name = each.key.partition("/")
                await self._host.home.writer.remove(PODS, namespace, name, uid=each.uid)
        if is_open and uid not in self._knocks:
            # Before the write: a client that connects as soon as the status reports the sleep is held, too.
            changed = partial(cluster.wake, VirtualControlPlane, found.key)
            self._knocks[uid] = self._group.create_task(self._wait(uid, changed))
        settled = sleep.resting(found, now)
        if settled != found.status:
            # After the process has ended: others get the share now.
            await self._write(cluster, found, settled)
            return None
        return sleep.seconds_left(found, now)

    def is_at_rest(self, found: VirtualControlPlane) -> bool:
        """Return whether the process has ended, and only what wakes a control plane is waited for."""
        return found.metadata.uid in self._knocks and not found.status.charged

    async def _wait(self, uid: str, changed: Callable[[], None]) -> None:
        """Wait for a client; no error leaves this method, because it would end the operator's term."""
        pause = FIRST_PAUSE_SECONDS
        while not await self._is_knocked(uid):
            # Not all at once: a proxy that restarts is asked for every control plane that sleeps.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        self._knocked.add(uid)
        changed()

    async def _is_knocked(self, uid: str) -> bool:
        """Return True once a client waits; False if the place cannot report that now."""
        try:
            await self._host.placement.knocked(uid)
        except (TenantryError, OSError) as error:
            log.warning("the clients of a control plane cannot be waited for", extra={"uid": uid, "error": str(error)})
        except Exception:  # a bug that one control plane triggers
            log.exception("the clients of a control plane could not be waited for", extra={"uid": uid})
        else:
            return True
        return False

    def _lower(self, found: VirtualControlPlane) -> list[CachedPod]:
        uid = found.metadata.uid
        profile = desired.profile_of(found, "")
        pods: list[CachedPod] = list(self._host.lower.cache(PODS).by_index(BY_OWNER, uid))
        return [each for each in pods if things.is_of(profile, each.key, each.meta.get("labels"))]

    async def _write(self, cluster: Cluster, found: VirtualControlPlane, written: VirtualControlPlaneStatus) -> None:
        # Not quiet: this controller goes on, and the quota controller follows what is charged.
        await cluster.writer.own(request.replace(replace(found, status=written), subresource="status"))

    def _end_question(self, uid: str) -> None:
        known = self._questions.pop(uid, None)
        if known is not None:
            known.task.cancel()

    def _end_rest(self, uid: str) -> None:
        self._stopped.discard(uid)
        self._end_knock(uid)

    def _end_knock(self, uid: str) -> None:
        self._knocked.discard(uid)
        task = self._knocks.pop(uid, None)
        if task is not None:
            task.cancel()
