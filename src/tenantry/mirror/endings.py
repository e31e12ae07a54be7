"""When a bound pod that has failed may be shown as failed: pure.

A lower side that fails each pod at once drives an endless loop: the controller of the upper pods replaces each of them
at once (kubernetes#72593). So the pods that a controller makes after one of its pods was shown as failed are shown as
failed with back-off. Pods that were there before are shown at once: that many of them end together is no loop.

    pods a, b of one ReplicaSet fail    a: at once    b: at once, as it was there before a was shown
    c replaces a and fails              1 second after a
    d replaces c and fails              2 seconds after c
    e fails, ten minutes after d        at once
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict

import msgspec

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0
FORGOTTEN_SECONDS = 600.0
"""After how many seconds without a failure the next one is shown at once."""

MOST_OWNERS = 10_000

_DOUBLED = 10
"""More doublings change nothing."""


class _Shown(msgspec.Struct, frozen=True):
    """The last failure of a replaced pod that was shown: of which pod, when, and how many came before."""

    uid: str
    at: dt.datetime
    times: int


class Endings:
    """The failures that were shown, by the controllers of the pods."""

    def __init__(self) -> None:
        # The one that failed last is the last.
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def left(self, owner: str, uid: str, created: dt.datetime | None, now: dt.datetime) -> float:
        """Return in how many seconds the failure of a pod may be shown; 0 for now.

        Args:
            owner: The uid of its controller; "" for none, which replaces nothing.
            uid: The uid of the pod.
            created: When it was created, in whole seconds; None if that is not known.
            now: The time.
        """
        known = self._known(owner, now)
        if known is None or not self._replaces(known, uid, created):
            return 0.0
        wait = min(FIRST_SECONDS * 2 ** min(known.times, _DOUBLED), MOST_SECONDS)
        return max((known.at - now).total_seconds() + wait, 0.0)

    def show(self, owner: str, uid: str, created: dt.datetime | None, now: dt.datetime) -> None:
        """Record that the failure of a pod is shown; arguments as of `left`."""
        known = self._known(owner, now)
        if not owner or (known is not None and not self._replaces(known, uid, created)):
            return
        self._shown[owner] = _Shown(uid, now, known.times + 1 if known is not None else 0)
        self._shown.move_to_end(owner)
        if len(self._shown) > MOST_OWNERS:
            self._shown.popitem(last=False)

    def _known(self, owner: str, now: dt.datetime) -> _Shown | None:
        known = self._shown.get(owner)
        is_old = known is not None and (now - known.at).total_seconds() >= FORGOTTEN_SECONDS
        return None if is_old else known

    def _replaces(self, known: _Shown, uid: str, created: dt.datetime | None) -> bool:
        """Return whether a pod was created after the last failure was shown."""
        is_later = created is None or created >= known.at.replace(microsecond=0)
        return uid != known.uid and is_later
