"""H04, X03: nodes and quota are conserved while a cluster grows, shrinks, sleeps, wakes and ends in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import ClusterSleep, DedicatedClusterSpec, NodePool, SleepingNodes
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.slice import slice_name
from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.controllers.dedicatedcluster import desired
from testkit.clusterworld import ClusterWorld

HOSTS = 12
Step = tuple[str, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["nodes", "pool", "sleep", "wake", "step", "step", "join", "return", "follow"]),
        st.integers(0, 4),
    ),
    max_size=25,
)
"""What users and other controllers do, and how many nodes are meant."""


class Life:
    """A cluster that releases its nodes while it sleeps, and what happens to it."""

    def __init__(self) -> None:
        released = ClusterSleep(nodes=SleepingNodes.RELEASE)
        self.there = ClusterWorld(DedicatedClusterSpec(nodes=1, sleep=released), hosts=HOSTS)
        self._requests = 0

    def do(self, what: str, count: int) -> None:
        """Let one thing happen."""
        there = self.there
        match what:
            case "nodes":
                there.change(replace(there.found.spec, nodes=count))
            case "pool":
                pools = (NodePool(name="gpu", count=count),) if count else ()
                there.change(replace(there.found.spec, pools=pools))
            case "sleep" | "wake":
                self._requests += 1
                phase = PlanePhase.ASLEEP if what == "sleep" else PlanePhase.AWAKE
                there.note(REQUESTED_PHASE, f"{phase} {self._requests}")
            case "join":
                there.join()
            case "return":
                there.hand_back()
            case "follow":
                self.follow()
            case _:
                there.step()
        self.check()

    def follow(self) -> None:
        """Let the control plane carry out its request, as far as it has one."""
        plane = self.there.plane
        if plane is None:
            return
        asked = plane.metadata.annotations.get(REQUESTED_PHASE, "")
        is_new = asked not in ("", plane.status.handled_request)
        before = plane.status.phase if plane.status.kubeconfig_secret else PlanePhase.AWAKE
        phase = PlanePhase(asked.partition(" ")[0]) if is_new else before
        status = replace(plane.status, phase=phase, kubeconfig_secret="s", handled_request=asked)
        self.there.plane = replace(plane, status=status)

    def rest(self) -> None:
        """Let everything come to rest, the control plane included."""
        for _ in range(4):
            self.follow()
            self.there.settle()
        self.check()

    def check(self) -> None:
        """Check that each node has one owner, and that each node that serves the cluster is charged."""
        there = self.there
        granted = [node for each in there.claims.values() for node in each.status.nodes]
        assert len(granted) == len({*granted}), "a node is in two claims"
        charged = {slice_name(each.metadata.name, each.metadata.uid): each for each in there.claims.values()}
        for node, handover in there.handovers.items():
            claim = charged.get(handover.spec.slice)
            assert claim is not None, f"{node} serves the cluster without a claim"
            assert node in claim.status.nodes, f"{node} serves the cluster and is not charged"
        for claim in there.claims.values():
            own = slice_name(claim.metadata.name, claim.metadata.uid)
            serving = [each for each in there.handovers.values() if each.spec.slice == own]
            assert claim.spec.count >= len(serving)


@given(steps=STEPS)
def test_every_node_that_serves_is_charged_and_all_is_given_back_in_the_end(steps: list[Step]) -> None:
    """H04: at each step, whatever comes first; at rest, a second plan is empty; after the end, nothing is left."""
    life = Life()
    for what, count in steps:
        life.do(what, count)
    life.rest()
    there = life.there
    assert desired.plan(there.inputs()).is_empty
    is_asleep = there.plane is not None and there.plane.status.phase is PlanePhase.ASLEEP
    wanted = 0 if is_asleep else there.found.spec.nodes + sum(each.count for each in there.found.spec.pools)
    assert len(there.handovers) == wanted
    assert sum(len(each.status.nodes) for each in there.claims.values()) == wanted
    there.delete()
    there.settle()
    assert (there.cluster, there.plane, there.claims, there.handovers) == (None, None, {}, {})
