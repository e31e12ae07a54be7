"""What a child gets of a key that it does not name."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.world.shares.amounts import Amounts, ShareQuota, read, total
from tenantry.world.shares.defaults import NEEDED, default, idle
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import ShareRequest, TreeNamespace
from tenantry.world.shares.tree import Tree

CORE = "acme"


def held(hard: Amounts, *, version: int = 1, used: Amounts | None = None) -> ShareQuota:
    return ShareQuota(uid="q", version=version, hard=hard, in_force=hard, used=used or dict.fromkeys(hard, 0))


def put(made: Tree, name: str, parent: str = CORE, created: str = "1", **hard: str | int) -> None:
    """Create a Subnamespace with its namespace."""
    asked = read({key.replace("_", "."): value for key, value in hard.items()})
    made.put_request(ShareRequest(uid=f"uid-{name}", name=name, parent=parent, created=created, hard=asked))
    if made.at(name) is None:
        made.put_namespace(TreeNamespace(name=name, uid=f"ns-{name}", key=f"uid-{name}", parent=parent))
    Division(made).divide()


def empty(**whole: str | int) -> Tree:
    made = Tree(read({key.replace("_", "."): value for key, value in whole.items()}))
    made.put_namespace(TreeNamespace(name=CORE, uid="core"))
    made.put_quota(CORE, held(dict(made.root.granted)))
    Division(made).start(())
    Division(made).divide()
    return made


def own(made: Tree, key: str, *names: str) -> list[int]:
    Division(made).divide()
    found = [made.at(name) for name in names]
    assert total(share.own for share in made.shares.values()) == made.root.granted
    return [share.own[key] // 1000 if share is not None else -1 for share in found]


def restarted(made: Tree, whole: Amounts) -> Tree:
    """Return a new tree that was read from the ResourceQuotas of another one."""
    again = Tree(whole)
    for share in made.shares.values():
        assert share.namespace is not None
        again.put_quota(share.namespace.name, held(share.own))
        again.put_namespace(share.namespace)
    for share in made.shares.values():
        if share.request is not None:
            named = {key: value for key, value in share.request.hard.items() if key not in share.request.unnamed}
            again.put_request(msgspec.structs.replace(share.request, hard=named, unnamed=()))
    Division(again).start(())
    return again


def test_a_child_gets_a_quarter_of_what_is_free_of_a_key_that_it_does_not_name() -> None:
    """E09: the command of the README runs something."""
    made = empty(requests_cpu=4, requests_memory="8Gi", pods=50)
    put(made, "web", requests_cpu=2, requests_memory="4Gi")
    put(made, "shop", created="2")
    assert own(made, "pods", "web", "shop", CORE) == [12, 9, 29]
    share = made.at("shop")
    assert share is not None
    assert share.own == read({"pods": 9, "requests.cpu": "500m", "requests.memory": "1Gi"})


def test_a_default_does_not_move_when_other_children_come_and_go() -> None:
    made = empty(pods=50)
    put(made, "a", created="1")
    put(made, "b", created="2")
    made.drop_request("uid-a")
    made.drop_namespace("a")
    put(made, "c", created="3")
    assert own(made, "pods", "b", "c", CORE) == [9, 10, 31]


def test_a_default_is_the_same_after_a_restart() -> None:
    made = empty(pods=50)
    put(made, "a", created="1")
    put(made, "b", created="2")
    again = restarted(made, dict(made.root.granted))
    assert own(again, "pods", "a", "b", CORE) == [12, 9, 29]


def test_children_of_an_earlier_version_with_nothing_get_a_default() -> None:
    """E09: an upgrade; the use of the parent is never taken away."""
    made = empty(pods=10)
    made.put_quota(CORE, held({"pods": 10_000}, version=2, used={"pods": 6_000}))
    for number in range(6):
        put(made, f"c{number}", created=str(number))
    assert own(made, "pods", *(f"c{number}" for number in range(6)), CORE) == [1, 1, 1, 0, 0, 0, 7]
    made.put_quota(CORE, held({"pods": 10_000}, version=3, used={"pods": 5_000}))
    assert own(made, "pods", "c3", "c4", CORE) == [1, 0, 6]


def test_a_default_becomes_a_request_and_a_default_again() -> None:
    made = empty(pods=50)
    put(made, "a")
    put(made, "a", pods=30)
    assert own(made, "pods", "a", CORE) == [30, 20]
    put(made, "a", pods=0)
    assert own(made, "pods", "a", CORE) == [0, 50]
    put(made, "a")
    assert own(made, "pods", "a", CORE) == [12, 38]


def test_a_request_is_served_before_any_default() -> None:
    made = empty(pods=10)
    for name, created in (("a", "1"), ("b", "2")):
        hard = {"pods": 10_000} if name == "b" else {}
        made.put_request(ShareRequest(uid=f"uid-{name}", name=name, parent=CORE, created=created, hard=hard))
        made.put_namespace(TreeNamespace(name=name, uid=f"ns-{name}", key=f"uid-{name}", parent=CORE))
    assert own(made, "pods", "a", "b", CORE) == [0, 10, 0]
    made.drop_request("uid-b")
    made.drop_namespace("b")
    assert own(made, "pods", "a", CORE) == [2, 8]


def test_a_request_gets_what_a_default_holds_and_nothing_uses() -> None:
    """E09: whether the child with the default came before the request or with it."""
    made = empty(pods=50)
    put(made, "a", created="1")
    put(made, "b", created="2", pods=45)
    assert own(made, "pods", "a", "b", CORE) == [5, 45, 0]
    put(made, "b", created="2", pods=50)
    assert own(made, "pods", "a", "b", CORE) == [0, 50, 0]
    put(made, "b", created="2", pods=2)
    assert own(made, "pods", "a", "b", CORE) == [12, 2, 36]


def test_defaults_are_taken_back_from_the_youngest_first_and_leave_it_one_pod() -> None:
    made = empty(pods=50)
    for number, name in enumerate("abc"):
        put(made, name, created=str(number))
    assert own(made, "pods", *"abc", CORE) == [12, 9, 7, 22]
    put(made, "d", created="9", pods=30)
    assert own(made, "pods", *"abcd", CORE) == [12, 7, 1, 30, 0]


def test_what_a_child_uses_of_its_default_is_not_taken_back() -> None:
    made = empty(pods=50)
    put(made, "a", created="1")
    made.put_quota("a", held(read({"pods": 12}), version=5, used=read({"pods": 8})))
    put(made, "b", created="2", pods=45)
    b = made.at("b")
    assert b is not None
    assert b.blocked is not None
    assert b.blocked.message.startswith("pods: 45 requested, 42 available")
    assert own(made, "pods", "a", "b", CORE) == [12, 0, 38]
    made.put_quota("a", held(read({"pods": 12}), version=6, used=read({"pods": 5})))
    assert own(made, "pods", "a", "b", CORE) == [5, 45, 0]


def test_defaults_below_a_default_are_taken_back_with_it() -> None:
    made = empty(pods=50)
    put(made, "a", created="1")
    put(made, "a1", "a", created="2")
    assert own(made, "pods", "a", "a1", CORE) == [9, 3, 38]
    put(made, "b", created="3", pods=49)
    assert own(made, "pods", "a", "a1", "b", CORE) == [0, 1, 49, 0]


def test_nothing_is_taken_back_for_a_request_that_does_not_fit_all_the_same() -> None:
    made = empty(requests_cpu=4, pods=50)
    put(made, "a", created="1")
    put(made, "b", created="2", pods=45, requests_cpu=9)
    assert own(made, "pods", "a", "b", CORE) == [12, 0, 38]


def test_a_lowered_parent_takes_defaults_back_before_it_is_short() -> None:
    made = empty(pods=50)
    put(made, "p", pods=20)
    put(made, "c", "p", created="2")
    assert own(made, "pods", "p", "c") == [15, 5]
    put(made, "p", pods=2)
    share = made.at("p")
    assert share is not None
    assert share.blocked is None
    assert own(made, "pods", "p", "c", CORE) == [1, 1, 48]


def test_a_lowered_tenant_takes_defaults_back_before_it_is_short() -> None:
    """E09: the core namespace keeps one pod."""
    made = empty(pods=50)
    for number, name in enumerate("abcd"):
        put(made, name, created=str(number))
    assert own(made, "pods", *"abcd", CORE) == [12, 9, 7, 5, 17]
    again = restarted(made, read({"pods": 20}))
    assert own(again, "pods", *"abcd", CORE) == [12, 5, 1, 1, 1]
    assert again.root.blocked is None


def test_a_default_of_the_least_grows_when_the_parent_has_more() -> None:
    made = empty(pods=50)
    put(made, "b", created="1", pods=48)
    put(made, "a", created="2")
    assert own(made, "pods", "a", CORE) == [1, 1]
    put(made, "b", created="1", pods=1)
    assert own(made, "pods", "a", CORE) == [12, 37]


def test_a_child_that_waits_for_a_request_gets_no_namespace_for_its_default() -> None:
    made = empty(requests_cpu=4, pods=50)
    made.put_request(ShareRequest(uid="uid-a", name="a", parent=CORE, created="1", hard=read({"requests.cpu": 9})))
    Division(made).divide()
    waits = made.shares["uid-a"]
    assert waits.blocked is not None
    assert waits.blocked.reason == reasons.QUOTA_INSUFFICIENT
    assert own(made, "pods", CORE) == [50]


@pytest.mark.parametrize(
    ("key", "free", "expected"),
    [
        ("pods", "1", "0"),
        ("pods", "2", "1"),
        ("pods", "0", "0"),
        ("requests.cpu", "4", "1"),
        ("requests.cpu", "200m", "100m"),
        ("requests.cpu", "100m", "50m"),
        ("requests.memory", "10G", "2384Mi"),
        ("limits.memory", "600Mi", "256Mi"),
        ("requests.ephemeral-storage", "1Gi", "256Mi"),
        ("requests.nvidia.com/gpu", "3", "0"),
        ("requests.nvidia.com/gpu", "8", "2"),
        ("count/deployments.apps", "3", "0"),
        ("count/configmaps", "2", "1"),
    ],
)
def test_the_default_of_each_key(key: str, free: str, expected: str) -> None:
    amounts = read({"free": free, "expected": expected})
    assert default(key, amounts["free"]) == amounts["expected"]
    assert default(key, -1) == 0


def test_what_cannot_run_a_pod_names_the_keys() -> None:
    granted = read({"pods": 0, "requests.cpu": 0, "requests.storage": 0, "requests.memory": 1})
    found = idle(granted, ["pods"], CORE)
    assert found is not None
    assert found.reason == reasons.NO_POD_FITS
    assert found.message == (
        "no pod can start: pods is 0 in spec.quota.hard: raise it, or take it out for a default; requests.cpu is 0,"
        " because namespace 'acme' has none to spare: free some, or raise its quota"
    )
    assert idle(dict.fromkeys(NEEDED, 1), [], CORE) is None
