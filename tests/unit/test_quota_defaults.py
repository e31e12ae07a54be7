"""What a child gets of a key that it does not name."""

from __future__ import annotations

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
    again = Tree(dict(made.root.granted))
    for name in (CORE, "a", "b"):
        share = made.at(name)
        assert share is not None
        again.put_quota(name, held(share.own))
        assert share.namespace is not None
        again.put_namespace(share.namespace)
    for name in "ab":
        again.put_request(ShareRequest(uid=f"uid-{name}", name=name, parent=CORE, created="1"))
    Division(again).start(())
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
