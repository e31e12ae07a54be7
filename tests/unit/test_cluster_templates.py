"""H04: what a DedicatedCluster takes of a ClusterTemplate, what the template refuses, and what it never changes."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusteraddons import AddOnMode, AddOnName, ClusterAddOn
from tenantry.api.clustertemplate import (
    ClusterTemplate,
    ClusterTemplateSpec,
    OfferedDatastore,
    ResourceLimits,
    TakenTemplate,
    TemplateDefaults,
    TemplateLimits,
)
from tenantry.api.dedicatedcluster import ClusterControlPlane, ClusterSleep, DedicatedClusterSpec, NodePool
from tenantry.api.model import ObjectMeta
from tenantry.api.planehosting import PlaneHosting
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.virtualcontrolplane import (
    DatastoreKind,
    PlaneDatastore,
    PlaneRequests,
    PlaneResources,
    VirtualControlPlane,
)
from tenantry.controllers.dedicatedcluster import template as taken_up
from testkit.clusterworld import ClusterWorld

SMALL = ClusterTemplate(
    metadata=ObjectMeta(name="small", generation=1),
    spec=ClusterTemplateSpec(
        versions=("1.35", "1.36"),
        defaults=TemplateDefaults(
            replicas=3,
            datastore=OfferedDatastore(kind=DatastoreKind.SHARED_ETCD),
            resources=PlaneResources(requests=PlaneRequests(cpu="200m")),
            after_idle_seconds=600,
        ),
        limits=TemplateLimits(
            nodes=3,
            replicas=3,
            resources=ResourceLimits(requests_cpu="1"),
            datastores=(DatastoreKind.SHARED_ETCD,),
            after_idle_seconds=3600,
        ),
    ),
)


def of(spec: DedicatedClusterSpec, template: ClusterTemplate | None = SMALL) -> ClusterWorld:
    """Return a cluster in a world that has one template."""
    there = ClusterWorld(spec)
    there.template = template
    there.settle()
    return there


def plane(there: ClusterWorld) -> VirtualControlPlane:
    """Return the control plane of a cluster, which is there."""
    assert there.plane is not None
    return there.plane


def changed(**fields: object) -> ClusterTemplate:
    """Return the template with other defaults."""
    spec = replace(SMALL.spec, defaults=replace(SMALL.spec.defaults, **fields))
    return replace(SMALL, spec=spec, metadata=replace(SMALL.metadata, generation=2))


def test_what_the_spec_leaves_out_is_that_of_the_template() -> None:
    """H04: the latest version that it offers, too."""
    there = of(DedicatedClusterSpec(template="small"))
    spec = plane(there).spec
    assert (spec.version, spec.replicas, spec.datastore.kind) == ("1.36", 3, DatastoreKind.SHARED_ETCD)
    assert (spec.resources.requests.cpu, spec.sleep.after_idle_seconds) == ("200m", 600)
    assert there.condition(reasons.TEMPLATE_CURRENT)[:2] == ("True", reasons.ESTABLISHED)


def test_a_template_that_requires_a_sandbox_has_it_in_each_of_its_clusters() -> None:
    """H04: a cluster that chooses Shared, too; without such a template, the cluster chooses."""
    strict = replace(SMALL, spec=replace(SMALL.spec, runtime=RuntimeChoice.SANDBOXED, hosting=PlaneHosting.PODS))
    shared = ClusterControlPlane(runtime=RuntimeChoice.SHARED)
    for control_plane in (ClusterControlPlane(), shared):
        spec = plane(of(DedicatedClusterSpec(template="small", control_plane=control_plane), strict)).spec
        assert (spec.runtime, spec.hosting) == (RuntimeChoice.SANDBOXED, PlaneHosting.PODS)
    chosen = ClusterControlPlane(runtime=RuntimeChoice.SANDBOXED)
    spec = plane(of(DedicatedClusterSpec(template="small", control_plane=chosen))).spec
    assert (spec.runtime, spec.hosting) == (RuntimeChoice.SANDBOXED, PlaneHosting.AUTO)


def test_a_cluster_that_names_another_template_stays_in_its_sandbox() -> None:
    """H04: an owner chooses the template, and must not choose what administrators require away."""
    strict = replace(SMALL, spec=replace(SMALL.spec, runtime=RuntimeChoice.SANDBOXED, hosting=PlaneHosting.PODS))
    there = of(DedicatedClusterSpec(template="small"), strict)
    there.template = replace(SMALL, metadata=replace(SMALL.metadata, name="free"))
    there.change(replace(there.found.spec, template="free"))
    there.settle()
    there.settle()
    spec = plane(there).spec
    assert (spec.runtime, spec.hosting) == (RuntimeChoice.SANDBOXED, PlaneHosting.PODS)
    assert there.condition(reasons.TEMPLATE_CURRENT)[0] == "True"


def test_what_the_spec_sets_counts() -> None:
    """H04: one replica is a value, not the absence of one."""
    spec = DedicatedClusterSpec(
        template="small",
        version="1.35",
        control_plane=ClusterControlPlane(replicas=1),
        sleep=ClusterSleep(after_idle_seconds=60),
    )
    found = plane(of(spec)).spec
    assert (found.version, found.replicas, found.sleep.after_idle_seconds) == ("1.35", 1, 60)


def test_a_cluster_without_a_template_gets_the_default_one_when_it_is_created_and_never_later() -> None:
    """H04: an administrator who sets a default does not change clusters that run."""
    first = of(DedicatedClusterSpec())
    first.default_template = "small"
    first.settle()
    assert plane(first).spec.replicas == 1
    assert first.condition(reasons.TEMPLATE_CURRENT) == ("", "", "")
    second = ClusterWorld(DedicatedClusterSpec())
    second.template, second.default_template = SMALL, "small"
    second.settle()
    assert plane(second).spec.replicas == 3
    second.default_template = ""
    second.settle()
    assert plane(second).spec.replicas == 3


def test_a_control_plane_of_an_earlier_version_of_the_operator_keeps_what_it_has() -> None:
    """H04: its cluster has not recorded what it has taken."""
    there = of(DedicatedClusterSpec())
    there.cluster = replace(there.found, status=replace(there.found.status, template=UNSET))
    there.default_template = "small"
    assert there.step() == []
    assert plane(there).spec.replicas == 1


def test_a_template_that_changes_reaches_no_cluster_that_runs() -> None:
    """H04: the condition names what is different, and how to take it."""
    there = of(DedicatedClusterSpec(template="small"))
    there.template = changed(replicas=1, after_idle_seconds=1200)
    assert there.step() == []
    status, reason, message = there.condition(reasons.TEMPLATE_CURRENT)
    assert (status, reason) == ("False", reasons.TEMPLATE_CHANGED)
    assert (
        "spec.controlPlane.replicas 3 is now 1, spec.sleep.afterIdleSeconds 600 is now 1200; to take a new one, set the"
        " field"
    ) in message
    assert there.condition(reasons.STALLED)[0] != "True"


def test_a_cluster_that_names_another_template_takes_its_defaults_and_keeps_its_version_and_datastore() -> None:
    """H04: nothing moves to another datastore, and no version comes by itself."""
    there = of(DedicatedClusterSpec(template="small"))
    there.template = replace(
        changed(replicas=1, datastore=OfferedDatastore(), after_idle_seconds=1200), metadata=ObjectMeta(name="large")
    )
    there.change(replace(there.found.spec, template="large"))
    there.settle()
    spec = plane(there).spec
    assert (spec.replicas, spec.sleep.after_idle_seconds) == (1, 1200)
    assert (spec.datastore.kind, spec.version) == (DatastoreKind.SHARED_ETCD, "1.36")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            DedicatedClusterSpec(version="1.34"),
            "spec.version must be one that ClusterTemplate 'small' offers, not 1.34",
        ),
        (DedicatedClusterSpec(nodes=4), "spec.nodes and spec.pools must have at most 3 nodes together, not 4"),
        (DedicatedClusterSpec(nodes=2, pools=(NodePool(name="gpu", count=2),)), "at most 3 nodes together, not 4"),
        (
            DedicatedClusterSpec(control_plane=ClusterControlPlane(replicas=5)),
            "spec.controlPlane.replicas must be at most 3, not 5, by the limit of ClusterTemplate 'small'",
        ),
        (
            DedicatedClusterSpec(
                control_plane=ClusterControlPlane(resources=PlaneResources(requests=PlaneRequests(cpu=2)))
            ),
            "spec.controlPlane.resources.requests.cpu must be at most 1, not 2",
        ),
        (
            DedicatedClusterSpec(control_plane=ClusterControlPlane(replicas=1, datastore=PlaneDatastore())),
            "spec.controlPlane.datastore.kind must be one of SharedEtcd, not SQLite",
        ),
        (
            DedicatedClusterSpec(control_plane=ClusterControlPlane(datastore=PlaneDatastore())),
            "spec.controlPlane.replicas must be 1, not 3: the datastore SQLite has one process",
        ),
        (
            DedicatedClusterSpec(sleep=ClusterSleep(after_idle_seconds=0)),
            "spec.sleep.afterIdleSeconds must be more than 0 and at most 3600, not 0, for never",
        ),
    ],
)
def test_what_a_template_does_not_offer_is_not_created(spec: DedicatedClusterSpec, told: str) -> None:
    """H04: the condition names the field, the limit and the value."""
    there = of(replace(spec, template="small"))
    assert there.plane is None
    assert there.claims == {}
    status, reason, message = there.condition(reasons.STALLED)
    assert (status, reason) == ("True", reasons.INVALID_SPEC)
    assert told in message or any(told in each.message for each in taken_up.problems(taken_up.applied(there.inputs())))


@pytest.mark.parametrize(
    ("template", "told"), [(SMALL, "choose one of small"), (None, "'big': ask an administrator to create it")]
)
def test_an_unknown_template_is_reported_with_those_that_there_are(template: ClusterTemplate | None, told: str) -> None:
    """H04: and the cluster starts when it exists."""
    there = of(DedicatedClusterSpec(template="big"), template)
    status, reason, message = there.condition(reasons.STALLED)
    assert (status, reason) == ("True", reasons.UNKNOWN_TEMPLATE)
    assert "spec.template: there is no ClusterTemplate 'big'" in message
    assert told in message
    there.template = replace(SMALL, metadata=ObjectMeta(name="big"))
    there.settle()
    assert there.condition(reasons.STALLED)[0] != "True"


def test_a_lower_limit_takes_nothing_and_refuses_growth() -> None:
    """H04: a cluster with three nodes keeps them, gets no fourth one, and may shrink."""
    there = of(DedicatedClusterSpec(template="small", nodes=3))
    there.template = replace(SMALL, spec=replace(SMALL.spec, limits=TemplateLimits(nodes=1)))
    assert there.step() == []
    assert there.condition(reasons.STALLED)[0] != "True"
    there.change(replace(there.found.spec, nodes=4))
    assert there.step() == []
    assert "must have at most 3 nodes together, not 4" in there.condition(reasons.READY)[2]
    there.change(replace(there.found.spec, nodes=2))
    there.settle()
    assert there.condition(reasons.NODES_READY)[0] == "True"
    there.change(replace(there.found.spec, nodes=3))
    assert there.step() == []


def test_a_lower_limit_counts_for_no_nodes_that_a_cluster_has_released() -> None:
    """H04: one that sleeps without nodes has no claims; it gets back what it was allowed, and no more."""
    there = of(DedicatedClusterSpec(template="small", nodes=3))
    assert there.found.status.allowed_nodes == 3
    there.template = replace(SMALL, spec=replace(SMALL.spec, limits=TemplateLimits(nodes=1)))
    there.claims.clear()
    there.handovers.clear()
    there.settle()
    assert len(there.handovers) == 3
    there.claims.clear()
    there.change(replace(there.found.spec, nodes=4))
    there.settle()
    assert there.found.status.allowed_nodes == 3
    assert "must have at most 3 nodes together, not 4" in there.condition(reasons.READY)[2]


def test_claims_that_a_user_has_created_lift_no_limit() -> None:
    """H04: only nodes that the claims of the cluster's own pools were granted are what it has."""
    there = of(DedicatedClusterSpec(template="small", nodes=3))
    owned = there.claims["prod-default"]
    many = tuple(f"x-{number}" for number in range(9))
    for name in ("prod-other", "default"):
        there.claims[name] = replace(
            owned,
            metadata=replace(owned.metadata, name=name, uid=f"forged-{name}"),
            spec=replace(owned.spec, count=9),
            status=replace(owned.status, nodes=many),
        )
    there.claims["prod-default"] = replace(owned, spec=replace(owned.spec, count=9))
    there.change(replace(there.found.spec, nodes=4))
    told = [each.message for each in taken_up.problems(taken_up.applied(there.inputs()))]
    assert len(told) == 1
    assert "must have at most 3 nodes together, not 4" in told[0]


def test_a_claim_without_the_name_of_a_pool_is_no_claim_of_the_cluster() -> None:
    """H04: one with the name of a pool alone would stand for that of the pool."""
    there = of(DedicatedClusterSpec(nodes=1))
    owned = there.claims["prod-default"]
    metadata = replace(owned.metadata, name="zzz", uid="forged")
    there.claims["zzz"] = replace(owned, metadata=metadata)
    kept = replace(owned.metadata, name="prod-extra", uid="other", owner_references=())
    there.claims["prod-extra"] = replace(owned, metadata=kept)
    assert [each.metadata.name for each in there.inputs().own_claims] == ["prod-default"]
    # By the uid alone, a reference of another kind would pass the policy on these.
    (owner,) = owned.metadata.owner_references
    there.claims["prod-extra"] = replace(
        owned, metadata=replace(kept, owner_references=(replace(owner, kind="ConfigMap"),))
    )
    assert [each.metadata.name for each in there.inputs().own_claims] == ["prod-default"]


def test_a_template_that_is_deleted_leaves_its_clusters_as_they_are() -> None:
    """H04: they keep what they have, and do not grow."""
    there = of(DedicatedClusterSpec(template="small", nodes=2))
    there.template = None
    assert there.step() == []
    assert there.condition(reasons.STALLED)[0] != "True"
    assert there.condition(reasons.TEMPLATE_CURRENT)[:2] == ("False", reasons.UNKNOWN_TEMPLATE)
    there.change(replace(there.found.spec, nodes=3))
    assert there.step() == []
    assert "ClusterTemplate 'small' does not exist any more" in there.condition(reasons.READY)[2]


def test_a_change_of_the_datastore_says_what_to_do() -> None:
    """H04: the control plane would refuse it, and the cluster would not say why."""
    there = of(DedicatedClusterSpec())
    external = ClusterControlPlane(datastore=PlaneDatastore(kind=DatastoreKind.SHARED_ETCD))
    there.change(replace(there.found.spec, control_plane=external))
    assert there.step() == []
    assert "spec.controlPlane.datastore must stay OwnEtcd" in there.condition(reasons.READY)[2]


@pytest.mark.parametrize("stored", [UNSET, msgspec.convert({}, TakenTemplate)])
def test_a_cluster_of_an_earlier_version_keeps_sqlite(stored: TakenTemplate | UnsetType) -> None:
    """H04: the default of new clusters changed to OwnEtcd; earlier ones recorded SQLite by leaving it out."""
    assert plane(of(DedicatedClusterSpec())).spec.datastore.kind is DatastoreKind.OWN_ETCD
    sqlite = ClusterControlPlane(datastore=PlaneDatastore(kind=DatastoreKind.SQLITE))
    there = of(DedicatedClusterSpec(control_plane=sqlite))
    status = replace(there.found.status, template=stored)
    there.cluster = replace(there.found, spec=DedicatedClusterSpec(), status=status)
    assert there.step() == []
    there.settle()
    assert plane(there).spec.datastore.kind is DatastoreKind.SQLITE
    assert there.condition(reasons.STALLED)[0] != "True"


def test_add_ons_that_a_cluster_does_not_name_are_kept_as_its_template_says() -> None:
    """H04: each add-on for itself, and later changes of the template are reported only."""
    none = ClusterAddOn(name=AddOnName.CORE_DNS, mode=AddOnMode.NONE)
    once = ClusterAddOn(name=AddOnName.STORAGE, mode=AddOnMode.ONCE)
    own = ClusterAddOn(name=AddOnName.STORAGE)
    there = ClusterWorld(DedicatedClusterSpec(template="small", add_ons=(own,)))
    there.template = changed(add_ons=(none, once))
    there.settle()
    assert plane(there).spec.add_ons == (own, none)
    there.template = changed(add_ons=())
    assert there.step() == []
    assert "spec.addOns CoreDNS=None Storage=Once is now none" in there.condition(reasons.TEMPLATE_CURRENT)[2]
