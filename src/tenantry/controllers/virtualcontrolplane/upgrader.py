"""Brings control planes to the version of their spec. The glue of `upgrade`.

PREPARE ─► Placement.provide ─► link and process end ─► snapshot ─► status.lastUpgrade, status.version
START   ─► the controller starts the process, and reports Ready when it answers with its version
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, TenantryError, TerminalError
from tenantry.api.planesnapshots import PlaneUpgrade
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import desired, upgrade
from tenantry.controllers.virtualcontrolplane.snapshots import TURN_SECONDS, Snapshots
from tenantry.controllers.virtualcontrolplane.upgrade import UpgradeDecision, UpgradeStep
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.plan import Blocked
from tenantry.hosting import obstacles, upgradefacts
from tenantry.hosting.placement import Placement, RunningPlane
from tenantry.hosting.snapshots import NoSnapshotPlace
from tenantry.hosting.versions import HostedVersion

log = logging.getLogger(__name__)


class VersionToRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a control plane runs now.

    Args:
        version: The version; None if none may be started.
        problem: Why that is not the version of its spec; None if it is.
        is_last: A later reconcile goes on: the status was written, or a snapshot has to wait for its turn.
        again_seconds: When that reconcile is, if no write wakes it.
    """

    version: HostedVersion | None = None
    problem: Blocked | None = None
    is_last: bool = False
    again_seconds: float | None = None


class Upgrades:
    """The upgrades of all control planes.

    Args:
        placement: Where they run.
        snapshots: Takes their snapshots.
    """

    def __init__(self, placement: Placement, snapshots: Snapshots) -> None:
        self._placement = placement
        self._snapshots = snapshots

    async def bring(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        end: Callable[[], Awaitable[None]],
        running: RunningPlane | None,
    ) -> VersionToRun:
        """Bring a control plane that is awake a step further.

        Args:
            cluster: The host.
            found: The control plane.
            end: Ends the link.
            running: Its process; None if it is not connected.

        Raises:
            ApiError: The step cannot be recorded.
        """
        decided = upgrade.decide(found, self._placement.versions(), cluster.clock.now())
        last = found.status.last_upgrade
        if decided.step is UpgradeStep.START or decided.version is None:
            return await self._kept_on(cluster, found, decided)
        if decided.step is UpgradeStep.PREPARE:
            held = await self._held_back(found, decided.version, running)
            if held is not None:
                return held
            missing = await self._missing(decided.version)
            if missing is not None:
                return VersionToRun(version=upgrade.kept(found, self._placement.versions()), problem=missing)
            if (first := await self._before(cluster, found)) is not None:
                return first
            last = await self._prepare(cluster, found, decided.version, end)
        now = cluster.clock.now()
        written = replace(found.status, version=last.before, last_upgrade=last)
        if not last.message:
            written = upgrade.begun(replace(found, status=written), last, now)
            log.info("a control plane is upgraded", extra={"key": found.key, "version": last.after})
        await self._write(cluster, found, written)
        return VersionToRun(is_last=True)

    async def _kept_on(self, cluster: Cluster, found: VirtualControlPlane, decided: UpgradeDecision) -> VersionToRun:
        """Return the version to run, once the status has no upgrade that is not carried out."""
        last = found.status.last_upgrade
        if last.snapshot and not last.started:
            # The process of before writes: a later upgrade needs another snapshot.
            await self._write(cluster, found, replace(found.status, last_upgrade=PlaneUpgrade()))
            return VersionToRun(is_last=True)
        if upgrade.is_aborted(found, decided.version):
            log.info("an upgrade is aborted", extra={"key": found.key, "version": last.before})
            await self._write(cluster, found, upgrade.aborted(found))
            return VersionToRun(is_last=True)
        again = decided.again_seconds
        return VersionToRun(version=decided.version, problem=decided.problem, again_seconds=again)

    async def _held_back(
        self, found: VirtualControlPlane, wanted: HostedVersion, running: RunningPlane | None
    ) -> VersionToRun | None:
        """Return what a control plane with nodes runs while something stands in the way; None for nothing."""
        stays = upgrade.kept(found, self._placement.versions())
        if stays is None or not desired.has_own_nodes(found):
            return None
        if running is None:
            # It answers no question yet; one that has not been usable has to go on.
            return VersionToRun(version=stays) if found.status.phase is PlanePhase.AWAKE else None
        try:
            facts = await upgradefacts.read(running.connection)
        except TenantryError as error:
            problem = Blocked(reason=reasons.UPGRADE_BLOCKED, message=f"the upgrade waits: {error}")
            return VersionToRun(version=stays, problem=problem)
        known = obstacles.find(facts, wanted.kubernetes, found.spec.upgrade.ignore)
        return VersionToRun(version=stays, problem=upgrade.blocked(found, wanted, known)) if known else None

    async def rest(self, cluster: Cluster, found: VirtualControlPlane) -> VersionToRun:
        """Prepare a control plane that sleeps.

        Raises:
            ApiError: The step cannot be recorded.
        """
        decided = upgrade.decide(found, self._placement.versions(), cluster.clock.now())
        if self._snapshots.is_restore_due(found) or decided.step is not UpgradeStep.PREPARE or decided.version is None:
            return VersionToRun()
        if await self._missing(decided.version) is not None:
            # It wakes, as by each change of its spec, and reports this.
            return VersionToRun()
        if (first := await self._before(cluster, found)) is not None:
            return first
        last = await self._prepare(cluster, found, decided.version, None)
        if not last.snapshot and not last.message:
            return VersionToRun()  # it needs no snapshot, and has the new version when it wakes
        await self._write(cluster, found, upgrade.rests(found, last, cluster.clock.now()))
        return VersionToRun(is_last=True)

    def older(self, found: VirtualControlPlane) -> HostedVersion | None:
        """Return the version that a restore brings a control plane back to; None if it keeps the one that it has."""
        return upgrade.older(found, self._placement.versions())

    def check(self, version: HostedVersion, running: RunningPlane) -> None:
        """Check that the process that answers is of the version that was started.

        Raises:
            TerminalError: It is not.
        """
        if running.version != version.kubernetes:
            raise TerminalError(
                reasons.NOT_PLACED,
                f"its API server answers as Kubernetes {running.version}, not {version.kubernetes}: build the program"
                " again (`tenantry local build --again`)",
            )

    async def _before(self, cluster: Cluster, found: VirtualControlPlane) -> VersionToRun | None:
        """Return what comes before a snapshot: its turn, and the record of its destination; None for nothing."""
        if self._snapshots.is_busy(found):
            return VersionToRun(is_last=True, again_seconds=TURN_SECONDS)
        return VersionToRun(is_last=True) if await self._snapshots.record(cluster, found) else None

    async def _missing(self, version: HostedVersion) -> Blocked | None:
        try:
            await self._placement.provide(version.name)
        except TenantryError as error:
            return Blocked(reason=reasons.NOT_PLACED, message=str(error))
        return None

    async def _prepare(
        self,
        cluster: Cluster,
        found: VirtualControlPlane,
        version: HostedVersion,
        end: Callable[[], Awaitable[None]] | None,
    ) -> PlaneUpgrade:
        async def stop() -> None:
            if end is not None:
                await end()
            await self._placement.stop(found.metadata.uid)

        before = upgrade.running(found, self._placement.versions())
        try:
            snapshot = await self._snapshots.before_upgrade(cluster, found, version.kubernetes, stop)
        except ApiError:
            raise
        except NoSnapshotPlace as error:
            if not upgrade.is_patch(before, version):
                return upgrade.failed(found, version.kubernetes, str(error), before, cluster.clock.now())
            # Its datastore is kept by others, and a patch release changes no format: it must not end for that.
            snapshot = ""
        except (TenantryError, OSError) as error:
            log.warning("an upgrade does not begin", extra={"key": found.key, "error": str(error)})
            return upgrade.failed(found, version.kubernetes, str(error), before, cluster.clock.now())
        time = rfc3339(cluster.clock.now())
        return PlaneUpgrade(before=before, after=version.kubernetes, snapshot=snapshot, time=time)

    async def _write(self, cluster: Cluster, found: VirtualControlPlane, written: VirtualControlPlaneStatus) -> None:
        listed = await self._snapshots.listed(cluster, found)
        status = replace(written, snapshots=listed)
        # Not quiet: this controller goes on.
        await cluster.writer.own(request.replace(replace(found, status=status), subresource="status"))
