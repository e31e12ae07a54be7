"""Takes and restores the snapshots of VirtualControlPlanes, as spec.snapshots requests. The glue.

spec.snapshots.request: ANYTHING NEW     ─► take ─► status.lastSnapshot, status.snapshots
spec.snapshots.schedule                  ─► take ─► the same
spec.snapshots.restore: NAME[@ANYTHING]  ─► restore ─► status.lastRestore ─► only then, the process starts

They are kept in a folder of the operator, or at the destination of TenancyDefaults that spec.snapshots.destination
names. The status names each destination before its first snapshot, so that the snapshots there are deleted with the
control plane.

A request is done when the status has its value. A restore that is interrupted before is done again:
the process has not run in between, so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, InputError, RetryableError, StoreError, TenantryError, TerminalError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.planesnapshots import MOST_LISTED, PlaneOutcome, PlaneSnapshot, PlaneUpgrade
from tenantry.api.tenancydefaults import NAME, TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import snapshotdestinations as destinations
from tenantry.controllers.virtualcontrolplane.desired import SECRETS
from tenantry.controllers.virtualcontrolplane.status import failing_snapshots
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.conditions import replaced
from tenantry.engine.plan import Blocked
from tenantry.hosting import snapshots
from tenantry.hosting.placement import Placement
from tenantry.hosting.snapshotplaces import SnapshotPlaceKind
from tenantry.hosting.snapshots import SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.world import cron

AT_ONCE = 2
"""How many are taken or restored at once: each reads a whole database, and occupies a worker of the operator."""

TURN_SECONDS = 5.0
"""When to look again whether a snapshot or a restore has its turn."""

REMOVAL_SECONDS = 60.0
"""When to try again to delete the snapshots at a destination."""

_LOOK_SECONDS = 3600.0

log = logging.getLogger(__name__)


class Snapshots:
    """The snapshots of all control planes.

    Args:
        placement: Where they run.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Of their own: a store that answers slowly delays no snapshot of the operator's folder.
        self._destination_slots = asyncio.Semaphore(AT_ONCE)

    def is_restore_due(self, found: VirtualControlPlane) -> bool:
        """Return whether a restore is requested, and not done."""
        asked = found.spec.snapshots.restore
        return asked not in ("", found.status.last_restore.requested)

    def is_busy(self, found: VirtualControlPlane) -> bool:
        """Return whether a snapshot or a restore of a control plane has to wait for those of others.

        It looks again after `TURN_SECONDS`: one that waits here occupies a worker, which all other kinds need.
        """
        return self._turn(found).locked()

    async def restore(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        end: Callable[[], Awaitable[None]],
        back: HostedVersion | None = None,
    ) -> None:
        """Replace the objects of a control plane, and record what became of it; its process has to be started then.

        A snapshot that cannot be used changes nothing: the process runs on, and the link stays.

        Args:
            cluster: The host.
            found: The control plane.
            end: Ends the link: its caches are of the objects before.
            back: The earlier version that it has afterwards; None if it keeps the one that it has.

        Raises:
            ApiError: The outcome cannot be recorded.
        """
        asked = found.spec.snapshots.restore
        name, uid = asked.partition("@")[0], found.metadata.uid
        message, is_refused = "", False
        try:
            snapshots.check_name(name)
            store = await self._source(cluster, found, name)
        except ApiError:
            raise
        except (TenantryError, OSError) as error:
            message, is_refused = str(error), True
        else:
            message, is_refused = await self._restore(found, store, name, back)
        if not is_refused:
            await end()
        outcome = PlaneOutcome(
            requested=asked, time=rfc3339(cluster.clock.now()), snapshot="" if message else name, message=message
        )
        told = "is refused" if is_refused else "has failed" if message else "is done"
        log.info("a restore %s", told, extra={"key": found.key, "snapshot": name, "error": message})
        # In one write with the outcome: the process of the later version must not start in between.
        version: dict[str, object] = {}
        if back is not None and not message:
            version = {"version": back.kubernetes, "last_upgrade": PlaneUpgrade()}
        elif not message and not found.status.last_upgrade.started:
            # The snapshot of an upgrade that has not begun has other objects than it will find.
            version = {"last_upgrade": PlaneUpgrade()}
        await _write(cluster, found, lambda status: replace(status, last_restore=outcome, **version))
        if self._is_in_folder(name):
            await self._placement.snapshots.discard(uid, name)

    async def _restore(
        self, found: VirtualControlPlane, store: SnapshotStore, name: str, back: HostedVersion | None
    ) -> tuple[str, bool]:
        """Restore a snapshot; return why it failed, and whether the process runs on for that."""
        try:
            # In a shared etcd, the objects before are deleted after those of the snapshot are written.
            async with self._turn(found):
                await store.restore(found.metadata.uid, name, back.name if back is not None else "")
        except ApiError:
            raise
        except snapshots.UnusableSnapshot as error:
            return str(error), True
        except (TenantryError, OSError) as error:
            return str(error), False
        return "", False

    async def take(self, cluster: Cluster, found: VirtualControlPlane) -> float | None:
        """Take the snapshot that is due, and return in how many seconds to look again; also while it sleeps.

        Raises:
            ApiError: The outcome cannot be recorded.
        """
        asked = found.spec.snapshots.request
        now = cluster.clock.now()
        if asked in ("", found.status.last_snapshot.requested):
            seconds = _until_due(found, now)
            if seconds is None or seconds > 0:
                return None if seconds is None else min(seconds, _LOOK_SECONDS)
            # The request stays answered.
            asked = found.status.last_snapshot.requested
        if self.is_busy(found):
            return TURN_SECONDS
        await self.record(cluster, found)
        outcome = await self._take(cluster, found, asked, now)
        listed = await self.listed(cluster, found)
        generation = found.metadata.generation

        def changed(before: VirtualControlPlaneStatus) -> VirtualControlPlaneStatus:
            # Here, because one that sleeps has no other writer of its conditions.
            wanted = [failing_snapshots(outcome.message)]
            told = replaced(before.conditions, wanted, generation=generation, now=rfc3339(now))
            return replace(before, last_snapshot=outcome, snapshots=listed, conditions=told)

        await _write(cluster, found, changed)
        return None if not found.spec.snapshots.schedule else 1.0

    async def before_upgrade(
        self, cluster: Cluster, found: VirtualControlPlane, version: str, stop: Callable[[], Awaitable[None]]
    ) -> str:
        """Take a snapshot of a control plane whose process has ended for that, and return its name.

        Args:
            cluster: The host.
            found: The control plane.
            version: The patch release of Kubernetes that starts next.
            stop: Ends the process: not before the snapshot has its turn.

        Raises:
            NoSnapshotPlace: It has no place for one, and its process runs on.
            TenantryError: Why there is none.
        """
        uid = found.metadata.uid
        store = await self._store(cluster, found)
        async with self._turn(found):
            # Without a place for the snapshot, the process runs on.
            await store.check(uid)
            await stop()
            name = (await store.take(uid, version)).name
        try:
            await _discard(store, uid, found.spec.snapshots.keep)
        except (StoreError, OSError) as error:
            # The upgrade needs only the new one.
            log.warning("older snapshots are not deleted", extra={"key": found.key, "error": str(error)})
        return name

    async def listed(self, cluster: Cluster, found: VirtualControlPlane) -> tuple[PlaneSnapshot, ...]:
        """Return the last snapshots of a control plane, the oldest first, for its status.

        Those of before, if their destination does not answer.
        """
        try:
            kept = await (await self._store(cluster, found)).kept(found.metadata.uid)
        except (StoreError, TerminalError, InputError, OSError):
            return found.status.snapshots
        return tuple(
            PlaneSnapshot(name=each.name, time=rfc3339(each.time), revision=each.revision, size=each.size)
            for each in kept[-MOST_LISTED:]
        )

    async def times(self, cluster: Cluster, found: VirtualControlPlane) -> tuple[dt.datetime, ...] | None:
        """Return when all snapshots of a control plane were taken, wherever they are; None if that is not known now."""
        uid, moments = found.metadata.uid, list[dt.datetime]()
        # What administrators have removed is out of reach.
        names = [each for each in found.status.snapshot_destinations if self._is_usable(cluster, each)]
        try:
            for name in ("", *names):
                store = await self._store_of(cluster, name) if name else self._placement.snapshots
                with suppress(snapshots.NoSnapshotPlace):
                    moments += [each.time for each in await store.kept(uid)]
        except (TenantryError, OSError) as error:
            log.warning("snapshots cannot be listed", extra={"key": found.key, "error": str(error)})
            return None
        return tuple(moments)

    async def record(self, cluster: Cluster, found: VirtualControlPlane) -> bool:
        """Bring the destination of a control plane into its status, before its first snapshot there.

        Args:
            cluster: The host.
            found: The control plane.

        Returns:
            Whether the status was written.

        Raises:
            ApiError: It cannot be written.
        """
        wanted = found.spec.snapshots.destination
        before = found.status.snapshot_destinations
        if wanted in ("", *before):
            return False
        if not self._is_usable(cluster, wanted):
            return False
        # What administrators have removed is out of reach.
        names = (*(each for each in before if self._is_usable(cluster, each)), wanted)
        await _write(cluster, found, lambda status: replace(status, snapshot_destinations=names))
        return True

    async def remove(self, cluster: Cluster, found: VirtualControlPlane) -> None:
        """Delete all snapshots of a control plane at destinations; its folder of the operator is the placement's.

        Raises:
            RetryableError: A destination refuses, or does not answer.
        """
        uid = found.metadata.uid
        for name in found.status.snapshot_destinations:
            if not self._is_usable(cluster, name):
                continue
            try:
                store = await self._store_of(cluster, name)
                for each in await store.kept(uid):
                    await store.discard(uid, each.name)
            except (StoreError, TerminalError, OSError) as error:
                raise RetryableError(
                    f"its snapshots have all Secrets and are deleted first, but {error}; or an administrator removes"
                    f' "{name}" from TenancyDefaults, and deletes them there',
                    REMOVAL_SECONDS,
                ) from error

    def _is_usable(self, cluster: Cluster, name: str) -> bool:
        return destinations.problem(_defaults(cluster), name, self._placement.snapshot_kinds) is None

    def _turn(self, found: VirtualControlPlane) -> asyncio.Semaphore:
        return self._destination_slots if found.spec.snapshots.destination else self._slots

    def _is_in_folder(self, name: str) -> bool:
        """Return whether an administrator has put a snapshot into the folder of the operator.

        Where control planes have volumes, it is in the claim of a destination, and stays there.
        """
        return snapshots.is_given(name) and SnapshotPlaceKind.CLAIM not in self._placement.snapshot_kinds

    async def _source(self, cluster: Cluster, found: VirtualControlPlane, name: str) -> SnapshotStore:
        return self._placement.snapshots if self._is_in_folder(name) else await self._store(cluster, found)

    async def _store(self, cluster: Cluster, found: VirtualControlPlane) -> SnapshotStore:
        name = found.spec.snapshots.destination
        return await self._store_of(cluster, name) if name else self._placement.snapshots

    async def _store_of(self, cluster: Cluster, name: str) -> SnapshotStore:
        """Return what keeps snapshots at a destination.

        Raises:
            TerminalError: There is none of this name, or its Secret has not what it needs.
            InputError: The control planes here cannot have it.
        """
        destination = destinations.find(_defaults(cluster), name)
        secret = destinations.secret_of(destination)
        # Read for each use: keys are replaced.
        data = await cluster.live.find(SECRETS, SYSTEM_NAMESPACE, secret) if secret else None
        place = destinations.place_of(destination, msgspec.json.decode(data) if data is not None else None)
        return self._placement.snapshots_at(place)

    async def _take(self, cluster: Cluster, found: VirtualControlPlane, asked: str, now: dt.datetime) -> PlaneOutcome:
        uid, name, message = found.metadata.uid, "", ""
        try:
            store = await self._store(cluster, found)
            async with self._turn(found):
                name = (await store.take(uid)).name
        except ApiError:
            raise
        except (TenantryError, OSError) as error:
            message = str(error)
        else:
            try:
                await _discard(store, uid, found.spec.snapshots.keep)
            except (StoreError, OSError) as error:
                message = f"the snapshot {name} is kept, but older ones cannot be deleted: {error}"
        return PlaneOutcome(requested=asked, time=rfc3339(now), snapshot=name, message=message)


async def _discard(store: SnapshotStore, uid: str, keep: int) -> None:
    for name in snapshots.superfluous(await store.kept(uid), keep):
        await store.discard(uid, name)


def _defaults(cluster: Cluster) -> TenancyDefaults | None:
    return cluster.cache(TenancyDefaults.resource).get(NAME)


def misplaced(cluster: Cluster, found: VirtualControlPlane, placement: Placement) -> Blocked | None:
    """Return why the destination of a control plane cannot be used, None if it can.

    Args:
        cluster: The host.
        found: The control plane.
        placement: Where it runs.
    """
    name = found.spec.snapshots.destination
    return destinations.problem(_defaults(cluster), name, placement.snapshot_kinds) if name else None


def unusable(found: VirtualControlPlane) -> Blocked | None:
    """Return what is wrong with the schedule of a control plane, None if nothing is."""
    schedule = found.spec.snapshots.schedule
    try:
        if schedule:
            cron.parse(schedule)
    except InputError as error:
        return Blocked(
            reason=reasons.INVALID_SPEC, message=f"spec.snapshots.schedule: {error}; no snapshot is taken by it"
        )
    return None


def _until_due(found: VirtualControlPlane, now: dt.datetime) -> float | None:
    """Return in how many seconds the schedule has its next time, None for never."""
    schedule = found.spec.snapshots.schedule
    if not schedule or unusable(found) is not None:
        return None
    times = cron.parse(schedule)
    status = found.status
    known = [found.metadata.creation_timestamp or "", status.last_snapshot.time, *(s.time for s in status.snapshots)]
    # RFC 3339 in whole seconds and UTC sorts as text.
    last = max(known)
    upcoming = times.after(dt.datetime.fromisoformat(last) if last else now)
    return None if upcoming is None else (upcoming - now).total_seconds()


async def _write(
    cluster: Cluster,
    found: VirtualControlPlane,
    change: Callable[[VirtualControlPlaneStatus], VirtualControlPlaneStatus],
) -> None:
    # An earlier write of this reconcile has changed its resourceVersion.
    current: VirtualControlPlane = cluster.cache(VirtualControlPlane.resource).get(found.key) or found
    await cluster.writer.status(replace(current, status=change(current.status)))
