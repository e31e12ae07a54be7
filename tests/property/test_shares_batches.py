"""For any writer and any delay: the sums over a tree never exceed the whole, and the tree converges."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.world.shares.share import ShareRequest
from testkit.examples import examples
from testkit.sharestory import CORE, KEYS, Story, assert_exact


@examples(500)
@given(st.integers(0, 2**40))
def test_the_sum_is_never_more_than_the_whole(seed: int) -> None:
    """E09: with several operators, late writes, lost writes and responses, and crashes between any two."""
    story = Story(seed)
    story.run(story.chance.randint(20, 250))
    operator = story.settle()
    assert_exact(story.cluster)
    assert operator.tenant_quota == story.cluster.tenant_quota


@examples(100)
@given(st.integers(0, 2**32))
def test_what_contributed_nodes_add_goes_to_no_other_namespace_and_back(seed: int) -> None:
    """E09, X03: the sum without it never exceeds the quota, also while it comes and goes."""
    story = Story(seed)
    cluster, chance = story.cluster, story.chance
    story.run(chance.randint(0, 40))
    place = chance.choice(list(cluster.namespaces.values()))
    cluster.bound[place.name] = {key: chance.randint(1, 9) for key in KEYS}
    claim = ShareRequest(uid="claim", name="claim fast", parent=CORE, slice="fast")
    added = msgspec.structs.replace(claim, added=cluster.bound[place.name], added_to=(place.name, place.uid))
    cluster.claims["claim"] = added
    story.run(chance.randint(0, 120))
    if chance.random() < 0.5:
        operator = story.settle()
        share = operator.planner.tree.at(place.name)
        if share is not None and share.namespace == place:
            # A tenant whose quota has no keys has no ResourceQuota.
            for key in operator.planner.tree.keys:
                assert cluster.quotas[place.name].hard[key] >= cluster.bound[place.name][key]
        story.operators = [operator]
    if chance.random() < 0.5:
        del cluster.claims["claim"]
    else:
        cluster.claims["claim"] = msgspec.structs.replace(claim, generation=1)
    story.run(chance.randint(0, 120))
    story.settle()
    cluster.bound = {}
    cluster.check()


@examples(100)
@given(st.integers(0, 2**32))
def test_defaults_beside_a_claim_come_to_rest(seed: int) -> None:
    """E09, X03: while namespaces begin and stop to use the nodes of a charged claim."""
    story = Story(seed)
    cluster, chance = story.cluster, story.chance
    story.run(chance.randint(0, 40))
    hard = {key: chance.randint(0, 9) for key in KEYS}
    claim = ShareRequest(uid="claim", name="claim fast", parent=CORE, slice="fast", hard=hard)
    cluster.claims["claim"] = msgspec.structs.replace(claim, created=str(chance.randint(0, 100)))
    for _ in range(chance.randint(0, 4)):
        story.run(chance.randint(0, 40))
        name = chance.choice(sorted(cluster.namespaces))
        place = cluster.namespaces[name]
        cluster.namespaces[name] = msgspec.structs.replace(place, slice=chance.choice(["", "fast"]))
    story.settle()
    cluster.check()
