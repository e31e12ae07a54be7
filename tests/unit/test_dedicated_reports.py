"""What a DedicatedCluster reports of what happens inside it (H04): pure."""

from __future__ import annotations

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusteraddons import AddOnMode, AddOnName, ClusterAddOn
from tenantry.api.dedicatedcluster import DedicatedClusterSpec
from tenantry.api.nodehandover import HandoverStage, NodeHandoverStatus
from tenantry.api.virtualcontrolplane import VirtualControlPlaneStatus
from tenantry.controllers.dedicatedcluster import status
from tenantry.engine.conditions import Wanted, merge
from testkit.clusterworld import NOW, ClusterWorld


def world(spec: DedicatedClusterSpec | None = None) -> ClusterWorld:
    """Return a cluster with one node, at rest."""
    found = ClusterWorld(spec or DedicatedClusterSpec(nodes=1))
    found.settle()
    return found


def report(found: ClusterWorld, *wanted: Wanted) -> None:
    """Let the control plane report conditions."""
    assert found.plane is not None
    told = merge((), wanted, generation=1, now=NOW)
    found.plane = replace(found.plane, status=VirtualControlPlaneStatus(conditions=told))


def test_modes_of_add_ons_go_to_the_control_plane() -> None:
    given = (ClusterAddOn(name=AddOnName.CORE_DNS, mode=AddOnMode.ONCE),)
    found = world(DedicatedClusterSpec(nodes=1, add_ons=given))
    assert found.plane is not None
    assert found.plane.spec.add_ons == given
    # What others write there is taken back.
    found.plane = replace(found.plane, spec=replace(found.plane.spec, add_ons=()))
    found.settle()
    assert found.plane.spec.add_ons == given


def test_the_condition_about_add_ons_is_that_of_the_control_plane_and_stays_while_it_sleeps() -> None:
    found = world()
    assert found.condition(reasons.ADD_ONS_READY) == ("", "", "")
    report(found, Wanted(reasons.ADD_ONS_READY, False, reasons.DRIFTED, "ClusterRole x is changed by 'argocd'"))
    told = found.condition(reasons.ADD_ONS_READY)
    assert told == ("False", reasons.DRIFTED, "ClusterRole x is changed by 'argocd'")
    found.cluster = replace(found.found, status=status.compute(found.inputs(), None, NOW))
    report(found)
    assert found.condition(reasons.ADD_ONS_READY) == told


def test_a_node_that_cannot_join_is_named_with_what_keeps_it_out() -> None:
    found = world()
    (name,) = found.handovers
    refused = Wanted(reasons.JOIN_REFUSED, True, reasons.NODE_BLOCKED, "remove the finalizers inside", only_true=True)
    conditions = merge((), [refused], generation=1, now=NOW)
    held = NodeHandoverStatus(stage=HandoverStage.JOINING, conditions=conditions)
    found.handovers[name] = replace(found.handovers[name], status=held)
    state, reason, message = found.condition(reasons.NODES_READY)
    assert (state, reason) == ("False", reasons.NODE_BLOCKED)
    assert message == f"pool 'default': node {name!r}: remove the finalizers inside"


def test_a_spec_that_the_control_plane_refuses_is_told_in_the_cluster() -> None:
    """H04: a version that is not offered: the control plane serves with the version of before."""
    found = world()
    assert found.plane is not None
    ready = Wanted(reasons.READY, True, reasons.ESTABLISHED, "")
    refused = Wanted(reasons.STALLED, True, reasons.INVALID_SPEC, "choose 1.35, 1.36")
    conditions = merge((), [ready, refused], generation=1, now=NOW)
    usable = VirtualControlPlaneStatus(conditions=conditions, kubeconfig_secret="s")
    found.plane = replace(found.plane, status=usable)
    told = "VirtualControlPlane 'acme/prod': choose 1.35, 1.36"
    assert found.condition(reasons.READY) == ("False", reasons.INVALID_SPEC, told)
    assert found.condition(reasons.STALLED) == ("True", reasons.INVALID_SPEC, told)
