"""The life of slices of parts of nodes, in a world without I/O."""

from __future__ import annotations

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.controllers.slices.pods import Pod
from testkit.sliceworld import PART, SliceWorld


def parts(there: SliceWorld, node: str) -> set[str]:
    """Return the slices that a node's resources name."""
    found = there.world.get(Node.resource, node)["status"]["allocatable"]
    return {key.partition(".parts.")[0] for key in found if ".parts." in key}


def test_two_claims_share_a_node_and_each_part_ends_with_its_claim() -> None:
    """E20: the node is set aside, advertises both parts, and is as before at the end."""
    there = SliceWorld()
    there.node("n-1", shared=True)
    there.settle()
    first, second = there.claim("first", **PART), there.claim("second", **PART)
    there.settle()
    assert parts(there, "n-1") == {first, second}
    assert there.state("first")[0] == "Bound"
    assert there.label(key="tenantry.dev/part") in {first, second}
    for name in ("first", "second"):
        there.world.delete(SliceClaim.resource, f"acme/{name}")
    there.settle()
    assert parts(there, "n-1") == set()
    assert there.marks("n-1") == {"tenantry.dev/parts": "true", "taints": ["NoSchedule"]}
    assert (there.slices, there.label(key="tenantry.dev/part")) == ([], "")


def test_a_part_that_does_not_fit_waits_and_is_given_when_a_node_comes() -> None:
    """E20: what others have on the node counts."""
    there = SliceWorld()
    there.node("n-1", shared=True, cpu="1")
    used = there.pod("used", "n-1")
    there.world.patch(Pod.resource, used, {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]}})
    there.settle()
    name = there.claim(**PART)
    there.settle(20)
    assert there.state() == ("Pending", "NodesInsufficient")
    assert parts(there, "n-1") == set()
    there.node("n-2", shared=True)
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    assert parts(there, "n-2") == {name}


def test_pods_of_a_part_leave_before_it_ends_and_those_of_others_stay() -> None:
    """E20: a pod is in the part that its node selector names."""
    there = SliceWorld()
    there.node("n-1", shared=True)
    there.settle()
    name = there.claim(gracePeriodSeconds=30, **PART)
    there.settle()
    own = there.pod("own", "n-1", namespace="acme", selector=f"{name}.parts.tenantry.dev/open")
    other = there.pod("other", "n-1")
    there.world.protected.add(own)
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle(10)
    assert there.has(Pod.resource, own)
    assert parts(there, "n-1") == {name}
    there.settle()
    assert not there.has(Pod.resource, own)
    assert there.has(Pod.resource, other)
    assert parts(there, "n-1") == set()


def test_what_a_kubelet_resets_is_put_back() -> None:
    """E20, E09: parts and bandwidth among the node's resources."""
    there = SliceWorld()
    there.node("n-1", shared=True)
    there.settle()
    name = there.claim(**PART)
    there.settle()
    resources = there.world.get(Node.resource, "n-1")["status"]["capacity"]
    there.world.patch(Node.resource, "n-1", {"status": {"capacity": dict.fromkeys(resources, "0")}})
    there.settle()
    assert there.world.get(Node.resource, "n-1")["status"]["capacity"][f"{name}.parts.tenantry.dev/cpu-milli"] == "1000"


def test_a_part_is_set_aside_until_a_namespace_uses_the_claim() -> None:
    """E20: no namespace is labelled."""
    there = SliceWorld()
    there.node("n-1", shared=True)
    there.settle()
    there.claim(**{**PART, "users": "Subnamespaces"})
    there.settle()
    assert there.state() == ("Reserved", "NodesReserved")
    assert there.label(key="tenantry.dev/part") == ""
