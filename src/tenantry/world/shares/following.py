"""The quota of a namespace elsewhere that follows its pods, in steps: pure.

Each change is a write, and another cluster answers it, so the quota does not follow every pod. It has the values of a
ladder, each a quarter above the one before, or one least step. Up at once, when the pods need more than it has; down
when it has been more than the pods need for ten minutes, so that pods which are replaced find it as it was.

Example, for `pods`: the ladder is 1, 5, 9, 13, 17, 22, 28, 35, …

    minute   pods   quota
    0        0      1
    1        7      9       up: the first value that is enough, before a pod is sent
    2        9      9
    3        4      9       5 would do, from now on
    8        9      9       enough again: the ten minutes end
    9        4      9
    19       4      5       down

What a value is computed from is the need alone. So a new process computes the same one; it only waits ten minutes anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from tenantry.world.shares.amounts import Amounts, add, fits, higher, is_bytes
from tenantry.world.shares.defaults import CONTAINER

PART = 4
"""A step is this part of a value."""

DOWN_SECONDS = 600.0
"""How long a quota must be more than the pods need before it is lowered."""

_MEBIBYTE, _WHOLE, _THOUSANDTH = 1024 * 1024 * 1000, 1000, 1
_PODS = ("pods", "count/pods")
_PODS_STEP = 4 * _WHOLE


def first(key: str) -> int:
    """Return the lowest value of a key: what one pod needs, so that a namespace without pods can run one."""
    return _WHOLE if key in _PODS else CONTAINER.get(key, 0)


@lru_cache(maxsize=8192)
def step_to(key: str, need: int) -> int:
    """Return the lowest value of the ladder that is enough.

    Args:
        key: A normal key.
        need: In thousandths.
    """
    value = first(key)
    while value < need:
        value = _next(key, value)
    return value


@lru_cache(maxsize=8192)
def step_below(key: str, value: int) -> int:
    """Return the highest need for which a value is a step too high; -1 for none."""
    below, each = -1, first(key)
    while each < value:
        below, each = each, _next(key, each)
    return below


def _next(key: str, value: int) -> int:
    unit = _THOUSANDTH if key.endswith(".cpu") else _MEBIBYTE if is_bytes(key) else _WHOLE
    least = _PODS_STEP if key in _PODS else CONTAINER.get(key, unit)
    quarter = -(-value // (PART * unit)) * unit
    return value + max(quarter, least)


class FollowingStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a quota should be now.

    Args:
        hard: The amounts.
        since: By key that is too high: since when.
        again: In how many seconds to look again; None for when the need changes.
    """

    hard: Amounts
    since: Mapping[str, float] = {}
    again: float | None = None


def follow(
    keys: Iterable[str],
    need: Mapping[str, int],
    has: Mapping[str, int],
    since: Mapping[str, float],
    now: float,
    *,
    is_known: bool = True,
) -> FollowingStep:
    """Return what the quota should be.

    Args:
        keys: Those that follow.
        need: The sum over the pods.
        has: What the quota has.
        since: As the step before returned it; {} in a new process.
        now: Of the same clock.
        is_known: All pods are counted in the need. Otherwise, nothing is lowered, and the ten minutes have not begun.
    """
    hard: Amounts = {}
    high: dict[str, float] = {}
    again: float | None = None
    for key in sorted(keys):
        enough, had = step_to(key, need.get(key, 0)), has.get(key, 0)
        if need.get(key, 0) > had or key not in has:
            hard[key] = max(had, enough)
        elif enough >= had:
            hard[key] = had
        elif is_known and now - since.get(key, now) >= DOWN_SECONDS:
            hard[key] = enough
        else:
            hard[key] = had
            began = since.get(key, now) if is_known else now
            if is_known:
                high[key] = began
            left = DOWN_SECONDS - (now - began)
            again = left if again is None else min(again, left)
    return FollowingStep(hard=hard, since=high, again=again)


def within(
    wanted: Mapping[str, int], need: Mapping[str, int], has: Mapping[str, int], room: Mapping[str, int]
) -> Amounts:
    """Return what a quota gets of what it should be, if no more is available: no step that would leave nothing.

    Args:
        wanted: What it should be.
        need: What the pods need of that.
        has: What it has.
        room: What it may get beside that; a key that is missing has no limit.
    """
    most = {key: has.get(key, 0) + max(0, value) for key, value in room.items()}
    return {
        key: value if value <= most.get(key, value) else min(max(need.get(key, 0), has.get(key, 0)), most[key])
        for key, value in wanted.items()
    }


def fitting(pods: Iterable[Amounts], most: Mapping[str, int]) -> Amounts:
    """Return the sum over the pods that fit, each if those before it leave room for it.

    Args:
        pods: What each counts, those that run already first.
        most: What all of them may have; only these keys count.
    """
    found: Amounts = dict.fromkeys(most, 0)
    for each in pods:
        mine = {key: found[key] + each.get(key, 0) for key in most}
        if fits(mine, most):
            found = mine
    return found


class PodLedger:
    """What the pods of one namespace need together: a running sum, changed in constant time.

    A pod counts as its form on either side does, if that is more: the lower side fills in what a pod does not request.
    """

    def __init__(self) -> None:
        self.need: Amounts = {}
        self._pods: dict[str, Amounts] = {}
        self._sent: set[str] = set()

    def put(self, name: str, charges: Iterable[Amounts], *, is_sent: bool) -> None:
        """Count a pod, in place of what counted for it before.

        Args:
            name: The pod.
            charges: Of each of its forms; none if it is gone.
            is_sent: It is there already.
        """
        mine: Amounts = {}
        for each in charges:
            mine = higher(mine, each)
        add(self.need, self._pods.pop(name, {}), -1)
        self._sent.discard(name)
        if mine:
            add(self.need, mine)
            self._pods[name] = mine
            if is_sent:
                self._sent.add(name)

    def pods(self) -> list[Amounts]:
        """Return what each pod counts, those that are there already first."""
        order = sorted(self._pods, key=lambda name: (name not in self._sent, name))
        return [self._pods[name] for name in order]
