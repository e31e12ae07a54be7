"""Pairs of pods that are compared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenantry.mirror.podchanges import PodChanges
from tenantry.mirror.pods import down
from tenantry.mirror.settledpods import SettledPods
from testkit.mirroring import FULL, PROFILE, cached, copied, lower_pod

Json = dict[str, Any]

UPPER, LOWER = cached(FULL), cached(lower_pod(FULL))
MADE = down(FULL, PROFILE)


def _changed(pod: Json, change: Callable[[Json], object]) -> Json:
    found = copied(pod)
    change(found)
    return found


OTHERS: dict[str, Callable[[Json], object]] = {
    "label": lambda pod: pod["metadata"]["labels"].update(app="shop"),
    "annotation": lambda pod: pod["metadata"]["annotations"].update(note="second"),
    "image": lambda pod: pod["spec"]["containers"][0].update(image="web:2"),
    "deletion": lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    "uid": lambda pod: pod["metadata"].update(uid="u-other"),
}


def settled() -> SettledPods:
    found = SettledPods()
    found.settle(UPPER, LOWER, MADE.tokens, PodChanges())
    return found


def test_a_pair_of_which_only_the_status_and_the_version_have_changed_is_not_compared_again() -> None:
    def ran(pod: Json) -> None:
        pod["metadata"]["resourceVersion"] = "77"
        pod["status"] = {"phase": "Running"}

    upper, lower = (cached(_changed(pod, ran)) for pod in (FULL, lower_pod(FULL)))
    assert (upper.version, lower.version) == (77, 77)
    assert settled().tokens(upper, lower) == MADE.tokens


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_pair_of_which_one_pod_has_changed_is_compared_again(other: Callable[[Json], object]) -> None:
    assert settled().tokens(cached(_changed(FULL, other)), LOWER) is None
    assert settled().tokens(UPPER, cached(_changed(lower_pod(FULL), other))) is None


@pytest.mark.parametrize(
    "changed", [PodChanges(pod={"metadata": {}}), PodChanges(ephemeral={"spec": {}}), PodChanges(refusal="no")], ids=str
)
def test_a_pair_of_which_something_must_change_is_compared_again(changed: PodChanges) -> None:
    pairs = settled()
    pairs.settle(UPPER, LOWER, MADE.tokens, changed)
    assert pairs.tokens(UPPER, LOWER) is None


def test_what_was_made_of_a_pod_serves_once_and_not_after_a_change() -> None:
    pairs = SettledPods()
    pairs.keep(UPPER, MADE)
    assert pairs.made_of(cached(_changed(FULL, OTHERS["image"]))) is None
    pairs.keep(UPPER, MADE)
    assert pairs.made_of(UPPER) is MADE
    assert pairs.made_of(UPPER) is None


def test_a_pod_that_is_forgotten_is_compared_again() -> None:
    pairs = settled()
    pairs.keep(UPPER, MADE)
    pairs.forget(UPPER.key)
    assert (pairs.tokens(UPPER, LOWER), pairs.made_of(UPPER)) == (None, None)


def test_few_lower_pods_are_kept_as_they_were_made() -> None:
    pairs, many = SettledPods(), 300
    found = [cached(_changed(FULL, lambda pod, n=n: pod["metadata"].update(name=f"web-{n}"))) for n in range(many)]
    for each in found:
        pairs.keep(each, MADE)
    kept = [pairs.made_of(each) is MADE for each in found]
    assert kept == [False] * kept.count(False) + [True] * kept.count(True)
    assert 200 < kept.count(True) < many
