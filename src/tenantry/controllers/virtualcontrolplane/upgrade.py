"""Decides which version of Kubernetes a control plane runs, and how it comes to another one: pure.

    spec.version 1.36, status.version 1.35.4
    ─► PREPARE  the process ends, and a snapshot is taken  ─► status.lastUpgrade
    ─► SWITCH   status.version 1.36.3: from here on, the objects are those of the new version
    ─► START    the process of 1.36.3                      ─► Ready: status.lastUpgrade.completed

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
from tenantry.hosting import versions
from tenantry.hosting.versions import HostedVersion

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
    """

    step: UpgradeStep = UpgradeStep.START
    version: HostedVersion | None = None
    problem: Blocked | None = None


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
    last = found.status.last_upgrade
    if _is_prepared(last, before, wanted):
        return UpgradeDecision(step=UpgradeStep.SWITCH, version=wanted)
    if last.message and last.generation == found.metadata.generation and _seconds(last.time, now) < AGAIN_SECONDS:
        stays = kept(found, known)
        return UpgradeDecision(version=stays, problem=_not_begun(last, is_served=stays is not None))
    return UpgradeDecision(step=UpgradeStep.PREPARE, version=wanted)


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
    if last.snapshot:
        back = f"tenantry vcp restore {meta.name} -n {meta.namespace} --from {last.snapshot}"
        told += (
            f". To go back to {last.before}, and lose what was written since {last.time}, run"
            f" `{back} --version {versions.minor(last.before)}`"
        )
    return Blocked(reason=reasons.UPGRADE_FAILED, message=told)


def is_pending(found: VirtualControlPlane) -> bool:
    """Return whether the process of a new version was started, and has not been ready yet."""
    last = found.status.last_upgrade
    return bool(last.started) and not last.completed and last.after == found.status.version


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
    begun = replace(last, started=rfc3339(now))
    return replace(status, version=last.after, last_upgrade=begun, phase=PlanePhase.UPGRADING)


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


def completed(status: VirtualControlPlaneStatus, now: str) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that is ready.

    Args:
        status: The status so far.
        now: RFC 3339.
    """
    last = status.last_upgrade
    if not last.started or last.completed or last.after != status.version:
        return status
    return replace(status, last_upgrade=replace(last, completed=now))
