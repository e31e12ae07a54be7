"""For any network, any delay and two operators: home and peers never hold more than the whole (X03)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.examples import examples
from testkit.remotestory import Broken, Excess, RemoteStory

RUNS = 400
"""The runs that must catch every broken variant, and nothing in the protocol itself."""


def _steps(usual: int) -> int:
    """Return the number of steps of a run: 2,000 in `make test-release`."""
    return 2000 if settings().max_examples > 100 else usual


def _exceeds(seed: int, broken: Broken, steps: int) -> bool:
    try:
        RemoteStory(seed, broken=broken).run(steps)
    except Excess:
        return True
    return False


@examples(100)
@given(st.integers(0, 2**40))
def test_home_and_peers_never_hold_more_than_the_whole(seed: int) -> None:
    """X03: with partitions, lost, late and reordered writes, several operators, and restarts."""
    story = RemoteStory(seed)
    story.run(story.chance.randint(50, 400))
    operator = story.rest()
    cluster, tree = story.cluster, operator.planner.tree
    assert cluster.tenant_quota is not None
    for record in cluster.tenant_quota.remote:
        # At the end, every peer has what its record says, and nothing more is kept for it.
        assert record.held == record.given == {k: v for k, v in cluster.objects[record.key].hard.items() if v}
    for key, wanted in cluster.wanted.items():
        share = next((each for each in tree.claims if (each.parent, each.peer) == key), None)
        record = cluster.record(key)
        given = record.given if record is not None else {}
        wish = {name: value for name, value in wanted.items() if value and name in tree.keys}
        if share is not None and share.blocked is None:
            assert given == wish, f"{key} has {given} of {wish}"
    recorded = {each.key for each in cluster.tenant_quota.remote}
    assert not [key for key, found in cluster.objects.items() if key not in recorded and any(found.hard.values())]


def test_the_protocol_holds_in_seeded_runs() -> None:
    """X03: the sum never exceeds the whole."""
    assert [seed for seed in range(RUNS) if _exceeds(seed, Broken.NOTHING, _steps(300))] == []


@pytest.mark.parametrize("broken", [each for each in Broken if each])
def test_the_same_runs_catch_each_broken_variant(broken: Broken) -> None:
    """A test that finds nothing in a protocol without one of its rules proves nothing about the protocol."""
    assert any(_exceeds(seed, broken, _steps(1000)) for seed in range(RUNS)), broken.value
