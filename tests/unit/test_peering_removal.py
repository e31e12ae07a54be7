"""When a deleted PeerCluster is removed without its peer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.controllers.offloading.leaving import PATIENCE_SECONDS
from tenantry.controllers.peering.removal import (
    GIVE_UP_SECONDS,
    MOST_SECONDS,
    MOST_SECONDS_AT_ONCE,
    Removal,
    RemovalInputs,
    decide,
    leftovers,
)

WAITING = RemovalInputs(left=("shop",), silence=0.0, deleting=0.0)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, Removal.WAIT),
        ({"left": ()}, Removal.FINISH),
        ({"left": (), "silence": GIVE_UP_SECONDS, "deleting": MOST_SECONDS}, Removal.FINISH),
        ({"silence": GIVE_UP_SECONDS - 1}, Removal.WAIT),
        ({"silence": GIVE_UP_SECONDS}, Removal.GIVE_UP),
        # The peer answers, and its operator is stopped, or it never ends them.
        ({"deleting": MOST_SECONDS - 1}, Removal.WAIT),
        ({"deleting": MOST_SECONDS}, Removal.GIVE_UP),
        ({"deleting": MOST_SECONDS_AT_ONCE - 1, "at_once": True}, Removal.WAIT),
        ({"deleting": MOST_SECONDS_AT_ONCE, "at_once": True}, Removal.GIVE_UP),
    ],
)
def test_a_peer_is_given_up_when_it_is_silent_or_does_not_end_what_it_has(
    changed: dict[str, Any], wanted: Removal
) -> None:
    assert decide(replace(WAITING, **changed)) is wanted


def test_pods_have_the_time_of_their_budgets_before_a_peer_is_given_up() -> None:
    assert MOST_SECONDS > PATIENCE_SECONDS


def test_the_namespaces_that_may_be_left_are_named_with_the_reason() -> None:
    silent = RemovalInputs(left=("d", "c", "b", "a"), silence=GIVE_UP_SECONDS, deleting=20.0)
    assert leftovers(silent, "home") == (
        "namespaces may be left at the peer, with pods that run: a, b, c and 1 more: nothing could be written at the"
        " peer; delete PeerCluster 'home' there"
    )
    overdue = RemovalInputs(left=("a",), silence=0.0, deleting=MOST_SECONDS)
    assert "the peer did not end them" in leftovers(overdue, "home")
