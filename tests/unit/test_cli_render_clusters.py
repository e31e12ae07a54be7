"""X03: `render` and `diff` show what a DedicatedCluster would be made of, by the plan of its controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTER_CLASSES, CLUSTERS
from tenantry.api.clustertemplate import (
    ClassReference,
    ClassVariable,
    ClusterApiClass,
    ClusterTemplate,
    ClusterTemplateSpec,
    TemplateDefaults,
)
from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster, DedicatedClusterSpec, NodePool
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli.documents import read_manifests
from tenantry.controllers.dedicatedcluster.controller import DedicatedClusterController
from tenantry.engine.cluster import CRDS
from tenantry.engine.plan import StepAction
from tenantry.views.drift.changes import TenantDrift, find
from tenantry.views.drift.rendering import render, render_clusters
from tenantry.views.manifests import Manifests
from testkit.model import World
from testkit.shell import ROOT
from testkit.treeworld import settle, world_of
from testkit.worldclient import WorldClient
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID

LEAN = ClusterTemplate(
    metadata=ObjectMeta(name="lean"), spec=ClusterTemplateSpec(defaults=TemplateDefaults(after_idle_seconds=600))
)


def prod(**fields: object) -> DedicatedCluster:
    """Return a cluster of the tenant acme with two pools."""
    spec = DedicatedClusterSpec(nodes=2, pools=(NodePool(name="gpu", count=1),))
    return DedicatedCluster(metadata=ObjectMeta(name="prod", namespace="acme"), spec=replace(spec, **fields))


def test_render_prints_the_children_of_a_cluster() -> None:
    """X03: its control plane and a claim for each pool; which nodes they get, only a host knows."""
    found = render(Manifests([], [], [prod(template="lean")], [LEAN]))
    assert [(each.resource.kind, each.key) for each in found] == [
        ("VirtualControlPlane", "acme/prod"),
        ("SliceClaim", "acme/prod-default"),
        ("SliceClaim", "acme/prod-gpu"),
    ]
    plane, *claims = found
    assert isinstance(plane, VirtualControlPlane)
    assert plane.spec.sleep.after_idle_seconds == 600
    assert plane.metadata.owner_references[0].uid == ""
    assert [each.spec.count for each in claims if isinstance(each, SliceClaim)] == [2, 1]


def test_render_refuses_a_template_that_the_files_do_not_have() -> None:
    """X03: without a cluster, no other place has it."""
    with pytest.raises(InputError, match=r"'acme/prod': .*no ClusterTemplate 'lean'.*: add it to these files"):
        render(Manifests([], [], [prod(template="lean")]))


def test_files_have_clusters_and_templates(tmp_path: Path) -> None:
    """X03: with the fields of both checked as the API server does."""
    file = tmp_path / "all.yaml"
    head = "apiVersion: tenantry.dev/v1alpha1\n"
    cluster = f"{head}kind: DedicatedCluster\nmetadata: {{name: prod, namespace: acme}}\nspec: {{template: lean}}\n"
    template = f"{head}kind: ClusterTemplate\nmetadata: {{name: lean}}\nspec: {{versions: ['1.36']}}\n"
    file.write_text(f"{cluster}---\n{template}")
    found = read_manifests([str(file)])
    assert [each.spec.template for each in found.clusters] == ["lean"]
    assert [each.spec.versions for each in found.templates] == [("1.36",)]
    file.write_text(f"{cluster.replace(', namespace: acme', '')}---\n{template.replace('1.36', '1')}")
    with pytest.raises(InputError) as told:
        read_manifests([str(file)])
    assert "document 1: metadata.namespace must be given" in str(told.value)
    assert "document 2: spec.versions[0]" in str(told.value)


def settled() -> World:
    """Return the tenant acme."""
    world = world_of()
    world.put_in(Namespace.resource, {"metadata": {"name": "kube-system", "uid": CLUSTER_UID}})
    settle(world)
    return world


def drift(world: World, manifests: Manifests) -> list[TenantDrift]:
    """Return what would change if files were applied."""
    return asyncio.run(find(WorldClient(world, lambda: "none"), (), manifests))


def test_diff_shows_a_cluster_with_its_children() -> None:
    """X03: the object of the file first, and what the operator would write then."""
    world = settled()
    shared, found = drift(world, Manifests([], [], [prod(template="lean")], [LEAN]))
    assert [(each.kind, each.name) for each in shared.changes] == [("ClusterTemplate", "lean")]
    assert found.tenant == "acme"
    assert [(each.action, each.kind, each.name) for each in found.changes] == [
        (StepAction.CREATE, "DedicatedCluster", "prod"),
        (StepAction.CREATE, "VirtualControlPlane", "prod"),
        (StepAction.CREATE, "SliceClaim", "prod-default"),
        (StepAction.CREATE, "SliceClaim", "prod-gpu"),
    ]
    plane = found.changes[1].after
    assert plane is not None
    assert plane["spec"]["sleep"] == {"afterIdleSeconds": 600}


def test_diff_names_what_keeps_a_cluster_from_being_created() -> None:
    """X03: with the words of the condition."""
    world = settled()
    (found,) = drift(world, Manifests([], [], [prod(template="big")]))
    (blocked,) = found.blocked
    assert blocked.reason == reasons.UNKNOWN_TEMPLATE
    assert blocked.message.startswith("DedicatedCluster 'acme/prod': spec.template: there is no ClusterTemplate 'big'")


def test_diff_shows_what_a_cluster_that_runs_would_get() -> None:
    """X03: a lower number of nodes does not change the claim before the nodes are back."""
    world = settled()
    first = prod()
    world.create(first)
    for each in render(Manifests([], [], [first])):
        meta = each.metadata
        uid = world.get(DedicatedCluster.resource, "acme/prod")["metadata"]["uid"]
        owner = replace(meta.owner_references[0], uid=uid)
        world.create(replace(each, metadata=replace(meta, owner_references=(owner,))))
    (found,) = drift(world, Manifests([], [], [prod(nodes=5)]))
    claims = [each for each in found.changes if each.kind == "SliceClaim"]
    assert [(each.action, each.name) for each in claims] == [(StepAction.UPDATE, "prod-default")]
    assert claims[0].after is not None
    assert claims[0].after["spec"]["count"] == 5


def test_the_example_is_rendered_with_its_template() -> None:
    """X03: `tenantry render -f examples/clusters`."""
    found = render(read_manifests([str(ROOT / "examples" / "clusters")]))
    (plane,) = (each for each in found if isinstance(each, VirtualControlPlane))
    assert (plane.key, plane.spec.sleep.after_idle_seconds) == ("atlas/prod", 3600)
    assert [each.key for each in found if isinstance(each, SliceClaim)] == ["atlas/prod-default", "atlas/prod-batch"]


CLOUD = ClusterTemplate(
    metadata=ObjectMeta(name="cloud"),
    spec=ClusterTemplateSpec(
        versions=("1.36",),
        cluster_api=ClusterApiClass(
            class_ref=ClassReference(name="c", namespace="classes"),
            worker_class="node",
            variables=(ClassVariable(name="zone", value="a"),),
        ),
    ),
)


def test_render_prints_the_cluster_that_cluster_api_builds() -> None:
    """X03: the template decides, as if Cluster API were installed; nothing is hosted."""
    manifests = Manifests([], [], [prod(template="cloud")], [CLOUD])
    assert render(manifests) == []
    (found,) = render_clusters(manifests)
    assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == (
        "cluster.x-k8s.io/v1beta2",
        "Cluster",
        "prod",
    )
    assert found["metadata"]["ownerReferences"][0]["uid"] == ""
    topology = found["spec"]["topology"]
    assert topology["classRef"] == {"name": "c", "namespace": "classes"}
    assert topology["version"] == "v1.36.0"
    pools = topology["workers"]["machineDeployments"]
    assert [(each["name"], each["replicas"]) for each in pools] == [("default", 2), ("gpu", 1)]
    hosted = Manifests([], [], [prod(template="cloud", provider=ClusterProvider.HOSTED)], [CLOUD])
    assert (render_clusters(hosted), len(render(hosted))) == ([], 3)


def with_cluster_api(world: World) -> None:
    """Install Cluster API with the class of CLOUD in a world."""
    world.put_in(
        CRDS, {"metadata": {"name": CLUSTERS.full_name}, "spec": {"versions": [{"name": "v1beta2", "served": True}]}}
    )
    world.put_in(Namespace.resource, {"metadata": {"name": "classes"}})
    world.put_in(CLUSTER_CLASSES, {"metadata": {"name": "c", "namespace": "classes"}, "spec": {}})
    world.put_in(CLUSTERS, {"metadata": {"name": "of-another", "namespace": "classes"}})


def test_diff_shows_the_cluster_that_cluster_api_would_build() -> None:
    """X03: only if Cluster API is installed does `Auto` mean it; what is missing is named."""
    world = settled()
    manifests = Manifests([], [], [prod(template="cloud")], [CLOUD])

    def kinds() -> list[str]:
        return [each.kind for each in drift(world, manifests)[1].changes]

    assert kinds() == ["DedicatedCluster", "VirtualControlPlane", "SliceClaim", "SliceClaim"]
    with_cluster_api(world)
    assert kinds() == ["DedicatedCluster", "Cluster"]
    world.delete(CLUSTER_CLASSES, "classes/c")
    (blocked,) = drift(world, manifests)[1].blocked
    assert (blocked.reason, "no ClusterClass 'classes/c'" in blocked.message) == (reasons.UNKNOWN_CLASS, True)


@settings(max_examples=20, deadline=None)
@given(
    nodes=st.integers(0, 5),
    pools=st.lists(st.sampled_from(["gpu", "batch", "web"]), unique=True, max_size=3),
    later=st.integers(0, 5),
    edited=st.booleans(),
)
def test_a_second_plan_of_a_cluster_of_cluster_api_is_empty(
    nodes: int, pools: list[str], later: int, *, edited: bool
) -> None:
    """X03: whatever the pools, after a change of the spec, and with what others set in the Cluster."""
    world = settled()
    with_cluster_api(world)
    world.create(CLOUD)

    def spec(count: int) -> DedicatedCluster:
        return prod(template="cloud", nodes=count, pools=tuple(NodePool(name=name, count=count) for name in pools))

    def settle_clusters() -> None:
        WorldCluster(world, [DedicatedClusterController()], faults=lambda: "none").settle()

    world.create(spec(nodes))
    settle_clusters()
    assert drift(world, Manifests([], [], [spec(nodes)]))[0].changes == ()
    if edited:
        topology = world.get(CLUSTERS, "acme/prod")["spec"]["topology"]
        deployments = [{**each, "minReadySeconds": 1} for each in topology["workers"]["machineDeployments"]]
        deployments.append({"class": "node", "name": "theirs", "replicas": 1})
        world.patch(CLUSTERS, "acme/prod", {"spec": {"topology": {"workers": {"machineDeployments": deployments}}}})
        assert drift(world, Manifests([], [], [spec(nodes)]))[0].changes == ()
    (found,) = drift(world, Manifests([], [], [spec(later)]))
    changed = [each.kind for each in found.changes]
    assert changed == ([] if later == nodes else ["DedicatedCluster", "Cluster"])
    world.patch(
        DedicatedCluster.resource, "acme/prod", {"spec": {"nodes": later, **msgspec.to_builtins(spec(later).spec)}}
    )
    settle_clusters()
    assert drift(world, Manifests([], [], [spec(later)]))[0].changes == ()
