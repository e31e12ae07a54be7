"""Decides when the credentials of a control plane are replaced: pure.

    spec.rotation.request: Users@…  ─► status.credentials.users + 1
    spec.rotation.request: All@…    ─► both numbers + 1
    an owner is removed             ─► users + 1; if owners watch Secrets on the host, once more when watches have ended
    an earlier version wrote the kubeconfig in the namespace of a tenant with a control plane of its own ─► users + 1
    status.credentials              ─► HostedPlane ─► the process starts anew ─► status.lastRotation

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
from tenantry.api.planecredentials import PlaneCredentials, PlaneRotationOutcome, RotationScope
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import kubeconfigplace
from tenantry.engine.clock import rfc3339
from tenantry.engine.observed import Observed
from tenantry.hosting.plane import CredentialGenerations

LEAST_SECONDS = 10
"""Between two rotations that users request: each one starts the process anew."""

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


def owners_of(namespace: Observed) -> tuple[str, ...]:
    """Return the digests of the owners of a namespace, sorted."""
    lines = namespace.annotations.get(OWNERS, "").splitlines()
    return tuple(sorted({digest(each) for each in lines if each}))


def removed(found: VirtualControlPlane, namespace: Observed) -> frozenset[str]:
    """Return the digests of owners for whom the credentials were, and who are owners no more."""
    return frozenset(found.status.credentials.owners).difference(owners_of(namespace))


def step(found: VirtualControlPlane, namespace: Observed, now: dt.datetime) -> RotationStep:
    """Return what to do about the credentials of a control plane.

    Args:
        found: The control plane.
        namespace: Its namespace.
        now: The time.
    """
    credentials, owners = found.status.credentials, owners_of(namespace)
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
        following = _next(credentials, whole=asked.partition("@")[0] == RotationScope.ALL)
        return _written(found, replace(following, requested=asked, owners=owners))
    if owners != credentials.owners:
        return _written(found, replace(credentials, owners=owners))
    return RotationStep(again_seconds=sooner(left, wait))


def is_pending(found: VirtualControlPlane) -> bool:
    """Return whether other credentials are in force than those that are to be."""
    wished, done = found.status.credentials, found.status.last_rotation
    return (wished.users, wished.authorities, wished.requested) != (done.users, done.authorities, done.requested)


def wanted(found: VirtualControlPlane) -> CredentialGenerations:
    """Return the credentials that are to be in force."""
    credentials = found.status.credentials
    return CredentialGenerations(users=credentials.users, authorities=credentials.authorities)


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
    return replace(credentials, users=credentials.users + 1, authorities=authorities)


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
