"""How soon a lower side may fail pods that replace each other."""

from __future__ import annotations

import datetime as dt

import pytest

from tenantry.mirror import endings
from tenantry.mirror.endings import FORGOTTEN_SECONDS, MOST_SECONDS, Endings
from tenantry.mirror.things import PODS
from testkit.mirroredpods import BoundPods, bound_pod

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    """Return a time."""
    return START + dt.timedelta(seconds=seconds)


def replaced(found: Endings, times: int) -> list[float]:
    """Fail pods that replace each other at once, and return after how many seconds each is shown."""
    now, waits = 0.0, list[float]()
    for number in range(times):
        created = at(int(now))
        waits.append(found.left("set", f"pod-{number}", created, at(now)))
        now += waits[-1]
        found.show("set", f"pod-{number}", created, at(now))
    return waits


def test_replacements_that_fail_at_once_are_shown_later_each_time() -> None:
    """L06: kubernetes#72593."""
    waits = replaced(Endings(), 14)
    assert waits[:5] == [0.0, 1.0, 2.0, 4.0, 8.0]
    assert waits[-2:] == [MOST_SECONDS, MOST_SECONDS]


def test_pods_that_were_there_before_are_shown_at_once() -> None:
    """A node that ends, ends many pods of one ReplicaSet: that is no loop."""
    found = Endings()
    for number in range(100):
        assert found.left("set", f"pod-{number}", at(-5), at(0.1 * number)) == 0.0
        found.show("set", f"pod-{number}", at(-5), at(0.1 * number))
    assert found.left("set", "next", at(0), at(0.5)) == pytest.approx(0.5)


def test_one_pod_is_shown_again_without_a_wait() -> None:
    """Its status was not written."""
    found = Endings()
    found.show("set", "pod", at(0), at(0))
    assert found.left("set", "pod", at(0), at(0)) == 0.0


def test_a_quiet_controller_is_forgotten_and_others_do_not_wait() -> None:
    found = Endings()
    replaced(found, 6)
    assert found.left("set", "next", at(40), at(40)) > 0
    assert found.left("other", "next", at(40), at(40)) == 0.0
    assert found.left("", "bare", at(40), at(40)) == 0.0
    assert found.left("set", "next", at(32 + FORGOTTEN_SECONDS), at(32 + FORGOTTEN_SECONDS)) == 0.0


def test_the_number_of_controllers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "MOST_OWNERS", 2)
    found = Endings()
    for owner in ("a", "b", "c"):
        found.show(owner, f"pod-{owner}", at(0), at(0))
    assert found.left("a", "next", at(0), at(0)) == 0.0
    assert found.left("c", "next", at(0), at(0)) == 1.0


def test_a_loop_of_pods_that_fail_below_slows_down() -> None:
    """L06: a hostile lower side fails each pod; the controller of the upper side replaces it."""
    pair = BoundPods()
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-set", "controller": True}]
    waits = list[float]()
    for number in range(5):
        name, before = f"web-{number}", pair.above.clock.monotonic()
        made = bound_pod(name)
        made["metadata"] |= {
            "ownerReferences": owner,
            "creationTimestamp": pair.above.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        pair.put(made)
        pair.settle()
        pair.report(name, phase="Failed")
        pair.settle()
        while pair.status(name)["phase"] != "Failed":
            pair.settle(0.5)
            assert pair.above.clock.monotonic() < before + MOST_SECONDS
        waits.append(pair.above.clock.monotonic() - before)
        pair.upper.delete(PODS, f"shop/{name}")
        pair.settle()
    assert waits[0] < 1.0
    assert waits == sorted(waits)
    assert waits[-1] >= 8.0 - 1.0
