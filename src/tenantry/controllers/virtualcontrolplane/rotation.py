"""Decides when the credentials of a control plane are replaced: pure.

    spec.rotation.request: Users@…  ─► status.credentials.users + 1
    spec.rotation.request: All@…    ─► both numbers + 1
    spec.rotation.request: Encryption@…, or the age of the key ─► status.credentials.encryption + 1 (encryption.py)
    an owner is removed             ─► users + 1; if owners watch Secrets on the host, once more when watches have ended
    an earlier version wrote the kubeconfig in the namespace of a tenant with a control plane of its own ─► users + 1
    status.credentials              ─► HostedPlane ─► the process starts anew ─► status.lastRotation

A gradual rotation has three phases. Each is in force when the process was started with it:

    spec.rotation.request: Gradual@…  ─► Preparing   the next authorities are trusted, and sign nothing
    Preparing in force                ─► Issuing     they sign; status.credentials.formerClients: who uses former ones
    nothing uses former ones any more ─► no phase    Completing: only the new ones are trusted
    spec.rotation.request: Complete@… ─► no phase    whatever still uses former ones; from Preparing, only Issuing
    any other replacement             ─► no phase    it is meant to end former ones

All users share one certificate, and a certificate cannot be revoked: so one that a removed owner has kept is worth
nothing only if its authority is replaced. A suspension removes no owner.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tenantry.api.marks import OWNERS
from tenantry.api.owner import owner_line
from tenantry.api.planecredentials import (
    MOST_FORMER_CLIENTS,
    FormerClient,
    LastRotationPhase,
    PlaneCredentials,
    PlaneRotationOutcome,
    RotationPhase,
    RotationScope,
)
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import kubeconfigplace
from tenantry.engine.clock import rfc3339
from tenantry.engine.observed import Observed
from tenantry.hosting.plane import OVERLAP, CredentialGenerations
from tenantry.hosting.reports import FormerUse

LEAST_SECONDS = 10
"""Between two rotations that users request: each one starts the process anew."""

REPORTED_SECONDS = 60
"""How much later a last use must be that is written: active clients would cause writes all the time."""

_INSIDE = "inside"
"""Before an owner inside: one on the host may have the same name."""

LONGEST_SECONDS = 6 * 3600.0
"""When to look again at the latest: a machine that was suspended has not counted the time."""

WATCH_SECONDS = 330
"""After which no watch is open that began before (decision 18)."""


class RotationStep(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about the credentials of a control plane.

    Args:
        status: The status to write; None if nothing changes.
        again_seconds: When to look again; None for never.
    """

    status: VirtualControlPlaneStatus | None = None
    again_seconds: float | None = None


def digest(owner: str) -> str:
    """Return what the status has of an owner: not the name, which other users need not see.

    Args:
        owner: As `owner_line` returns it.
    """
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def owners_of(found: VirtualControlPlane, namespace: Observed) -> tuple[str, ...]:
    """Return the digests of the owners of a namespace, and of those inside that the spec names, sorted."""
    lines = namespace.annotations.get(OWNERS, "").splitlines()
    inside = (f"{_INSIDE} {owner_line(each.kind, each.name)}" for each in found.spec.owners)
    return tuple(sorted({digest(each) for each in (*lines, *inside) if each}))


def removed(found: VirtualControlPlane, namespace: Observed) -> frozenset[str]:
    """Return the digests of owners for whom the credentials were, and who are owners no more."""
    return frozenset(found.status.credentials.owners).difference(owners_of(found, namespace))


def step(
    found: VirtualControlPlane, namespace: Observed, now: dt.datetime, *, has_reported: bool = False
) -> RotationStep:
    """Return what to do about the credentials of a control plane.

    Args:
        found: The control plane.
        namespace: Its namespace.
        now: The time.
        has_reported: See `is_due`.
    """
    credentials, owners = found.status.credentials, owners_of(found, namespace)
    if kubeconfigplace.moves(found, namespace):
        # Also for removed owners: no user that watches beside the control plane sees the new Secret.
        moved = kubeconfigplace.reported(found, namespace)
        return _written(moved, replace(_next(credentials), owners=owners, again=""))
    if removed(found, namespace):
        # A watch of Secrets that the owner has begun may still bring the new kubeconfig.
        sees = not kubeconfigplace.is_outside(found, namespace)
        later = _when_watches_end(now) if sees else credentials.again
        return _written(found, replace(_next(credentials), owners=owners, again=later))
    left = _left(credentials.again, now)
    if left is not None and left <= 0:
        return _written(found, replace(_next(credentials), owners=owners, again=""))
    asked = found.spec.rotation.request
    wait = _wait(found, now) if asked not in ("", credentials.requested) else None
    if wait is not None and wait <= 0:
        following = _requested(credentials, RotationScope(asked.partition("@")[0]))
        return _written(found, replace(following, requested=asked, owners=owners))
    has_changed = owners != credentials.owners
    following = replace(credentials, owners=owners) if has_changed else _phase(found, now, has_reported=has_reported)
    aged = _key_left(found, now)
    if following is None and aged is not None and aged <= 0:
        following = replace(credentials, encryption=credentials.encryption + 1)
    if following is not None:
        return _written(found, following)
    return RotationStep(again_seconds=sooner(left, wait, None if aged is None else min(aged, LONGEST_SECONDS)))


def _key_left(found: VirtualControlPlane, now: dt.datetime) -> float | None:
    """Return in how many seconds the encryption key is too old; None if it has none, sleeps or is replaced already."""
    known = found.status.encryption
    if not known.keys or known.generation != found.status.credentials.encryption or is_pending(found):
        return None
    if found.status.phase is not PlanePhase.AWAKE:
        return None
    age = (now - dt.datetime.fromisoformat(known.keys[0].created)).total_seconds()
    return found.spec.rotation.encryption_key_seconds - age


def _requested(credentials: PlaneCredentials, scope: RotationScope) -> PlaneCredentials:
    """Return the credentials that a request leads to."""
    phase = credentials.phase
    if scope is RotationScope.GRADUAL:
        return credentials if phase is not RotationPhase.NONE else replace(credentials, phase=RotationPhase.PREPARING)
    if scope is RotationScope.ENCRYPTION:
        return replace(credentials, encryption=credentials.encryption + 1)
    if scope is RotationScope.COMPLETE:
        # What was only prepared has to sign first, or no client has credentials that are trusted afterwards.
        return _issuing(credentials) if phase is RotationPhase.PREPARING else _ended(credentials)
    return _next(credentials, whole=scope is RotationScope.ALL)


def _phase(found: VirtualControlPlane, now: dt.datetime, *, has_reported: bool) -> PlaneCredentials | None:
    """Return the credentials of the next phase of a gradual rotation; None if it stays in its phase."""
    credentials, wanted = found.status.credentials, found.spec.rotation
    if is_pending(found):
        return None
    if credentials.phase is RotationPhase.PREPARING and wanted.last_phase is not LastRotationPhase.PREPARING:
        return _issuing(credentials)
    if credentials.phase is not RotationPhase.ISSUING:
        return None
    if not credentials.issued:
        return replace(credentials, issued=rfc3339(now))
    if wanted.last_phase is not LastRotationPhase.COMPLETING or not has_reported:
        return None
    return _ended(credentials) if not remaining(found, now) else None


def is_due(found: VirtualControlPlane, now: dt.datetime, *, has_reported: bool) -> bool:
    """Return whether a gradual rotation comes to its next phase.

    Args:
        found: The control plane.
        now: The time.
        has_reported: Whether each of its processes has just reported its clients. What is recorded may be old: clients
            have left no mark there while the operator was down, or a process was silent.
    """
    return _phase(found, now, has_reported=has_reported) is not None


def remaining(found: VirtualControlPlane, now: dt.datetime) -> tuple[str, ...]:
    """Return what still uses the credentials of before a gradual rotation, in words.

    Args:
        found: The control plane, in the phase Issuing.
        now: The time.
    """
    credentials = found.status.credentials
    told = [_told(each) for each in used(credentials.former_clients, found.spec.rotation.quiet_seconds, now)]
    if not credentials.issued:
        return tuple(told)
    end = dt.datetime.fromisoformat(credentials.issued) + OVERLAP
    if now < end:
        told.append(f"tokens of ServiceAccounts that were issued before {credentials.issued}, until {rfc3339(end)}")
    return tuple(told)


_OF_NODES = "system:node:"


def _told(found: FormerClient) -> str:
    if found.user.startswith(_OF_NODES):
        return f"node {found.user.removeprefix(_OF_NODES)!r}, last at {found.last}"
    return f"user {found.user!r}, last at {found.last}"


def used(known: Iterable[FormerClient], quiet_seconds: int, now: dt.datetime) -> tuple[FormerClient, ...]:
    """Return the clients whose last use is not longer ago than a time.

    Args:
        known: The clients.
        quiet_seconds: The time.
        now: The time now.
    """
    since = rfc3339(now - dt.timedelta(seconds=quiet_seconds))
    return tuple(each for each in known if each.last > since)


def noted(
    known: Iterable[FormerClient], reported: Iterable[FormerUse], quiet_seconds: int, now: dt.datetime
) -> tuple[FormerClient, ...]:
    """Return the clients with former certificates, from those that are recorded and those that the process reports.

    Args:
        known: Those that are recorded, also of an earlier process.
        reported: Those of the process that runs.
        quiet_seconds: As for `used`.
        now: The time.
    """
    found = {each.user: each for each in known}
    for each in reported:
        before = found.get(each.user)
        moved = dt.datetime.fromisoformat(before.last) if before is not None else None
        if moved is None or (each.last - moved).total_seconds() >= min(REPORTED_SECONDS, quiet_seconds):
            found[each.user] = FormerClient(user=each.user[:253], last=rfc3339(each.last))
    latest = sorted(used(found.values(), quiet_seconds, now), key=lambda each: each.last, reverse=True)
    return tuple(sorted(latest[:MOST_FORMER_CLIENTS], key=lambda each: each.user))


def _issuing(credentials: PlaneCredentials) -> PlaneCredentials:
    return replace(_next(credentials, whole=True), phase=RotationPhase.ISSUING)


def _ended(credentials: PlaneCredentials) -> PlaneCredentials:
    return replace(credentials, phase=RotationPhase.NONE, issued="", former_clients=())


def is_pending(found: VirtualControlPlane) -> bool:
    """Return whether other credentials are in force than those that are to be."""
    wished, done = found.status.credentials, found.status.last_rotation
    if wished.phase is not done.phase:
        return True
    if wished.encryption != done.encryption:
        return True
    return (wished.users, wished.authorities, wished.requested) != (done.users, done.authorities, done.requested)


def wanted(found: VirtualControlPlane) -> CredentialGenerations:
    """Return the credentials that are to be in force."""
    credentials = found.status.credentials
    return CredentialGenerations(
        users=credentials.users,
        authorities=credentials.authorities,
        encryption=credentials.encryption,
        phase=credentials.phase,
    )


def outcome(found: VirtualControlPlane, in_force: CredentialGenerations, now: dt.datetime) -> PlaneRotationOutcome:
    """Return the last rotation to report of a control plane that is ready.

    Args:
        found: The control plane.
        in_force: The credentials that its process was started with.
        now: The time.
    """
    if not is_pending(found) or in_force != wanted(found):
        return found.status.last_rotation
    credentials = found.status.credentials
    return PlaneRotationOutcome(
        requested=credentials.requested,
        time=rfc3339(now),
        users=credentials.users,
        authorities=credentials.authorities,
        encryption=credentials.encryption,
        phase=credentials.phase,
    )


def sooner(*seconds: float | None) -> float | None:
    """Return the least of some times, None for never."""
    return min((each for each in seconds if each is not None), default=None)


def is_bound(subjects: Iterable[str], gone: frozenset[str]) -> bool:
    """Return whether a binding still has an owner that was removed.

    Args:
        subjects: As for `digest`.
        gone: The digests of removed owners.
    """
    return any(digest(each) in gone for each in subjects)


def _next(credentials: PlaneCredentials, *, whole: bool = False) -> PlaneCredentials:
    authorities = credentials.authorities + 1 if whole else credentials.authorities
    return replace(_ended(credentials), users=credentials.users + 1, authorities=authorities)


def _when_watches_end(now: dt.datetime) -> str:
    return rfc3339(now + dt.timedelta(seconds=WATCH_SECONDS))


def _left(moment: str, now: dt.datetime) -> float | None:
    return (dt.datetime.fromisoformat(moment) - now).total_seconds() if moment else None


def _wait(found: VirtualControlPlane, now: dt.datetime) -> float:
    """Return how long a request has to wait."""
    if is_pending(found):
        return LEAST_SECONDS
    left = _left(found.status.last_rotation.time, now)
    return LEAST_SECONDS + left if left is not None else 0.0


def _written(found: VirtualControlPlane, credentials: PlaneCredentials) -> RotationStep:
    return RotationStep(status=replace(found.status, credentials=credentials))
