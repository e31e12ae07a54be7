"""H04: a DedicatedCluster that Cluster API builds: which fields of the Cluster are its own, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTER_CLASSES, CLUSTERS
from tenantry.api.clusterguards import ClusterGuard
from tenantry.api.clustertemplate import (
    ClassReference,
    ClassVariable,
    ClusterApiClass,
    ClusterTemplate,
    ClusterTemplateSpec,
    TemplateLimits,
)
from tenantry.api.dedicatedcluster import (
    CLUSTER_FINALIZER,
    ClusterControlPlane,
    ClusterProvider,
    DedicatedCluster,
    DedicatedClusterSpec,
    DedicatedClusterStatus,
    NodePool,
    PoolSettings,
)
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Condition, ObjectMeta
from tenantry.api.planehosting import PlaneHosting
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceClaimStatus
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneSpec
from tenantry.controllers import tenantcluster
from tenantry.controllers.children import meta_of
from tenantry.controllers.dedicatedcluster import clusterreport, topology
from tenantry.controllers.dedicatedcluster.controller import DedicatedClusterController
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.dedicatedcluster.template import ClusterSize, refused
from tenantry.controllers.dedicatedcluster.topology import TopologyInputs
from tenantry.engine.cluster import CRDS
from tenantry.engine.conditions import find
from tenantry.engine.plan import Amendment, Blocked, Plan
from tenantry.engine.request import ApiRequest
from testkit.model import World
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]
NOW = "2027-01-01T00:00:00Z"
CLASS = ClusterApiClass(
    class_ref=ClassReference(name="c"), worker_class="node", variables=(ClassVariable(name="zone", value="a"),)
)


def found(spec: DedicatedClusterSpec | None = None, **more: Any) -> DedicatedCluster:  # noqa: ANN401 - of ObjectMeta
    """Return a DedicatedCluster of version 1.36 with two nodes."""
    meta: Json = {"finalizers": (CLUSTER_FINALIZER,), **more}
    return DedicatedCluster(
        metadata=ObjectMeta(name="prod", namespace="acme", uid="dcl", resource_version="1", **meta),
        spec=spec or DedicatedClusterSpec(version="1.36", nodes=2),
    )


def template(of: ClusterApiClass = CLASS) -> ClusterTemplate:
    """Return a template that names a ClusterClass."""
    return ClusterTemplate(metadata=ObjectMeta(name="t"), spec=ClusterTemplateSpec(cluster_api=of))


def requests(plan: Plan) -> list[ApiRequest]:
    """Return the requests of a plan."""
    return [each.request for each in (*plan.before, *plan.writes) if not isinstance(each, Amendment)]


def body(plan: Plan) -> Json:
    """Return the body of the only request of a plan."""
    (asked,) = requests(plan)
    assert isinstance(asked.body, dict)
    return asked.body


def created(spec: DedicatedClusterSpec | None = None) -> Json:
    """Return the Cluster as the API server has stored it."""
    made = body(topology.plan(TopologyInputs(found=found(spec), template=template())))
    return {**made, "metadata": {**made["metadata"], "uid": "cluster", "resourceVersion": "7"}}


def reported(cluster: Json, count: int, reason: str = "x", **conditions: str) -> Json:
    """Return a Cluster with a status: each condition, and a number of nodes."""
    given = {"Available": "True", "ControlPlaneAvailable": "True", "WorkersAvailable": "True", **conditions}
    listed = [{"type": name, "status": status, "reason": reason, "message": name} for name, status in given.items()]
    status: Json = {"conditions": listed, "workers": {"replicas": count, "readyReplicas": count}}
    return {**cluster, "status": {**status, "controlPlane": {"versions": [{"version": "v1.36.2", "replicas": 1}]}}}


def ready(inputs: TopologyInputs) -> Condition:
    """Return the condition Ready of a cluster."""
    condition = find(topology.status(inputs, None, NOW).conditions, reasons.READY)
    assert condition is not None
    return condition


def test_a_cluster_of_the_class_is_created_with_the_pools_and_the_variables() -> None:
    """H04: the cluster controls it, so that it ends with it."""
    spec = DedicatedClusterSpec(version="1.36", nodes=2, pools=(NodePool(name="gpu", count=1),))
    made = created(spec)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "dcl"
    assert made["spec"]["topology"] == {
        "classRef": {"name": "c"},
        "version": "v1.36.0",
        "workers": {
            "machineDeployments": [
                {"class": "node", "name": "default", "replicas": 2},
                {"class": "node", "name": "gpu", "replicas": 1},
            ]
        },
        "variables": [{"name": "zone", "value": "a"}],
    }


def test_only_own_fields_are_patched_at_the_version_that_was_seen() -> None:
    """H04: others set variables, patch releases and fields of deployments; the next plan is empty."""
    cluster = created()
    its = cluster["spec"]["topology"]
    its["version"] = "v1.36.9"
    its["variables"].append({"name": "size", "value": 3})
    its["workers"]["machineDeployments"][0]["minReadySeconds"] = 5
    inputs = TopologyInputs(found=found(), template=template(), cluster=cluster)
    assert topology.plan(inputs).is_empty
    patch = body(topology.plan(replace(inputs, found=found(DedicatedClusterSpec(version="1.37", nodes=3)))))
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["spec"]["topology"] == {
        "version": "v1.37.0",
        "workers": {"machineDeployments": [{"class": "node", "minReadySeconds": 5, "name": "default", "replicas": 3}]},
    }


def test_a_template_that_is_gone_changes_nothing_but_the_cluster_can_still_be_scaled() -> None:
    """H04: the class of the workers is that which the Cluster has."""
    inputs = TopologyInputs(found=found(), cluster=created())
    assert topology.plan(inputs).is_empty
    patch = body(topology.plan(replace(inputs, found=found(DedicatedClusterSpec(version="1.36", nodes=0)))))
    assert patch["spec"]["topology"]["workers"]["machineDeployments"][0] == {
        "class": "node",
        "name": "default",
        "replicas": 0,
    }


@pytest.mark.parametrize(
    ("change", "reason", "told"),
    [
        ({"is_installed": False}, reasons.KIND_NOT_INSTALLED, "Cluster API is not installed"),
        ({"template": None}, reasons.INVALID_SPEC, "spec.template must name"),
        ({"cluster": {"metadata": {"name": "prod", "uid": "f"}}}, reasons.OBJECT_EXISTS, "exists already"),
        ({"found": found(DedicatedClusterSpec())}, reasons.INVALID_SPEC, "spec.version must be set"),
        ({"is_permitted": False}, reasons.REFUSED, "`tenantry install --cluster-api-clusters`"),
        (
            {"cluster_class": None},
            reasons.UNKNOWN_CLASS,
            "must create it, or name another one in spec.clusterApi.classRef",
        ),
        (
            {"found": found(DedicatedClusterSpec(version="1.36", default_pool=PoolSettings(labels={"a": "b"})))},
            reasons.INVALID_SPEC,
            "spec.defaultPool must have no settings",
        ),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(change: Json, reason: str, told: str) -> None:
    """H04: a condition that a person can act on, instead of an error of the API server."""
    inputs = replace(TopologyInputs(found=found(), template=template()), **change)
    assert not requests(topology.plan(inputs))
    condition = ready(inputs)
    assert (condition.reason, told in condition.message) == (reason, True)
    assert find(topology.status(inputs, None, NOW).conditions, reasons.STALLED) is not None


def test_a_class_that_is_gone_changes_nothing_in_a_cluster_that_runs() -> None:
    """H04: Cluster API could carry out no change; the message says so."""
    larger = found(DedicatedClusterSpec(version="1.36", nodes=3))
    inputs = TopologyInputs(found=larger, template=template(), cluster=reported(created(), 2), cluster_class=None)
    assert not requests(topology.plan(inputs))
    assert ready(inputs).message == (
        "there is no ClusterClass 'acme/c': an administrator must create it again; the cluster runs on, and does not"
        " change until then"
    )
    gone = found(deletion_timestamp=NOW)
    (asked,) = requests(topology.plan(replace(inputs, found=gone)))
    assert asked.verb.name == "DELETE"


def test_a_cluster_that_may_not_be_read_is_not_taken_for_gone() -> None:
    """H04: the finalizer stays until the operator knows."""
    inputs = TopologyInputs(found=found(deletion_timestamp=NOW), template=template(), is_permitted=False)
    assert not requests(topology.plan(inputs))
    assert ready(inputs).reason == reasons.REFUSED


def test_the_version_is_the_latest_of_its_minor_version_that_the_class_has() -> None:
    """H04: a class may offer no v1.36.0."""
    offered: Json = {"spec": {"kubernetesVersions": ["v1.35.4", "v1.36.1", "v1.36.3"]}}
    inputs = TopologyInputs(found=found(), template=template(), cluster_class=offered)
    assert body(topology.plan(inputs))["spec"]["topology"]["version"] == "v1.36.3"
    cluster = created()
    assert topology.plan(replace(inputs, cluster=cluster)).is_empty


def test_what_a_webhook_of_cluster_api_refuses_says_who_can_correct_it() -> None:
    """H04: its own message names a field of the Cluster, which nothing else shows."""
    inputs = TopologyInputs(found=found(), template=template())
    told = Blocked(reason=reasons.INVALID_SPEC, message='admission webhook "x" denied the request: no such class')
    found_problem = topology.refusal(inputs, told)
    assert found_problem is not None
    assert "have an administrator correct spec.clusterApi of ClusterTemplate 't'" in found_problem.message
    other = replace(told, message="exceeded quota")
    assert topology.refusal(inputs, other) == other


def test_a_missing_right_says_who_grants_it() -> None:
    """H04: the provider's installation lets the operator read Clusters, and create none."""
    told = Blocked(reason=reasons.REFUSED, message='User "o" cannot create resource "clusters" in API group "x"')
    found_problem = topology.refusal(TopologyInputs(found=found(), template=template()), told)
    assert found_problem is not None
    assert found_problem.message.endswith("`tenantry install --cluster-api-clusters` grants it the right")


def test_deployments_of_others_stay_and_those_of_former_pools_go() -> None:
    """H04: what is not a pool, and was none, is not of the operator; a pool that goes is known until it is gone."""
    spec = DedicatedClusterSpec(version="1.36", nodes=2, pools=(NodePool(name="gpu", count=1),))
    cluster = created(spec)
    other: Json = {"class": "node", "name": "theirs", "replicas": 1}
    cluster["spec"]["topology"]["workers"]["machineDeployments"].insert(0, other)
    before = found(spec)
    inputs = TopologyInputs(found=before, template=template(), cluster=cluster, has_kubeconfig=True)
    assert topology.plan(inputs).is_empty
    assert ready(replace(inputs, cluster=reported(cluster, 4))).status.value == "True"
    assert inputs.size == ClusterSize(nodes=3)
    status = topology.status(inputs, None, NOW)
    assert [each.name for each in status.pools] == ["default", "gpu"]
    less = replace(found(), status=status)
    deployments = body(topology.plan(replace(inputs, found=less)))["spec"]["topology"]["workers"]["machineDeployments"]
    assert [each["name"] for each in deployments] == ["theirs", "default"]
    # If the write fails, the next one must still know it.
    again = topology.status(replace(inputs, found=less), None, NOW)
    assert [(each.name, each.want) for each in again.pools] == [("default", 2), ("gpu", 0)]
    cluster["spec"]["topology"]["workers"]["machineDeployments"] = deployments
    assert [each.name for each in topology.status(replace(inputs, found=less), None, NOW).pools] == ["default"]


def test_the_cluster_has_no_marks_of_other_tools() -> None:
    """Decision 83: Argo CD would delete what has its mark and is not in Git."""
    marked = found(
        labels={"app.kubernetes.io/instance": "shop", "kustomize.toolkit.fluxcd.io/name": "shop"},
        annotations={"argocd.argoproj.io/tracking-id": "shop", "meta.helm.sh/release-name": "shop"},
    )
    made = body(topology.plan(TopologyInputs(found=marked, template=template())))
    assert made["metadata"].get("annotations", {}) == {}
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "tenantry"}


def test_a_template_refuses_growth_and_nothing_that_the_cluster_has() -> None:
    """H04: an owner exceeds no limit by the other provider; a limit that is lowered stops no cluster that runs."""
    refused = (Blocked(reason=reasons.INVALID_SPEC, message="too many"),)
    inputs = TopologyInputs(found=found(), template=template(), refused=refused)
    assert not requests(topology.plan(inputs))
    assert ready(inputs).message == "too many"
    inputs = replace(inputs, cluster=created())
    assert not topology.plan(inputs).blocked
    for spec in (DedicatedClusterSpec(version="1.36", nodes=3), DedicatedClusterSpec(version="1.37", nodes=2)):
        assert topology.plan(replace(inputs, found=found(spec))).blocked == refused
    assert (
        len(requests(topology.plan(replace(inputs, found=found(DedicatedClusterSpec(version="1.36", nodes=1)))))) == 1
    )


def test_a_template_refuses_more_replicas_of_a_control_plane_that_runs() -> None:
    """H04: they were limited at the creation only."""
    refused = (Blocked(reason=reasons.INVALID_SPEC, message="too many"),)

    def having(replicas: int) -> DedicatedClusterSpec:
        return DedicatedClusterSpec(version="1.36", nodes=2, control_plane=ClusterControlPlane(replicas=replicas))

    inputs = TopologyInputs(found=found(having(3)), template=template(), refused=refused, cluster=created(having(3)))
    assert topology.plan(inputs).is_empty
    assert topology.plan(replace(inputs, found=found(having(5)))).blocked == refused
    assert not topology.plan(replace(inputs, found=found(having(1)))).blocked
    without = replace(inputs, cluster=created(), found=found(having(1)))
    assert topology.plan(without).blocked == refused


def test_only_the_cluster_counts_as_what_the_cluster_has() -> None:
    """H04: not what users can create, a claim and a control plane with a reference to the DedicatedCluster."""
    spec = DedicatedClusterSpec(
        version="1.36", nodes=2, pools=(NodePool(name="gpu", count=1),), control_plane=ClusterControlPlane(replicas=3)
    )
    inputs = TopologyInputs(found=found(spec), template=template(), cluster=created(spec))
    assert inputs.size == ClusterSize(nodes=3, replicas=3)
    assert replace(inputs, cluster=None).size == ClusterSize()
    limits = TemplateLimits(nodes=2, replicas=1)
    of = replace(template(), spec=ClusterTemplateSpec(limits=limits))
    forged = SliceClaim(
        metadata=meta_of(found(), "prod-x"),
        spec=SliceClaimSpec(count=64),
        status=SliceClaimStatus(nodes=tuple(f"n-{number}" for number in range(64))),
    )
    plane = VirtualControlPlane(metadata=meta_of(found(), "prod"), spec=VirtualControlPlaneSpec(replicas=5))
    of_owner = ClusterInputs(
        found=found(spec), plane=plane, claims={"prod-x": forged}, template_name="t", template=of, offered=("t",)
    )
    assert refused(of_owner, inputs.size) == []
    larger = replace(spec, nodes=3, control_plane=ClusterControlPlane(replicas=5))
    nodes, replicas = refused(replace(of_owner, found=found(larger)), inputs.size)
    assert "at most 3 nodes together, not 4" in nodes.message
    assert "spec.controlPlane.replicas must be at most 3, not 5" in replicas.message


def test_a_cluster_that_another_object_controls_is_not_its_own() -> None:
    """H04: a reference that does not control it makes no Cluster one of the DedicatedCluster."""
    cluster = created()
    (owner,) = cluster["metadata"]["ownerReferences"]
    cluster["metadata"]["ownerReferences"] = [{**owner, "controller": False}]
    inputs = TopologyInputs(found=found(), template=template(), cluster=cluster)
    assert inputs.own is None
    assert [each.reason for each in topology.plan(inputs).blocked] == [reasons.OBJECT_EXISTS]


def test_it_is_ready_when_cluster_api_says_so_and_all_nodes_are_there() -> None:
    """H04: and not before the kubeconfig can be read, nor while the ClusterClass is gone."""
    inputs = TopologyInputs(found=found(), template=template(), cluster=created())
    assert "no controller has reported" in ready(inputs).message
    for cluster in (
        reported(created(), 1),
        reported(created(), 2, Available="False"),
        reported(created(), 2, TopologyReconciled="False"),
    ):
        assert ready(replace(inputs, cluster=cluster, has_kubeconfig=True)).status.value == "False"
    done = replace(inputs, cluster=reported(created(), 2))
    assert "Secret 'prod-kubeconfig'" in ready(done).message
    done = replace(done, has_kubeconfig=True)
    assert ready(done).status.value == "True"
    upgraded = reported(created(), 2, clusterreport.UPGRADING, TopologyReconciled="False")
    assert ready(replace(done, cluster=upgraded)).status.value == "True"
    status = topology.status(done, None, NOW)
    assert (status.provider, status.ready_nodes, status.version) == (ClusterProvider.CLUSTER_API, "2/2", "1.36.2")
    assert tenantcluster.has_nodes(replace(found(), status=status)), "for status.isolationClass of the Tenant"
    (fewer,) = topology.status(replace(done, cluster=reported(created(), 1)), None, NOW).pools
    assert (fewer.want, fewer.ready) == (2, 1)
    spec = DedicatedClusterSpec(version="1.36", nodes=2, pools=(NodePool(name="gpu", count=1),))
    several = replace(done, found=found(spec), cluster=reported(created(spec), 2))
    assert [each.ready for each in topology.status(several, None, NOW).pools] == [0, 0], "not known by pool"
    several = replace(several, cluster=reported(created(spec), 3))
    assert [each.ready for each in topology.status(several, None, NOW).pools] == [2, 1]


def test_it_is_not_ready_for_a_spec_that_cluster_api_has_not_seen() -> None:
    """H04: Available and the numbers of nodes are those of the spec before, of either controller of Cluster API."""
    cluster = reported(created(), 2, TopologyReconciled="True")
    cluster["metadata"]["generation"] = 2
    inputs = TopologyInputs(found=found(), template=template(), cluster=cluster, has_kubeconfig=True)
    assert "has not seen" in ready(inputs).message
    cluster["status"]["observedGeneration"] = 2
    assert ready(inputs).status.value == "True"
    topology_of = next(each for each in cluster["status"]["conditions"] if each["type"] == "TopologyReconciled")
    topology_of["observedGeneration"] = 1
    assert "has not seen" in ready(inputs).message
    topology_of["observedGeneration"] = 2
    assert ready(inputs).status.value == "True"


def test_the_version_is_that_of_the_control_plane_and_not_the_one_that_is_wanted() -> None:
    """H04: a cluster that is upgraded keeps its version, and is not Ready before its control plane has the new one."""
    before = found(DedicatedClusterSpec(version="1.37", nodes=2))
    before = replace(before, status=DedicatedClusterStatus(version="1.36.2"))
    cluster = reported(created(before.spec), 2, clusterreport.UPGRADING, TopologyReconciled="False")
    inputs = TopologyInputs(found=before, template=template(), cluster=cluster, has_kubeconfig=True)

    def told(*versions: str) -> tuple[str, str]:
        cluster["status"]["controlPlane"] = {"versions": [{"version": each} for each in versions]}
        return topology.status(inputs, None, NOW).version, ready(inputs).status.value

    assert told("v1.36.2") == ("1.36.2", "False")
    assert "upgrades the control plane from v1.36.2 to v1.37.0" in ready(inputs).message
    assert told("v1.37.1", "v1.36.2") == ("1.36.2", "False")
    assert told("v1.37.1") == ("1.37.1", "True")
    # A provider that reports none.
    assert told() == ("1.36.2", "True")
    cluster["status"]["initialization"] = {"controlPlaneInitialized": True}
    cluster["status"]["conditions"][-1]["status"] = "True"
    assert told() == ("1.37.0", "True")


def test_a_paused_cluster_is_not_ready_for_a_spec_that_is_not_carried_out() -> None:
    """H04: as one that the operator hosts; without a change, a pause changes nothing."""
    paused = DedicatedClusterSpec(version="1.36", nodes=2, paused=True)
    cluster = reported(created(), 2)
    inputs = TopologyInputs(found=found(paused), template=template(), cluster=cluster, has_kubeconfig=True)
    assert ready(inputs).status.value == "True"
    changed = replace(inputs, found=found(replace(paused, nodes=1)))
    assert topology.plan(changed).is_empty
    assert "does not have the spec of the cluster yet: spec.paused" in ready(changed).message
    assert "is not created yet: spec.paused" in ready(replace(inputs, cluster=None)).message


def test_it_ends_after_its_cluster() -> None:
    """H04: Cluster API ends the Machines first; without Cluster API, nothing is waited for."""
    gone = found(deletion_timestamp=NOW)
    inputs = TopologyInputs(found=gone, template=template(), cluster=created())
    (asked,) = requests(topology.plan(inputs))
    assert (asked.verb.name, asked.resource.kind) == ("DELETE", "Cluster")
    going = {**created(), "metadata": {**created()["metadata"], "deletionTimestamp": NOW}}
    assert topology.plan(replace(inputs, cluster=going)).is_empty
    assert body(topology.plan(replace(inputs, cluster=None, is_installed=False)))["metadata"]["finalizers"] == []


@pytest.mark.parametrize(
    ("wanted", "has_class", "is_installed", "expected"),
    [
        (ClusterProvider.AUTO, True, True, ClusterProvider.CLUSTER_API),
        (ClusterProvider.AUTO, True, False, ClusterProvider.HOSTED),
        (ClusterProvider.AUTO, False, True, ClusterProvider.HOSTED),
        (ClusterProvider.HOSTED, True, True, ClusterProvider.HOSTED),
        (ClusterProvider.CLUSTER_API, False, False, ClusterProvider.CLUSTER_API),
    ],
)
def test_the_provider_is_decided_once(
    wanted: ClusterProvider, *, has_class: bool, is_installed: bool, expected: ClusterProvider
) -> None:
    """H04: a cluster that runs does not become another one because Cluster API is installed later."""
    of = template() if has_class else ClusterTemplate(metadata=ObjectMeta(name="t"))
    each = found(DedicatedClusterSpec(provider=wanted))
    assert topology.resolve(each, of, is_installed=is_installed) is expected
    decided = replace(each, status=DedicatedClusterStatus(provider=ClusterProvider.HOSTED))
    assert topology.resolve(decided, of, is_installed=is_installed) is ClusterProvider.HOSTED


def test_the_provider_is_recorded_before_there_is_a_cluster() -> None:
    """H04: an operator that ends at any request leaves no Cluster that the next one takes for none of its own."""
    is_over, count, world = False, 0, World()
    while not is_over:
        world = World()
        for each in ("acme", "other"):
            world.put_in(Namespace.resource, {"metadata": {"name": each}})
        world.put_in(CRDS, {"metadata": {"name": CLUSTERS.full_name}})
        world.put_in(CLUSTERS, {"metadata": {"name": "of-another", "namespace": "other"}})
        world.put_in(CLUSTER_CLASSES, {"metadata": {"name": "c", "namespace": "acme"}, "spec": {}})
        world.create(template())
        meta = {"name": "prod", "namespace": "acme"}
        world.put_in(DedicatedCluster.resource, {"metadata": meta, "spec": {"template": "t", "version": "1.36"}})
        faults = iter(["none"] * count + ["crash"])
        operator = WorldCluster(world, [DedicatedClusterController()], faults=lambda of=faults: next(of, "none"))
        try:
            operator.settle()
            is_over = next(faults, None) is not None
        except Crash:
            pass
        if (CLUSTERS, "acme/prod") in world.objects:
            status = world.get(DedicatedCluster.resource, "acme/prod")["status"]
            assert (status["provider"], status["template"]["name"]) == ("ClusterApi", "t"), count
        count += 1
    assert (CLUSTERS, "acme/prod") in world.objects
    assert count > 3


@pytest.mark.parametrize(
    ("field", "value"),
    [("guards", (ClusterGuard.NODE_IDENTITY,)), ("hosting", PlaneHosting.PODS), ("runtime", RuntimeChoice.SANDBOXED)],
)
def test_a_class_does_not_have_what_a_template_requires_of_control_planes(field: str, value: object) -> None:
    """H04: an owner does not get rid of it by the provider."""
    strict = template()
    strict = replace(strict, spec=replace(strict.spec, **{field: value}))
    inputs = TopologyInputs(found=found(), template=strict)
    assert topology.plan(inputs).writes == ()
    assert (ready(inputs).reason, f"spec.{field}" in ready(inputs).message) == (reasons.INVALID_SPEC, True)


def test_a_cluster_of_a_class_takes_no_runtime_and_says_when_it_ends() -> None:
    """H04: a field that is not carried out is refused."""
    spec = DedicatedClusterSpec(version="1.36", control_plane=ClusterControlPlane(runtime=RuntimeChoice.SANDBOXED))
    told = ready(TopologyInputs(found=found(spec), template=template())).message
    assert "spec.controlPlane.runtime must be left out" in told
    inputs = TopologyInputs(
        found=found(DedicatedClusterSpec(version="1.36", expires_at="2027-01-01T12:00:00Z")), template=template()
    )
    assert find(topology.status(inputs, None, NOW).conditions, reasons.EXPIRING) is not None
    wrong = TopologyInputs(
        found=found(DedicatedClusterSpec(version="1.36", expires_at="tomorrow")), template=template()
    )
    assert "spec.expiresAt" in ready(wrong).message
