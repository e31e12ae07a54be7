"""The life of slices of whole nodes: from any claim to its end, in a world without I/O."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.controllers.slices.pods import Pod
from testkit.sliceworld import SliceWorld

FREE: dict[str, object] = {"taints": []}


def bound(name: str) -> dict[str, object]:
    """Return the marks of a node that is a slice's alone."""
    return {
        "tenantry.dev/slice": name,
        "tenantry.dev/slice-reserved": name,
        "taints": ["NoExecute", "NoSchedule"],
    }


def test_a_claim_gets_nodes_alone_and_gives_them_back_when_it_is_deleted() -> None:
    """E12: pods of others are evicted, namespaces are bound, and at the end nothing is left."""
    there = SliceWorld()
    there.node("n-1")
    there.node("n-2")
    other = there.pod("other", "n-1")
    name = there.claim(count=2)
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    assert there.marks("n-1") == there.marks("n-2") == bound(name)
    assert there.label() == name
    assert there.status()["namespaces"] == ["acme"]
    assert not there.has(Pod.resource, other)
    assert any(key == other and reason == "PodsLeaving" for key, _, reason, _ in there.cluster.said)
    own = there.own_pod("own", "n-1", name)
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle()
    assert not there.has(Pod.resource, own)
    assert there.marks("n-1") == there.marks("n-2") == FREE
    assert (there.slices, there.label()) == ([], "")


def test_a_node_is_set_aside_until_a_namespace_uses_the_claim() -> None:
    """E12: without users, pods of others stay."""
    there = SliceWorld()
    there.node("n-1")
    other = there.pod("other", "n-1")
    name = there.claim(users="Subnamespaces")
    there.settle()
    assert there.state() == ("Reserved", "NodesReserved")
    assert there.marks("n-1") == {"tenantry.dev/slice-reserved": name, "taints": ["NoSchedule"]}
    assert there.has(Pod.resource, other)


def test_pods_stay_through_the_grace_period_and_with_a_budget_until_the_deadline() -> None:
    """E12: a disruption budget is kept until the administrator's deadline, then pods are deleted."""
    there = SliceWorld(disruptionBudgetSeconds=200)
    there.node("n-1")
    guarded, alone = there.pod("guarded", "n-1"), there.pod("alone", "n-1", alone=True)
    there.world.protected.add(guarded)
    there.claim(gracePeriodSeconds=60)
    there.settle(50)
    assert there.state() == ("Draining", "PodsLeaving")
    assert there.has(Pod.resource, guarded)
    assert there.has(Pod.resource, alone)
    there.settle(100)
    assert there.has(Pod.resource, guarded)
    assert not there.has(Pod.resource, alone)
    there.settle(100)
    assert there.state() == ("Bound", "NodesBound")
    assert not there.has(Pod.resource, guarded)


def test_pods_get_the_shortest_grace_period_that_an_administrator_allows() -> None:
    """E12: also for a claim that asked for less before the minimum was set."""
    there = SliceWorld()
    there.node("n-1")
    alone = there.pod("alone", "n-1", alone=True)
    there.claim(gracePeriodSeconds=0)
    there.settle(50)
    assert there.has(Pod.resource, alone)
    there.settle(30)
    assert there.state() == ("Bound", "NodesBound")


@pytest.mark.parametrize("spec", [{}, {"mode": "Manual"}])
def test_a_node_with_pods_of_the_cluster_itself_is_not_taken(spec: dict[str, object]) -> None:
    """E12: neither for a claim that an administrator approves; DaemonSets and static pods do not count."""
    there = SliceWorld()
    there.node("n-1")
    dns = there.pod("dns", "n-1", namespace="kube-system")
    name = there.claim(**spec)
    if spec:
        there.approve(name)
    there.settle()
    assert there.state() == ("Pending", "NodesInsufficient")
    assert "1 runs pods of the cluster itself" in there.message()
    assert there.marks("n-1") == FREE
    there.world.delete(Pod.resource, dns)
    there.settle()
    assert there.state() == ("Bound", "NodesBound")


def test_a_node_is_given_back_if_a_pod_of_the_cluster_itself_comes_before_it_is_empty() -> None:
    """E12: the pod stays, and another node takes the place of this one."""
    there = SliceWorld()
    there.node("n-1")
    there.pod("alone", "n-1", alone=True)
    name = there.claim()
    there.settle(5)
    assert there.state() == ("Draining", "PodsLeaving")
    dns = there.pod("dns", "n-1", namespace="kube-system")
    there.node("n-2")
    there.settle()
    assert there.has(Pod.resource, dns)
    assert there.marks("n-1") == FREE
    assert there.marks("n-2") == bound(name)


def test_a_tenant_has_pods_evicted_once_in_the_cool_down() -> None:
    """E12: a claim that is deleted and created again, node by node, does not empty the cluster."""
    there = SliceWorld(cooldownSeconds=600, minGracePeriodSeconds=0)
    there.node("n-1")
    there.node("n-2")
    there.pod("a", "n-1")
    second = there.pod("b", "n-2")
    there.claim("first", gracePeriodSeconds=0, nodeNames=["n-1"])
    there.settle(5)
    assert there.state("first")[0] == "Bound"
    there.world.delete(SliceClaim.resource, "acme/first")
    there.claim("second", gracePeriodSeconds=0, nodeNames=["n-2"])
    there.settle(100)
    assert there.state("second") == ("Pending", "NodesInsufficient")
    assert "pods left for a claim of this tenant within 600 s" in there.message("second")
    assert there.has(Pod.resource, second)
    there.claim("third", nodeNames=["n-1"])
    there.settle(30)
    assert there.state("third")[0] == "Reserved"  # no pod has to leave
    there.settle(600)
    assert there.state("second")[0] == "Bound"


def test_a_claim_of_a_restricted_tenant_waits_for_an_administrator() -> None:
    """E12: its default mode is Manual."""
    there = SliceWorld()
    there.world.patch(Tenant.resource, "acme", {"spec": {"rules": {"standard": "Restricted"}}})
    there.node("n-1")
    name = there.claim()
    there.claim("asked", mode="Dynamic")
    there.settle()
    assert there.state() == ("Pending", "AwaitingAdministrator")
    assert there.state("asked")[0] == "Bound"
    there.world.delete(SliceClaim.resource, "acme/asked")
    there.approve(name)
    there.settle()
    assert there.state()[0] == "Bound"


def test_what_cannot_be_had_as_a_whole_is_not_taken_and_given_when_nodes_come() -> None:
    """E12: a claim waits with what would fit in its status, and an older claim is served first."""
    there = SliceWorld()
    there.node("n-1")
    name = there.claim(count=2)
    there.settle()
    assert there.state() == ("Pending", "NodesInsufficient")
    assert there.marks("n-1") == FREE
    assert there.slices == []
    there.node("n-2")
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    assert there.marks("n-2") == bound(name)


def test_a_claim_waits_for_nodes_that_another_slice_gives_back() -> None:
    """E12: nodes that are given back wake the claims that wait."""
    there = SliceWorld()
    there.node("n-1")
    there.claim("first")
    there.settle()
    second = there.claim("second")
    there.settle()
    assert there.state("second") == ("Pending", "NodesInsufficient")
    there.world.delete(SliceClaim.resource, "acme/first")
    there.settle()
    assert there.state("second")[0] == "Bound"
    assert there.marks("n-1") == bound(second)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"mode": "Manual"}, "AwaitingAdministrator"),
        ({"gracePeriodSeconds": 4000}, "InvalidSpec"),
    ],
)
def test_a_claim_gets_nothing_until_its_preconditions_are_met(spec: dict[str, object], reason: str) -> None:
    """E12, X05: the reason is in the status; no node is touched."""
    there = SliceWorld()
    there.node("n-1")
    there.claim(**spec)
    there.settle(3)
    assert there.state() == ("Pending", reason)
    assert there.marks("n-1") == FREE


def test_a_suspended_tenant_gets_no_nodes_and_a_lease_that_ends_gives_them_back() -> None:
    """X05: both are in the status."""
    there = SliceWorld()
    there.node("n-1")
    there.world.patch(Tenant.resource, "acme", {"spec": {"suspended": True}})
    there.claim(expiresAt="2027-01-01T00:00:00Z")
    there.settle(3)
    assert there.state()[1] in {"TenantSuspended", "Expired"}
    assert there.marks("n-1") == FREE


def test_a_quota_that_does_not_cover_the_nodes_is_the_reason_and_nothing_is_taken() -> None:
    """X03: nodes are paid for first."""
    there = SliceWorld(quota={"cpu": "3"})
    there.node("n-1", cpu="4")
    there.claim()
    there.settle()
    state, _ = there.state()
    assert state == "Pending"
    assert there.marks("n-1") == FREE
    there.world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"cpu": "8"}}}})
    there.enforce_quotas()
    assert there.state() == ("Bound", "NodesBound")
    (found,) = there.world.list(Slice.resource)
    assert found["status"]["charged"]["requests.cpu"] == "4"


def test_a_lost_node_is_replaced_and_given_back() -> None:
    """E12: another node is taken first; an event reports the loss."""
    there = SliceWorld()
    there.node("n-1")
    name = there.claim(replaceAfterSeconds=100)
    there.settle()
    there.node("n-2")
    there.fail("n-1")
    there.settle(50)
    assert there.marks("n-1") == bound(name)
    assert any(each["type"] == "Degraded" for each in there.status()["conditions"])
    there.settle()
    assert there.status()["nodes"] == ["n-2"]
    assert there.marks("n-1") == FREE
    assert any(reason == "NodesLost" for _, _, reason, _ in there.cluster.said)


def test_a_lost_node_stays_if_no_other_can_be_had() -> None:
    """E12: a slice is degraded rather than smaller."""
    there = SliceWorld()
    there.node("n-1")
    name = there.claim(replaceAfterSeconds=100)
    there.settle()
    there.fail("n-1")
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    assert there.marks("n-1") == bound(name)
    assert there.reason("Degraded") == "NodesLost"


def test_a_claim_that_grows_says_whether_nodes_or_quota_are_missing() -> None:
    """E12: only a claim that had all of its nodes has lost one."""
    there = SliceWorld()
    there.node("n-1")
    there.claim()
    there.settle()
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 2}})
    there.settle()
    assert (there.state(), there.reason("Degraded")) == (("Bound", "NodesBound"), "NodesInsufficient")
    there.node("n-2")
    there.settle()
    assert (there.status()["nodes"], there.reason("Degraded")) == (["n-1", "n-2"], "")
    there.world.delete(Node.resource, "n-2")
    there.settle()
    assert (there.status()["nodes"], there.reason("Degraded")) == (["n-1"], "NodesLost")
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 3}})
    there.settle()
    assert there.reason("Degraded") == "NodesInsufficient"


def test_a_node_that_its_contributor_withdraws_is_given_back_and_its_pods_leave() -> None:
    """E19: the slice goes on without it, and says that a node is missing."""
    there = SliceWorld()
    there.node("n-1")
    there.node("n-2")
    name = there.claim(count=2)
    there.settle()
    own = there.own_pod("own", "n-2", name)
    there.withdraw("n-2")
    there.settle()
    assert not there.has(Pod.resource, own)
    assert there.marks("n-1") == bound(name)
    assert there.marks("n-2") == FREE
    assert there.status()["nodes"] == ["n-1"]


def test_a_node_is_free_only_once_its_agent_has_cleaned_it() -> None:
    """E20: the request, the answer and the result stand on the node."""
    there = SliceWorld()
    there.node("n-1", notes={"tenantry.dev/node-agent": "1"})
    there.claim()
    there.settle()
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle(5)
    request = there.notes("n-1")["tenantry.dev/cleaning"]
    assert len(there.slices) == 1
    left = {"request": request, "left": ["image a"]}
    there.annotate("n-1", "tenantry.dev/cleaned", msgspec.json.encode(left).decode())
    there.settle()
    assert there.condition("n-1", "TenantryClean") == "False"
    assert "tenantry.dev/slice-reserved" in there.marks("n-1")
    (found,) = there.world.list(Slice.resource)
    assert "image a" in found["status"]["conditions"][0]["message"]
    there.annotate("n-1", "tenantry.dev/cleaned", msgspec.json.encode({"request": request}).decode())
    there.settle()
    assert there.condition("n-1", "TenantryClean") == "True"
    assert there.marks("n-1") == FREE
    assert there.slices == []


def test_a_node_whose_agent_does_not_answer_stays_set_aside() -> None:
    """E20: an administrator who has cleaned it can say so."""
    there = SliceWorld()
    there.node("n-1", notes={"tenantry.dev/node-agent": "1"})
    there.claim()
    there.settle()
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle()
    (found,) = there.world.list(Slice.resource)
    assert "its agent does not answer" in found["status"]["conditions"][0]["message"]
    there.annotate("n-1", "tenantry.dev/cleaned", "by-hand")
    there.settle()
    assert there.marks("n-1") == FREE


def test_a_restarted_operator_goes_on_where_the_last_one_was() -> None:
    """E12: half-marked nodes are completed."""
    there = SliceWorld()
    there.node("n-1")
    name = there.claim()
    there.settle()
    there.world.patch(Node.resource, "n-1", {"spec": {"taints": None}})
    there.world.patch(Node.resource, "n-1", {"metadata": {"labels": {"tenantry.dev/slice": None}}})
    there.restart()
    there.settle()
    assert there.marks("n-1") == bound(name)
    there.world.delete(SliceClaim.resource, "acme/web")
    there.restart()
    there.settle()
    assert there.marks("n-1") == FREE


def test_a_manual_claim_gets_nodes_from_the_slice_of_an_administrator_on() -> None:
    """E12: and gives them back when the administrator deletes the Slice."""
    there = SliceWorld()
    there.node("n-1")
    name = there.claim(mode="Manual")
    there.settle(3)
    claim = there.world.get(SliceClaim.resource, "acme/web")
    reference = {"namespace": "acme", "name": "web", "uid": claim["metadata"]["uid"]}
    there.world.put_in(Slice.resource, {"metadata": {"name": name}, "spec": {"claim": reference, "tenant": "acme"}})
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    there.world.delete(Slice.resource, name)
    there.settle()
    assert there.state() == ("Pending", "AwaitingAdministrator")
    assert there.marks("n-1") == FREE


def test_one_approval_covers_what_was_approved_and_no_later_change_of_the_claim() -> None:
    """E12: an approved claim is not charged and has no cool-down, so its owner must not enlarge it."""
    there = SliceWorld()
    for number in range(4):
        there.node(f"n-{number}")
    name = there.claim(mode="Manual", nodeNames=["n-0", "n-1"])
    there.approve(name)
    there.settle()
    assert there.status()["nodes"] == ["n-0"]
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 3, "nodeNames": None}})
    there.settle()
    assert there.status()["nodes"] == ["n-0"]
    assert "spec.count, spec.nodeNames must be approved: `tenantry slice approve` does" in there.message()
    approved = there.world.get(Slice.resource, name)["spec"]["approved"]
    there.world.patch(Slice.resource, name, {"spec": {"approved": {**approved, "count": 2}}})
    there.settle()
    assert there.status()["nodes"] == ["n-0", "n-1"]


@pytest.mark.parametrize("becomes_manual", ["mode", "standard"])
def test_a_slice_that_no_administrator_created_is_charged_whatever_the_claim_becomes(becomes_manual: str) -> None:
    """E12: an owner does not approve their own claim by another mode or another standard."""
    there = SliceWorld(quota={"cpu": 6})
    there.node("n-1")
    there.node("n-2")
    there.claim()
    there.enforce_quotas()
    assert there.status()["nodes"] == ["n-1"]
    if becomes_manual == "standard":
        there.world.patch(Tenant.resource, "acme", {"spec": {"rules": {"standard": "Restricted"}}})
    mode = {"mode": "Manual"} if becomes_manual == "mode" else {}
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 2, **mode}})
    there.enforce_quotas()
    assert there.status()["nodes"] == ["n-1"]
    assert there.state()[0] == "Bound"


def test_a_claim_of_a_cluster_shrinks_while_the_quota_does_not_cover_it() -> None:
    """E12: fewer nodes are what the message recommends, and what brings the tenant into its quota again."""
    there = SliceWorld(quota={"cpu": 9})
    there.node("n-1")
    there.node("n-2")
    there.claim(count=2, users="Cluster")
    there.enforce_quotas()
    assert there.status()["nodes"] == ["n-1", "n-2"]
    there.world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"cpu": 5}}}})
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 3}})
    there.enforce_quotas()
    assert (there.status()["nodes"], there.reason("Degraded")) == (["n-1", "n-2"], "NodesInsufficient")
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 1}})
    there.enforce_quotas()
    (kept,) = there.status()["nodes"]
    (given_back,) = {"n-1", "n-2"} - {kept}
    assert (there.marks(given_back), there.reason("Degraded")) == (FREE, "")


def test_reserved_nodes_are_drained_one_claim_after_another() -> None:
    """E12: an owner reserves nodes by several claims, and then uses and deletes the claims one by one."""
    there = SliceWorld(cooldownSeconds=600, minGracePeriodSeconds=0)
    for number in (1, 2):
        there.node(f"n-{number}")
        there.claim(f"c-{number}", gracePeriodSeconds=0, nodeNames=[f"n-{number}"], users="Subnamespaces")
    there.settle(5)
    pods = [there.pod(f"p-{number}", f"n-{number}") for number in (1, 2)]
    assert [there.state(f"c-{number}")[0] for number in (1, 2)] == ["Reserved"] * 2
    there.world.patch(SliceClaim.resource, "acme/c-1", {"spec": {"users": "Everybody"}})
    there.settle(5)
    assert there.state("c-1")[0] == "Bound"
    there.world.delete(SliceClaim.resource, "acme/c-1")
    there.world.patch(SliceClaim.resource, "acme/c-2", {"spec": {"users": "Everybody"}})
    there.settle(100)
    assert there.state("c-2")[0] == "Reserved"
    assert "spec.slices.cooldownSeconds of TenancyDefaults" in there.message("c-2")
    assert [there.has(Pod.resource, pod) for pod in pods] == [False, True]
    there.settle(600)
    assert there.state("c-2")[0] == "Bound"


def test_a_renewed_claim_waits_for_the_cool_down_of_its_earlier_nodes() -> None:
    """E12: its slice has the same name again, but holds no node."""
    there = SliceWorld(cooldownSeconds=600, minGracePeriodSeconds=0)
    for number in (1, 2):
        there.node(f"n-{number}")
        there.pod(f"p-{number}", f"n-{number}")
    there.claim(gracePeriodSeconds=0, nodeNames=["n-1"])
    there.settle(5)
    assert there.state()[0] == "Bound"
    past = "2020-01-01T00:00:00Z"
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"expiresAt": past}})
    there.settle(5)
    assert there.marks("n-1") == FREE
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"expiresAt": None, "nodeNames": ["n-2"]}})
    there.settle(100)
    assert there.state() == ("Pending", "NodesInsufficient")
    there.settle(600)
    assert there.state()[0] == "Bound"


def test_a_claim_of_a_cluster_is_bound_without_namespaces_and_pods_of_others_leave() -> None:
    """H04: the nodes serve the cluster, so that no namespace of the host uses them."""
    there = SliceWorld()
    there.node("n-1")
    other = there.pod("other", "n-1")
    name = there.claim(users="Cluster", subnamespaces=["shop"])
    there.settle()
    assert there.state() == ("Bound", "NodesBound")
    assert (there.marks("n-1"), there.label()) == (bound(name), "")
    assert not there.has(Pod.resource, other)


def test_a_claim_of_a_cluster_gives_back_only_nodes_that_do_not_serve_it() -> None:
    """H04: the cluster chooses which nodes leave it, and lowers the count when they are back."""
    there = SliceWorld()
    for node in ("n-1", "n-2", "n-3"):
        there.node(node)
    name = there.claim(users="Cluster", count=3)
    there.settle()
    there.world.patch(Node.resource, "n-3", {"metadata": {"labels": {"tenantry.dev/handed-over": "prod"}}})
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 1}})
    there.settle()
    assert there.status()["nodes"] == ["n-3"]
    assert there.marks("n-1") == there.marks("n-2") == FREE
    assert there.marks("n-3")["tenantry.dev/slice"] == name


def test_a_claim_of_namespaces_keeps_its_nodes_when_its_count_is_lowered() -> None:
    """E12: its pods run there."""
    there = SliceWorld()
    there.node("n-1")
    there.node("n-2")
    there.claim(count=2)
    there.settle()
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 1}})
    there.settle()
    assert there.status()["nodes"] == ["n-1", "n-2"]


def test_a_claim_that_shrank_waits_for_the_quota_before_it_grows_again() -> None:
    """X03, H04: what it was charged once may belong to others by now."""
    there = SliceWorld(quota={"cpu": "8"})
    for node in ("n-1", "n-2"):
        there.node(node, cpu="4")
    there.claim(users="Cluster", count=2)
    there.settle()
    there.enforce_quotas()
    assert len(there.status()["nodes"]) == 2
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 1}})
    there.settle()
    (found,) = there.world.list(Slice.resource)
    assert (found["spec"]["charge"]["requests.cpu"], found["status"]["charged"]["requests.cpu"]) == ("4", "4")
    there.world.patch(Tenant.resource, "acme", {"spec": {"quota": {"hard": {"cpu": "5"}}}})
    there.settle()
    there.world.patch(SliceClaim.resource, "acme/web", {"spec": {"count": 2}})
    there.settle()
    assert len(there.status()["nodes"]) == 1
    assert [there.marks(each) for each in ("n-1", "n-2")].count(FREE) == 1
