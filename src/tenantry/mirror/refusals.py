"""What the lower side refuses, and when it is asked again: pure."""

from __future__ import annotations

from tenantry.api.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid
from tenantry.mirror.profile import Profile

RETRY_SECONDS = 10.0
MOST_RETRY_SECONDS = 300.0
"""When something refused is tried again, each time twice as long: a quota may have room by then."""

REFUSALS = (Forbidden, Invalid, BadRequest, AlreadyExists)
"""What the API server of the lower side answers to an object that it does not accept as it is."""

_MOST_CAUSE = 256

_DOUBLED = 10
"""More doublings change nothing."""


def retry_seconds(times: int) -> float:
    """Return in how many seconds something is tried again that was refused so many times before."""
    return min(RETRY_SECONDS * 2 ** min(times, _DOUBLED), MOST_RETRY_SECONDS)


def cause(error: ApiError) -> str:
    """Return why a patch is refused: the end of an error, before which the API server has put the whole object."""
    return str(error)[-_MOST_CAUSE:]


def upper_words(error: ApiError, profile: Profile, kind: str, namespace: str, name: str) -> ApiError:
    """Return an error of the lower side about an object, with its upper name in place of the lower one."""
    return error.worded(str(error).replace(profile.lower_name(kind, namespace, name), name))
