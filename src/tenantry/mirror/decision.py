"""What a mirror does next with one pod, from both sides: pure.

upper        lower        next
──────────────────────────────────────────────────────────────────────
none         there        delete the lower pod
there        none         create it; or, if it was there before, delete the upper pod
deleting     there        delete the lower pod with the upper one's grace, then follow its status
deleting     none         delete the upper pod at once: nothing runs any more
there        deleting     delete the upper pod (an eviction, a drain): its controller replaces it
there        there        bind the upper pod to a node, follow changes down and the status up
none         waits        nothing: a lower pod that is to be adopted waits for its upper one
there        waits        adopt the lower pod

A profile with a node has upper pods that are bound before they are mirrored. A mark cannot be written on these, so
their status records that a lower pod was there (`podstatus.is_recorded`). Only one lower pod ever exists for one uid:

upper        lower        next
──────────────────────────────────────────────────────────────────────
no pair      any          nothing: a node agent of the upper side, say, that runs on every node. One that is deleted
                          and never had a lower pod is deleted at once: nothing else ends it
there        none         create it, unless the pair is closed; or, if it was there before, fail: its controller
                          replaces the upper pod
cannot go    none         fail
there        deleting     follow its status; the upper pod fails when the lower one is gone
ended        runs         delete the lower pod: an upper pod that has ended does not run again
"""

from __future__ import annotations

from enum import StrEnum

from tenantry.mirror import adoption, podlimits, podstatus
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part

LOWER = "lower"
"""The mark of an upper pod that was bound: the uid of its lower pod."""


class Next(StrEnum):
    """What a mirror does next."""

    REST = "Rest"
    CREATE = "Create"
    ADOPT = "Adopt"
    FOLLOW = "Follow"
    END_LOWER = "EndLower"
    END_UPPER = "EndUpper"
    REFUSE = "Refuse"
    FAIL = "Fail"
    LOST = "Lost"


BOUND_BY_USER = (
    "spec.nodeName is set by the mirror alone: leave it out, and choose nodes by spec.nodeSelector or spec.affinity"
)


def decide(upper: CachedPod | None, lower: CachedPod | None, profile: Profile) -> Next:
    """Return what is next for one pod.

    Args:
        upper: The upper Pod; None if there is none.
        lower: The lower object that has its name; None if there is none.
        profile: The configuration.
    """
    if upper is not None and not profile.is_mirrored(upper.key):
        # Pods that tolerate every taint are bound to any node: nothing else removes them from this one.
        never_ran = upper.is_deleting and not podstatus.is_recorded(upper.status, profile)
        return Next.END_UPPER if never_ran else Next.REST
    waits = lower is not None and adoption.waits(part(lower.meta, "annotations"), profile)
    if upper is not None and waits:
        return Next.ADOPT
    if upper is None:
        return Next.REST if waits else _without_upper(lower)
    return _with_upper(upper, lower, profile)


def _without_upper(lower: CachedPod | None) -> Next:
    return Next.END_LOWER if lower is not None and not lower.is_deleting else Next.REST


def _with_upper(upper: CachedPod, lower: CachedPod | None, profile: Profile) -> Next:
    if lower is not None and lower.mark(profile, "uid") != upper.uid:
        # Of an earlier pod of this name; the next event is its end.
        return Next.REST if lower.is_deleting else Next.END_LOWER
    if upper.is_deleting:
        if lower is None:
            return Next.END_UPPER
        return Next.FOLLOW if lower.is_deleting else Next.END_LOWER
    if lower is None:
        return _bound_alone(upper, profile) if profile.node else _without_lower(upper, profile)
    if profile.node:
        return _bound(upper, lower)
    return Next.END_UPPER if lower.is_deleting else Next.FOLLOW


def _bound(upper: CachedPod, lower: CachedPod) -> Next:
    runs = not lower.is_deleting and lower.status.get("phase") not in podstatus.ENDED
    return Next.END_LOWER if runs and upper.status.get("phase") in podstatus.ENDED else Next.FOLLOW


def _bound_alone(upper: CachedPod, profile: Profile) -> Next:
    status = upper.status
    if status.get("phase") in podstatus.ENDED:
        return Next.REST
    if podstatus.is_recorded(status, profile):
        return Next.LOST
    if not profile.is_open(upper.key.partition("/")[0]):
        return Next.REST
    is_unfit = profile.limits is not None and podlimits.unfit(upper.spec, profile.limits)
    return Next.FAIL if is_unfit else Next.CREATE


def _without_lower(upper: CachedPod, profile: Profile) -> Next:
    if upper.status.get("phase") in podstatus.ENDED:
        return Next.REST
    if upper.mark(profile, LOWER):
        # It ran, and was deleted on the lower side: a second one would be another pod under the same uid.
        return Next.END_UPPER
    return Next.REFUSE if upper.spec.get("nodeName") else Next.CREATE


def grace(pod: CachedPod) -> int | None:
    """Return the grace period in seconds with which the deletion of a pod was requested; None for its own."""
    found = pod.meta.get("deletionGracePeriodSeconds")
    return found if isinstance(found, int) else None
