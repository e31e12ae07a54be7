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
"""

from __future__ import annotations

from enum import StrEnum

from tenantry.mirror import adoption
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part

LOWER = "lower"
"""The mark of an upper pod that was bound: the uid of its lower pod."""

_ENDED = ("Succeeded", "Failed")


class Next(StrEnum):
    """What a mirror does next."""

    REST = "Rest"
    CREATE = "Create"
    ADOPT = "Adopt"
    FOLLOW = "Follow"
    END_LOWER = "EndLower"
    END_UPPER = "EndUpper"
    REFUSE = "Refuse"


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
        return _without_lower(upper, profile)
    return Next.END_UPPER if lower.is_deleting else Next.FOLLOW


def _without_lower(upper: CachedPod, profile: Profile) -> Next:
    if upper.status.get("phase") in _ENDED:
        return Next.REST
    if upper.mark(profile, LOWER):
        # It ran, and was deleted on the lower side: a second one would be another pod under the same uid.
        return Next.END_UPPER
    return Next.REFUSE if upper.spec.get("nodeName") else Next.CREATE


def grace(pod: CachedPod) -> int | None:
    """Return the grace period in seconds with which the deletion of a pod was requested; None for its own."""
    found = pod.meta.get("deletionGracePeriodSeconds")
    return found if isinstance(found, int) else None
