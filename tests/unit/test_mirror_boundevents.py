"""Events of lower pods at upper ones that are bound before they are mirrored."""

from __future__ import annotations

from tenantry.mirror import eventmirror
from tenantry.mirror.things import PODS
from testkit.mirroredpods import BoundPods, bound_pod, running


def test_events_of_a_lower_pod_are_those_of_its_upper_one() -> None:
    """L06: with the node and the namespace of the upper side."""
    pair = running()
    pair.happen(reason="Scheduled", message="Successfully assigned shop-below/web to rack-7", type="Normal")
    pair.settle()
    (found,) = pair.events()
    assert found["involvedObject"]["uid"] == pair.pod()["metadata"]["uid"]
    assert (found["reason"], found["message"]) == ("Scheduled", "Successfully assigned shop/web to rack-7")


def test_a_lower_pod_has_events_of_its_own_upper_pod_alone() -> None:
    """L06: a user of the lower side who writes marks names no pod of another namespace."""
    pair = running()
    pair.put(bound_pod("web", "stock"))
    pair.settle()
    uid = pair.upper.get(PODS, "stock/web")["metadata"]["uid"]
    marks = {"pair.example/namespace": "stock", "pair.example/name": "web", "pair.example/uid": uid}
    meta = {
        "name": "liar",
        "namespace": "shop-below",
        "labels": {"pair.example/owner": "u-upper"},
        "annotations": marks,
    }
    pair.lower.put_in(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}})
    pair.happen("liar")
    pair.settle()
    assert pair.events("stock") == []
    assert pair.events("shop") == []


def test_events_of_one_pod_that_are_too_many_are_dropped() -> None:
    """A broken lower side must not fill the etcd of the upper one."""
    pair = running()
    for _ in range(eventmirror.POD_BURST + 10):
        pair.happen()
    pair.settle()
    assert len(pair.events()) == eventmirror.POD_BURST


def test_events_of_all_pods_wait_for_their_turn() -> None:
    pair = BoundPods()
    names = [f"p{number}" for number in range(eventmirror.BURST // eventmirror.POD_BURST + 1)]
    for name in names:
        pair.put(bound_pod(name))
    pair.settle()
    for name in names:
        for _ in range(eventmirror.POD_BURST):
            pair.happen(name)
    pair.settle()
    assert len(pair.events()) == eventmirror.BURST
    pair.settle(60.0)
    assert len(pair.events()) == len(names) * eventmirror.POD_BURST
