"""How a quota is divided over a tree: who gets what, and how much work a change is."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.world.shares.amounts import Amounts, ObservedTenantQuota, ShareQuota
from tenantry.world.shares.batches import BatchPlanner, CreateQuota, UpdateQuota, UpdateTenantQuota
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import ShareRequest, TreeNamespace
from tenantry.world.shares.tree import Tree

CORE = "acme"


def tree(whole: Amounts, *children: ShareRequest, reclaim: bool = False) -> Tree:
    """Return a tree whose children have a namespace each, and a ResourceQuota of what they ask for."""
    made = Tree(whole, reclaim=reclaim)
    made.put_namespace(TreeNamespace(name=CORE, uid="core"))
    made.put_quota(CORE, held(whole))
    for child in children:
        made.put_request(child)
        made.put_namespace(TreeNamespace(name=child.name, uid=f"ns-{child.name}", key=child.uid, parent=child.parent))
        made.put_quota(child.name, held(child.hard))
    Division(made).start(())
    Division(made).divide()
    return made


def held(hard: Amounts, *, version: int = 1, used: Amounts | None = None) -> ShareQuota:
    nothing = dict.fromkeys(hard, 0)
    return ShareQuota(uid="q", version=version, hard=hard, in_force=hard, used={**nothing, **(used or {})})


def request(name: str, cpu: int, parent: str = CORE, created: str = "1", **more: int) -> ShareRequest:
    return ShareRequest(uid=f"uid-{name}", name=name, parent=parent, created=created, hard={"cpu": cpu, **more})


def own(made: Tree, *names: str) -> list[int]:
    Division(made).divide()
    found = [made.at(name) for name in names]
    return [share.own["cpu"] if share is not None else -1 for share in found]


def test_a_change_of_one_costs_nothing_for_the_others() -> None:
    """E09: of ten thousand children, only the one that changes and its parent are looked at."""
    many = [request(f"c{number}", 1) for number in range(10_000)]
    made = tree({"cpu": 20_000}, *many)
    assert made.differing == {CORE}
    made.stirred = set()
    made.put_request(request("c77", 3))
    Division(made).divide()
    assert {share.key for share in made.stirred} == {"", "uid-c77"}
    assert made.differing == {CORE, "c77"}
    made.stirred = set()
    made.put_quota("c99", held({"cpu": 1}, version=2, used={"cpu": 1}))
    Division(made).divide()
    assert {share.key for share in made.stirred} == {"", "uid-c99"}


def test_the_oldest_is_served_first_and_all_of_it_or_nothing() -> None:
    """E09: who asks for more than there is does not get a part."""
    made = tree({"cpu": 10})
    for child in (request("late", 4, created="3"), request("big", 7, created="1"), request("next", 3, created="2")):
        made.put_request(child)
    Division(made).divide()
    granted = {share.name: share.granted["cpu"] for share in made.shares.values() if share.request is not None}
    assert granted == {"big": 7, "next": 3, "late": 0}
    late = made.shares["uid-late"].blocked
    assert late is not None
    assert late.reason == reasons.QUOTA_INSUFFICIENT


def test_children_that_change_places_need_no_order() -> None:
    """E09: what one gives up goes to the other, also when the one that grows is the older."""
    made = tree({"cpu": 10, "pods": 10}, request("a", 6, pods=4), request("b", 4, pods=6))
    made.put_request(request("a", 4, pods=6))
    made.put_request(request("b", 6, pods=4))
    assert own(made, "a", "b", CORE) == [4, 6, 0]
    assert all(share.blocked is None for share in made.shares.values())


def test_use_beyond_a_share_belongs_to_no_namespace() -> None:
    """E10: no namespace gets it until it is free."""
    made = tree({"cpu": 10}, request("a", 6))
    made.put_quota("a", held({"cpu": 6}, version=2, used={"cpu": 5}))
    made.put_request(request("a", 2))
    assert own(made, "a", CORE) == [2, 5]
    made.put_quota("a", held({"cpu": 2}, version=3, used={"cpu": 1}))
    assert own(made, "a", CORE) == [2, 8]


def test_a_deleted_child_keeps_its_share_until_its_namespace_is_gone() -> None:
    """E09: its pods may run for a while after its ResourceQuota is gone."""
    made = tree({"cpu": 10}, request("a", 6))
    made.put_namespace(TreeNamespace(name="a", uid="ns-a", key="uid-a", parent=CORE, terminating=True))
    made.drop_quota("a")
    made.drop_request("uid-a")
    assert own(made, CORE) == [4]
    made.drop_namespace("a")
    assert own(made, CORE) == [10]


def test_a_terminating_namespace_without_quota_keeps_its_share_through_a_restart() -> None:
    """E09: a finalizer holds its claims; the operator that saw its ResourceQuota is gone, and its status is not."""
    terminating = TreeNamespace(name="a", uid="ns-a", key="uid-a", parent=CORE, terminating=True)

    def restarted(**assigned: dict[str, int]) -> list[int]:
        made = Tree({"cpu": 10})
        made.put_quota(CORE, held({"cpu": 4}))
        made.put_namespace(TreeNamespace(name=CORE, uid="ns-core"))
        made.put_namespace(terminating)
        made.put_request(msgspec.structs.replace(request("a", 6), deleting=True))
        Division(made).start((), None, assigned)
        return own(made, CORE)

    assert restarted(a={"cpu": 6}) == [4]
    assert restarted(a={"cpu": 3}) == [7], "the status counts, and not what its Subnamespace has asked for since"
    assert restarted() == [4], "a status without the namespace: what its Subnamespace asks for"


@pytest.mark.parametrize(("whole", "expected"), [(9, [2, 3, 4]), (6, [2, 0, 4]), (4, [0, 0, 4]), (3, [0, 3, 0])])
def test_reclaim_takes_whole_subtrees_the_youngest_first(whole: int, expected: list[int]) -> None:
    """E10: `onShortage: Reclaim`."""
    children = (request("old", 4, created="1"), request("new", 3, created="2"))
    made = tree({"cpu": whole}, *children, reclaim=True)
    assert own(made, CORE, "new", "old") == expected


def test_a_share_grows_only_in_the_namespace_that_is_meant() -> None:
    """E09: what comes late must not grow the quota of a later namespace of the same name: it is checked first."""
    made = tree({"cpu": 10})
    made.put_request(request("a", 4))
    made.put_namespace(TreeNamespace(name="a", uid="first", key="uid-a", parent=CORE))
    made.put_quota("a", held({"cpu": 0}))
    made.put_quota(CORE, held({"cpu": 10}, version=2))
    planner = BatchPlanner(made, 0)
    tenant_quota = ObservedTenantQuota(version=50, hard={"cpu": 10}, number=0)
    begin = planner.steps(tenant_quota)[0]
    assert isinstance(begin, UpdateTenantQuota)
    planner.number = begin.number
    tenant_quota = ObservedTenantQuota(version=51, hard={"cpu": 10}, number=50, targets=begin.targets)
    (shrink,) = planner.steps(tenant_quota)
    assert isinstance(shrink, UpdateQuota)
    assert (shrink.namespace, shrink.hard, shrink.grows) == (CORE, {"cpu": 6}, False)
    made.put_quota(
        CORE, ShareQuota(uid="q", version=52, hard={"cpu": 6}, in_force={"cpu": 6}, used={"cpu": 0}, number=50)
    )
    (grow,) = planner.steps(tenant_quota)
    assert isinstance(grow, UpdateQuota)
    assert (grow.namespace, grow.uid, grow.hard, grow.grows) == ("a", "first", {"cpu": 4}, True)


def test_a_quota_is_made_with_nothing_in_it() -> None:
    """E09: however late such a write is, it gives no namespace a share."""
    made = tree({"cpu": 10})
    made.put_request(request("a", 4))
    made.put_namespace(TreeNamespace(name="a", uid="first", key="uid-a", parent=CORE))
    (make,) = BatchPlanner(made, 0).steps(ObservedTenantQuota(version=50, hard={"cpu": 10}, number=7))
    assert make == CreateQuota("a", {"cpu": 0}, 7)


def test_the_worked_example_of_the_division() -> None:
    """E09: the numbers in the docstring of `tenantry.world.shares.division`."""
    made = tree({"cpu": 10})
    made.put_quota(CORE, held({"cpu": 10}, version=2, used={"cpu": 2}))
    teams = [("team-a", 4, CORE), ("team-b", 3, CORE), ("team-c", 3, CORE), ("team-a1", 3, "team-a")]
    for number, (name, cpu, parent) in enumerate(teams):
        made.put_request(request(name, cpu, parent, created=str(number)))
        made.put_namespace(TreeNamespace(name=name, uid=f"ns-{name}", key=f"uid-{name}", parent=parent))
        made.put_quota(name, held({"cpu": 0}))
    everything = (CORE, "team-a", "team-a1", "team-b", "team-c")
    assert own(made, *everything) == [3, 1, 3, 3, 0]
    blocked = made.shares["uid-team-c"].blocked
    assert blocked is not None
    assert blocked.message.startswith("cpu: 3m requested, 1m available: namespace 'acme' uses 2m itself")
    made.put_request(request("team-b", 1, created="1"))
    assert own(made, *everything) == [2, 1, 3, 1, 3]


def test_the_worked_example_of_the_batches() -> None:
    """E09: the numbers in the docstring of `tenantry.world.shares.batches`."""
    made = tree({"cpu": 10})
    made.put_request(request("team-a", 4))
    made.put_namespace(TreeNamespace(name="team-a", uid="a", key="uid-team-a", parent=CORE))
    made.put_quota("team-a", held({"cpu": 0}))
    planner = BatchPlanner(made, 0)
    (ahead,) = planner.steps(ObservedTenantQuota(version=50, hard={"cpu": 10}, number=0))
    assert isinstance(ahead, UpdateTenantQuota)
    assert ahead.number == 50
    assert {target.namespace: target.hard["cpu"] for target in ahead.targets} == {CORE: 6, "team-a": 4}
