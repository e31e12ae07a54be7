"""Takes and restores the snapshots of VirtualControlPlanes, as spec.snapshots requests. The glue.

spec.snapshots.request: ANYTHING NEW     ─► take ─► status.lastSnapshot, status.snapshots
spec.snapshots.schedule                  ─► take ─► the same
spec.snapshots.restore: NAME[@ANYTHING]  ─► restore ─► status.lastRestore ─► only then, the process starts

A request is done when the status has its value. A restore that is interrupted before is done again:
the process has not run in between, so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, InputError, TenantryError
from tenantry.api.planesnapshots import MOST_LISTED, PlaneOutcome, PlaneSnapshot, PlaneUpgrade
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.plan import Blocked
from tenantry.hosting import snapshots
from tenantry.hosting.placement import Placement
from tenantry.hosting.versions import HostedVersion
from tenantry.world import cron

AT_ONCE = 2
"""How many are taken or restored at once: each reads a whole database, and occupies a worker of the operator."""

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

    def is_restore_due(self, found: VirtualControlPlane) -> bool:
        """Return whether a restore is requested, and not done."""
        asked = found.spec.snapshots.restore
        return asked not in ("", found.status.last_restore.requested)

    async def restore(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        end: Callable[[], Awaitable[None]],
        back: HostedVersion | None = None,
    ) -> None:
        """Replace the objects of a control plane, and record what became of it; its process has to be started then.

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
        message = ""
        try:
            # In a shared etcd, the objects before are deleted after those of the snapshot are written.
            async with self._slots:
                await self._placement.snapshots.restore(uid, name, back.name if back is not None else "")
        except ApiError:
            raise
        except (TenantryError, OSError) as error:
            message = str(error)
        await end()
        outcome = PlaneOutcome(
            requested=asked, time=rfc3339(cluster.clock.now()), snapshot="" if message else name, message=message
        )
        log.info("a restore is done", extra={"key": found.key, "snapshot": name, "error": message})
        # In one write with the outcome: the process of the later version must not start in between.
        version: dict[str, object] = {}
        if back is not None and not message:
            version = {"version": back.kubernetes, "last_upgrade": PlaneUpgrade()}
        elif not message and not found.status.last_upgrade.started:
            # The snapshot of an upgrade that has not begun has other objects than it will find.
            version = {"last_upgrade": PlaneUpgrade()}
        await _write(cluster, found, lambda status: replace(status, last_restore=outcome, **version))
        if snapshots.is_given(name):
            await self._placement.snapshots.discard(uid, name)

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
        outcome = await self._take(found, asked, now)
        listed = await self.listed(found.metadata.uid)
        await _write(cluster, found, lambda status: replace(status, last_snapshot=outcome, snapshots=listed))
        return None if not found.spec.snapshots.schedule else 1.0

    async def before_upgrade(
        self, found: VirtualControlPlane, version: str, stop: Callable[[], Awaitable[None]]
    ) -> str:
        """Take a snapshot of a control plane whose process has ended, and return its name.

        Args:
            found: The control plane.
            version: The patch release of Kubernetes that starts next.
            stop: Ends the process: not before the snapshot has its turn.

        Raises:
            TenantryError: Why there is none.
        """
        uid = found.metadata.uid
        async with self._slots:
            await stop()
            name = (await self._placement.snapshots.take(uid, version)).name
        await self._discard(uid, found.spec.snapshots.keep)
        return name

    async def listed(self, uid: str) -> tuple[PlaneSnapshot, ...]:
        """Return the last snapshots of a control plane, the oldest first, for its status."""
        return tuple(
            PlaneSnapshot(name=each.name, time=rfc3339(each.time), revision=each.revision, size=each.size)
            for each in (await self._placement.snapshots.kept(uid))[-MOST_LISTED:]
        )

    async def _take(self, found: VirtualControlPlane, asked: str, now: dt.datetime) -> PlaneOutcome:
        uid, name, message = found.metadata.uid, "", ""
        try:
            async with self._slots:
                name = (await self._placement.snapshots.take(uid)).name
        except ApiError:
            raise
        except (TenantryError, OSError) as error:
            message = str(error)
        if not message:
            await self._discard(uid, found.spec.snapshots.keep)
        return PlaneOutcome(requested=asked, time=rfc3339(now), snapshot=name, message=message)

    async def _discard(self, uid: str, keep: int) -> None:
        store = self._placement.snapshots
        for name in snapshots.superfluous(await store.kept(uid), keep):
            await store.discard(uid, name)


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
