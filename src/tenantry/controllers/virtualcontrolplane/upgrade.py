"""Decides which version of Kubernetes a control plane runs, and how it comes to another one: pure.

    spec.version 1.36, status.version 1.35.4
    ─► PREPARE  the process ends, and a snapshot is taken  ─► status.lastUpgrade
    ─► SWITCH   status.version 1.36.3: from here on, the objects are those of the new version
    ─► START    the process of 1.36.3                      ─► Ready: status.lastUpgrade.completed

With spec.upgrade.soakSeconds, the process of 1.36.3 first behaves as 1.35: its objects are those of 1.35, and
spec.version 1.35 starts the program of before again.

    ─► PREPARE  as above
    ─► SWITCH   status.lastUpgrade.soaks; status.version stays
    ─► START    the process of 1.36.3, which emulates 1.35 ─► Ready: status.lastUpgrade.soaked
    ─► SWITCH   soakSeconds later: status.version 1.36.3   ─► START the process without the emulation

A control plane that sleeps is prepared asleep, and switches when it wakes. One that may not have the version of its
spec runs on with the one that it has. Each step is read from the status, so that an operator goes on where another one
has ended.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.planesnapshots import PlaneUpgrade
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.engine.clock import rfc3339
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked
from tenantry.hosting import guards, versions
from tenantry.hosting import obstacles as hosting
from tenantry.hosting.obstacles import UpgradeObstacle
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.versions import HostedVersion

SOAK_LOOK_SECONDS = 5.0
"""When to look again whether a process that soaks is ready."""

READY_SECONDS = 300
"""How long the process of a new version may take until users can work inside, before that is reported as a failure."""

AGAIN_SECONDS = 600
"""When a snapshot that failed is tried again; the control plane runs with the version before meanwhile."""


class UpgradeStep(enum.Enum):
    """What is next."""

    START = enum.auto()
    PREPARE = enum.auto()
    SWITCH = enum.auto()


class UpgradeDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Which version a control plane runs.

    Args:
        step: What is next.
        version: The version to start or to go to; None if none may be started.
        problem: Why that is not the version of its spec; None if it is.
        again_seconds: When to look again; None for never.
    """

    step: UpgradeStep = UpgradeStep.START
    version: HostedVersion | None = None
    problem: Blocked | None = None
    again_seconds: float | None = None


def running(found: VirtualControlPlane, known: Sequence[HostedVersion]) -> str:
    """Return the patch release of the objects of a control plane; "" if it has not been started yet.

    Args:
        found: The control plane.
        known: The versions that there are.
    """
    if found.status.version or not found.status.kubeconfig_secret:
        return found.status.version
    # It was started by a Tenantry that had the default version only, and recorded none.
    return next((each.kubernetes for each in known if each.is_default), "")


def decide(found: VirtualControlPlane, known: Sequence[HostedVersion], now: dt.datetime) -> UpgradeDecision:
    """Return which version a control plane runs, and what is next.

    Args:
        found: The control plane.
        known: The versions that there are, the oldest first.
        now: The time.
    """
    before = running(found, known)
    try:
        wanted = versions.find(known, found.spec.version or (versions.minor(before) if before else ""))
        if before:
            versions.check_way(before, wanted.kubernetes)
    except InputError as error:
        problem = Blocked(reason=reasons.INVALID_SPEC, message=f"spec.version: {error}")
        return UpgradeDecision(version=kept(found, known), problem=problem)
    if before in ("", wanted.kubernetes):
        return UpgradeDecision(version=wanted)
    if (under_way := _under_way(found, before, wanted, now)) is not None:
        return under_way
    last = found.status.last_upgrade
    if last.message and last.generation == found.metadata.generation and _seconds(last.time, now) < AGAIN_SECONDS:
        stays = kept(found, known)
        return UpgradeDecision(version=stays, problem=_not_begun(last, is_served=stays is not None))
    return UpgradeDecision(step=UpgradeStep.PREPARE, version=wanted)


def _under_way(
    found: VirtualControlPlane, before: str, wanted: HostedVersion, now: dt.datetime
) -> UpgradeDecision | None:
    """Return what is next of an upgrade that has a snapshot; None if there is none."""
    last = found.status.last_upgrade
    is_this, left = (last.before, last.after) == (before, wanted.kubernetes), _soak_left(found, now)
    if last.soaks and is_this and left > 0:
        return UpgradeDecision(version=replace(wanted, emulates=versions.minor(before)), again_seconds=left)
    if (last.soaks and is_this) or _is_prepared(last, before, wanted):
        return UpgradeDecision(step=UpgradeStep.SWITCH, version=wanted)
    return None


def _soak_left(found: VirtualControlPlane, now: dt.datetime) -> float:
    """Return in how many seconds to look again at a process that soaks; at most 0 if it has done so for long enough."""
    last, most = found.status.last_upgrade, found.spec.upgrade.soak_seconds
    # What reports that it is ready wakes nothing.
    return most - _seconds(last.soaked, now) if last.soaked else SOAK_LOOK_SECONDS


def soaks_until(found: VirtualControlPlane) -> str:
    """Return until when a process soaks, as RFC 3339; "" while that is not known, or if none does."""
    last = found.status.last_upgrade
    if not last.soaks or not last.soaked:
        return ""
    return rfc3339(dt.datetime.fromisoformat(last.soaked) + dt.timedelta(seconds=found.spec.upgrade.soak_seconds))


def of_version(plane: HostedPlane, version: HostedVersion) -> HostedPlane:
    """Return a control plane with a version."""
    # A process that emulates 1.35 has the features of 1.35.
    kept = () if guards.obstacle(version.kubernetes, version.emulates) else plane.guards
    return replace(plane, version=version.name, emulates=version.emulates, guards=kept)


def is_aborted(found: VirtualControlPlane, chosen: HostedVersion | None) -> bool:
    """Return whether the version of before is chosen while the next one soaks."""
    last = found.status.last_upgrade
    return last.soaks and chosen is not None and chosen.kubernetes == last.before and not chosen.emulates


def kept(found: VirtualControlPlane, known: Sequence[HostedVersion]) -> HostedVersion | None:
    """Return the version that a control plane has; None if there is no program of it.

    Args:
        found: The control plane.
        known: The versions that there are.
    """
    before = running(found, known)
    # Another patch release would be an upgrade without a snapshot.
    return next((each for each in known if each.kubernetes == before), None)


def older(found: VirtualControlPlane, known: Sequence[HostedVersion]) -> HostedVersion | None:
    """Return the version of the spec if it is before that of the objects: only a restore leads there.

    Args:
        found: The control plane.
        known: The versions that there are.
    """
    before = running(found, known)
    wanted = next((each for each in known if each.name == found.spec.version), None)
    return wanted if before and wanted is not None and versions.is_before(wanted.kubernetes, before) else None


def _is_prepared(last: PlaneUpgrade, before: str, wanted: HostedVersion) -> bool:
    return bool(last.snapshot) and not last.started and (last.before, last.after) == (before, wanted.kubernetes)


def is_patch(before: str, after: HostedVersion) -> bool:
    """Return whether a version is another patch release of the minor version that a control plane has.

    Args:
        before: The patch release that it has.
        after: The version.
    """
    return versions.minor(before) == after.name


def _not_begun(last: PlaneUpgrade, *, is_served: bool = True) -> Blocked:
    stays = "" if is_served else ", for which there is no program any more: its pods are not mirrored until then"
    return Blocked(
        reason=reasons.UPGRADE_FAILED,
        message=(
            f"the upgrade from Kubernetes {last.before} to {last.after} has not begun, because no snapshot could be"
            f" taken: {last.message}; the operator tries again, and the control plane stays at {last.before}{stays}"
        ),
    )


def unready(found: VirtualControlPlane, cause: str) -> Blocked | None:
    """Return what to report if a control plane is not usable after an upgrade; None if no upgrade goes on.

    Args:
        found: The control plane.
        cause: Why it is not usable.
    """
    last, meta = found.status.last_upgrade, found.metadata
    if not is_pending(found):
        return None
    told = f"Kubernetes {last.after} is not ready with the objects of {last.before}: {cause}; the operator tries again"
    if last.soaks:
        told += f". To go back to {last.before}, with all objects, set spec.version to {versions.minor(last.before)}"
    elif last.snapshot:
        back = f"tenantry vcp restore {meta.name} -n {meta.namespace} --from {last.snapshot}"
        told += (
            f". To go back to {last.before}, and lose what was written since {last.time}, run"
            f" `{back} --version {versions.minor(last.before)}`"
        )
    return Blocked(reason=reasons.UPGRADE_FAILED, message=told)


def is_pending(found: VirtualControlPlane) -> bool:
    """Return whether the process of a new version was started, and has not been ready yet."""
    last = found.status.last_upgrade
    is_after = last.soaks or last.after == found.status.version
    return bool(last.started) and not last.completed and is_after


def overdue_seconds(found: VirtualControlPlane, now: dt.datetime) -> float | None:
    """Return in how many seconds an upgrade takes too long, at most 0 if it does; None if none goes on."""
    return READY_SECONDS - _seconds(found.status.last_upgrade.started, now) if is_pending(found) else None


def _seconds(since: str, now: dt.datetime) -> float:
    try:
        return (now - dt.datetime.fromisoformat(since)).total_seconds()
    except (TypeError, ValueError):
        return float("inf")


# -- the status -----------------------------------------------------------------------------------


def failed(found: VirtualControlPlane, after: str, message: str, before: str, now: dt.datetime) -> PlaneUpgrade:
    """Return what is recorded of an upgrade without a snapshot, which does not begin.

    Args:
        found: The control plane.
        after: The patch release that it should have.
        message: Why there is no snapshot.
        before: The patch release that it has.
        now: The time.
    """
    generation = found.metadata.generation
    return PlaneUpgrade(before=before, after=after, time=rfc3339(now), message=message, generation=generation)


def switched(status: VirtualControlPlaneStatus, last: PlaneUpgrade, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane whose process starts next, with the version that it is upgraded to.

    Args:
        status: The status so far.
        last: The upgrade, which has a snapshot.
        now: The time.
    """
    begun = replace(last, started=rfc3339(now), soaks=False)
    return replace(status, version=last.after, last_upgrade=begun, phase=PlanePhase.UPGRADING)


def begun(found: VirtualControlPlane, last: PlaneUpgrade, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane whose process of the next version starts: it soaks first, if it is to.

    Args:
        found: The control plane.
        last: The upgrade, which has a snapshot.
        now: The time.
    """
    is_minor = versions.minor(last.before) != versions.minor(last.after)
    if last.soaks or not found.spec.upgrade.soak_seconds or not is_minor:
        return switched(found.status, last, now)
    soaking = replace(last, started=rfc3339(now), soaks=True)
    return replace(found.status, version=last.before, last_upgrade=soaking, phase=PlanePhase.UPGRADING)


def aborted(found: VirtualControlPlane) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that goes back to the program of before while the next one soaks."""
    told = f"it was aborted while Kubernetes {found.status.last_upgrade.after} behaved as the version before"
    last = replace(found.status.last_upgrade, soaks=False, soaked="", message=told)
    return replace(found.status, last_upgrade=replace(last, generation=found.metadata.generation))


def rests(found: VirtualControlPlane, last: PlaneUpgrade, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that sleeps and is prepared, or could not be: its spec does not wake it.

    Args:
        found: The control plane.
        last: The upgrade.
        now: The time.
    """
    generation = found.metadata.generation
    told = (
        f"it sleeps, and has Kubernetes {last.after} when it wakes; snapshot {last.snapshot} has its objects"
        if last.snapshot
        else f"it sleeps; {_not_begun(last).message}"
    )
    wanted = [Wanted(reasons.READY, True, reasons.ASLEEP, told)]
    return replace(
        found.status,
        observed_generation=generation,
        version=last.before,
        last_upgrade=last,
        conditions=merge(found.status.conditions, wanted, generation=generation, now=rfc3339(now)),
    )


def completed(status: VirtualControlPlaneStatus, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that is ready.

    Args:
        status: The status so far.
        now: The time.
    """
    last = status.last_upgrade
    if last.soaks:
        return status if last.soaked else replace(status, last_upgrade=replace(last, soaked=rfc3339(now)))
    if not last.started or last.completed or last.after != status.version:
        return status
    return replace(status, last_upgrade=replace(last, completed=rfc3339(now)))


def blocked(found: VirtualControlPlane, wanted: HostedVersion, obstacles: Sequence[UpgradeObstacle]) -> Blocked:
    """Return what to report while something stands in the way of an upgrade.

    Args:
        found: The control plane.
        wanted: The version.
        obstacles: What stands in the way, at least one.
    """
    names = ", ".join(each.name for each in obstacles)
    return Blocked(
        reason=reasons.UPGRADE_BLOCKED,
        message=f"the upgrade to Kubernetes {wanted.kubernetes} waits, and the control plane stays at"
        f" {found.status.version}: {hosting.told(obstacles)}; or add to spec.upgrade.ignore: {names}",
    )


def condition(found: VirtualControlPlane, problem: Blocked | None) -> list[Wanted]:
    """Return the condition Upgrading; none if there is no upgrade.

    Args:
        found: The control plane.
        problem: What is reported of a control plane that runs.
    """
    last = found.status.last_upgrade
    if problem is not None and problem.reason == reasons.UPGRADE_BLOCKED:
        return [Wanted(reasons.UPGRADING, False, problem.reason, problem.message)]
    if not is_pending(found):
        return []
    message = f"from Kubernetes {last.before} to {last.after}"
    if not last.soaks:
        return [Wanted(reasons.UPGRADING, True, reasons.PROGRESSING, message)]
    until = soaks_until(found)
    time = f", until {until}" if until else ""
    words = f"{message}, which behaves as {versions.minor(last.before)}{time}: until then, it can be aborted"
    return [Wanted(reasons.UPGRADING, True, reasons.SOAKING, words)]
