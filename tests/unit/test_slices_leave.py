"""Which pods are asked to leave a node, which are deleted, and what marks a node has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.marks import SLICE, SLICE_CLAIM, SLICE_RESERVED
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeSpec, Taint
from tenantry.controllers.slices import nodes, pods
from tenantry.controllers.slices.decision import departures, next_look
from tenantry.controllers.slices.evictiondeadlines import EvictionDeadlines
from tenantry.controllers.slices.pods import PodFacts
from tenantry.engine.request import Verb

OTHER = Taint(key="gpu", effect="NoSchedule", value="a100", time_added="2027-01-01T00:00:00Z")


def _pod(name: str, *, controller: str = "ReplicaSet", deleting: bool = False, slice_: str = "") -> PodFacts:
    return PodFacts("ns", name, f"uid-{name}", 1, "node", slice_, controller, False, deleting)


def _node(*taints: Taint, **labels: str) -> Node:
    meta = ObjectMeta(name="node", resource_version="7", labels=labels, annotations={"theirs": "1"})
    return Node(metadata=meta, spec=NodeSpec(taints=taints))


def _patched(node: Node, patch: dict[str, Any]) -> Node:
    """Return a node as the API server has it after a merge patch."""

    def merged(old: dict[str, str], new: dict[str, str | None]) -> dict[str, str]:
        return {key: value for key, value in {**old, **new}.items() if value is not None}

    meta = msgspec.structs.replace(
        node.metadata,
        labels=merged(node.metadata.labels, patch["metadata"]["labels"]),
        annotations=merged(node.metadata.annotations, patch["metadata"]["annotations"]),
    )
    taints = msgspec.convert(patch["spec"]["taints"] or (), tuple[Taint, ...])
    return Node(metadata=meta, spec=NodeSpec(taints=taints))


def test_pods_are_asked_until_the_grace_period_is_over() -> None:
    """E12: those that nothing makes anew stay to its end, for their people to see."""
    running, alone, going = _pod("a"), _pod("b", controller=""), _pod("c", deleting=True)
    early = departures([running, alone, going], EvictionDeadlines(3.0, 60.0), "why")
    assert [(each.pod, each.write.request.subresource, each.why) for each in early] == [(running, "eviction", "why")]
    assert next_look([running, alone, going], 3.0) == 3.0
    asked = departures([running, alone, going], EvictionDeadlines(0.0, 57.0), {"node": "why"})
    assert {each.write.request.subresource for each in asked} == {"eviction"}
    late = departures([running, alone, going], EvictionDeadlines(-57.0, 0.0), {"node": "why"})
    assert [each.pod for each in late] == [each.pod for each in asked] == [running, alone, going]
    assert {each.write.request.verb for each in late} == {Verb.DELETE}
    assert departures([], EvictionDeadlines(0.0, 0.0), "why") == ()
    assert next_look([], 0.0) is None


def test_a_node_is_marked_bound_and_freed_and_keeps_what_is_others() -> None:
    """E12: taints and annotations of others stay; a second look changes nothing."""
    node = _node(OTHER, disk="ssd")
    reserved = _patched(node, nodes.patch_of(node, "web", bound=False, claim="ns/web/uid"))
    assert reserved.metadata.labels == {"disk": "ssd", SLICE_RESERVED: "web"}
    assert reserved.metadata.annotations == {"theirs": "1", SLICE_CLAIM: "ns/web/uid"}
    assert reserved.spec.taints == (OTHER, Taint(key=SLICE, effect="NoSchedule", value="web"))
    assert not nodes.patch_of(reserved, "web", bound=False, claim="ns/web/uid")
    assert not nodes.is_bound(reserved, "web")
    bound = _patched(reserved, nodes.patch_of(reserved, "web", bound=True, claim=""))
    assert bound.metadata.labels == {"disk": "ssd", SLICE_RESERVED: "web", SLICE: "web"}
    assert {taint.effect for taint in bound.spec.taints if taint.key == SLICE} == {"NoSchedule", "NoExecute"}
    assert nodes.is_bound(bound, "web")
    leaving = _patched(bound, nodes.patch_of(bound, "web", bound=True, claim="", leaving=True))
    assert SLICE not in leaving.metadata.labels
    assert leaving.spec.taints == bound.spec.taints
    freed = _patched(leaving, nodes.freed(leaving))
    assert (freed.metadata.labels, freed.spec.taints) == ({"disk": "ssd"}, (OTHER,))
    assert not nodes.freed(freed)


def test_a_patch_holds_for_one_version_only() -> None:
    """E12: a slice that took the node meanwhile is not overwritten."""
    assert nodes.patch_of(_node(), "web", bound=False, claim="a")["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ({}, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}, False),
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Running"}}, False),
    ],
)
def test_daemon_sets_static_and_finished_pods_are_left(more: dict[str, Any], *, stays: bool) -> None:
    """E12: they are not evicted, and do not count as a disturbance."""
    meta = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "3", **more.get("metadata", {})}
    spec = {"nodeName": "node", "nodeSelector": {SLICE: "web"}}
    pod = pods.observe(msgspec.json.encode({"metadata": meta, "spec": spec, "status": more.get("status", {})}))
    assert pod.stays is stays
    assert list(pods.leaving_of(pod)) == ([] if stays else ["node"])
    assert pod.slice == "web"


@pytest.mark.parametrize(
    ("namespace", "priority", "essential"),
    [("kube-system", 0, True), ("other", 2_000_000_000, True), ("other", 1_000_000_000, False), ("other", None, False)],
)
def test_pods_of_the_cluster_itself_are_known(namespace: str, priority: int | None, *, essential: bool) -> None:
    """E12: by their namespace or their priority."""
    meta = {"name": "p", "namespace": namespace, "uid": "u", "resourceVersion": "3"}
    pod = pods.observe(msgspec.json.encode({"metadata": meta, "spec": {"nodeName": "node", "priority": priority}}))
    assert pod.essential is essential
    assert list(pods.essential_of(pod)) == (["node"] if essential else [])
