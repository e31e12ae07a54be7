"""Tenants with nodes of their own: isolation.nodes Slice, and status.isolationClass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import (
    DEFAULT_GRACE_SECONDS,
    MAX_NAME,
    NodeSelector,
    OwnNodes,
    SelectorOperator,
    SelectorRequirement,
    SliceClaim,
    SliceClaimSpec,
    slice_name,
)
from tenantry.api.subnamespace import Inheritance, Mode
from tenantry.api.tenant import IsolationClass, NodesChoice, Tenant
from tenantry.controllers import ownnodes
from tenantry.controllers.tenant import desired
from tenantry.controllers.tenant.status import isolation_class
from tenantry.engine.cache import Change
from tenantry.views.drift.rendering import render
from tenantry.views.manifests import Manifests
from tenantry.world import objectcounts
from tenantry.world.validation import validate_tenant
from testkit.model import World
from testkit.sliceworld import PART, SliceWorld
from testkit.treeworld import add_subnamespace
from testkit.worlds import CLUSTER_UID, tenant, user

Json = dict[str, Any]
CLAIMS = SliceClaim.resource
SLICE: Json = {"spec": {"isolation": {"nodes": "Slice"}}}
SHARED: Json = {"spec": {"isolation": {"nodes": None, "slice": None}}}


def with_nodes(nodes: OwnNodes | None = None, name: str = "acme") -> Tenant:
    """Return a tenant with nodes of its own."""
    found = tenant(name)
    isolation = replace(found.spec.isolation, nodes=NodesChoice.SLICE)
    isolation = replace(isolation, slice=nodes) if nodes is not None else isolation
    return replace(found, spec=replace(found.spec, isolation=isolation))


def ask(world: SliceWorld, **slice_: object) -> None:
    """Give the tenant acme nodes of its own."""
    isolation = {"nodes": "Slice", **({"slice": slice_} if slice_ else {})}
    world.world.patch(Tenant.resource, "acme", {"spec": {"isolation": isolation}})
    world.settle()


def of_tenant(world: World, type_: str) -> Json:
    """Return a condition of the tenant acme; {} if it has none of that type."""
    conditions: list[Json] = world.get(Tenant.resource, "acme")["status"]["conditions"]
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


def claim(world: SliceWorld) -> Json:
    """Return the SliceClaim of the tenant."""
    return world.world.get(CLAIMS, "acme/acme")


def spec_of(world: SliceWorld) -> Json:
    """Return the spec of the tenant's claim, without the parts that are empty."""
    return {key: value for key, value in claim(world)["spec"].items() if value != {}}


def core_labels(world: SliceWorld) -> Json:
    """Return the labels of the core namespace."""
    labels: Json = world.world.get(Namespace.resource, "acme")["metadata"]["labels"]
    return labels


def test_the_tenant_is_ready_when_its_nodes_are_bound() -> None:
    """E13: the claim is charged and bound as any other, and Ready means that pods can run."""
    world = SliceWorld(quota={"cpu": "9", "memory": "64Gi"})
    ask(world, count=2)
    ready = of_tenant(world.world, reasons.READY)
    assert (ready["status"], ready["reason"]) == ("False", reasons.NODES_INSUFFICIENT)
    assert ready["message"].startswith("SliceClaim 'acme/acme': ")
    assert of_tenant(world.world, reasons.NODES_READY)["message"] == ready["message"]
    assert core_labels(world)[marks.OWN_NODES] == "true"
    assert marks.SLICE not in core_labels(world)
    world.node("a")
    world.node("b")
    world.enforce_quotas()
    found = claim(world)
    assert found["status"]["state"] == "Bound", found
    assert spec_of(world) == {"mode": "Dynamic", "users": "Everybody", "count": 2}
    assert found["metadata"]["labels"][marks.TENANT] == "acme"
    assert of_tenant(world.world, reasons.NODES_READY)["status"] == "True"
    assert of_tenant(world.world, reasons.READY)["status"] == "True"
    assert core_labels(world)[marks.SLICE] == slice_name("acme", found["metadata"]["uid"])
    before = world.world.get(Tenant.resource, "acme"), found
    world.restart().settle(60)
    assert (world.world.get(Tenant.resource, "acme"), claim(world)) == before


def test_a_quota_that_does_not_cover_the_nodes_is_reported() -> None:
    """E12: what is missing is in the condition of the Tenant, and the claim is not bound in part."""
    world = SliceWorld(quota={"cpu": "5", "memory": "64Gi"})
    world.node("a")
    world.node("b")
    ask(world, count=2)
    world.enforce_quotas()
    ready = of_tenant(world.world, reasons.NODES_READY)
    assert (ready["status"], ready["reason"]) == ("False", reasons.QUOTA_INSUFFICIENT)
    assert "requests.cpu" in ready["message"]
    assert of_tenant(world.world, reasons.READY)["status"] == "False"
    assert world.state("acme") == ("Pending", reasons.QUOTA_INSUFFICIENT)
    assert [world.label(), *map(world.marks, "ab")] == ["", {"taints": []}, {"taints": []}]


def test_edits_are_brought_back_and_a_deleted_claim_is_created_again() -> None:
    """E13: what an administrator does by hand; the grace period is not the tenant's."""
    world = SliceWorld()
    world.node("a")
    ask(world)
    edits = {
        "spec": {
            "count": 3,
            "mode": "Manual",
            "users": "Subnamespaces",
            "nodeNames": ["a"],
            "expiresAt": "2030-01-01T00:00:00Z",
            "gracePeriodSeconds": 300,
        },
        "metadata": {"labels": {marks.TENANT: None}, "ownerReferences": None},
    }
    world.world.patch(CLAIMS, "acme/acme", edits)
    world.settle()
    found = claim(world)
    assert spec_of(world) == {"mode": "Dynamic", "users": "Everybody", "gracePeriodSeconds": 300}
    assert found["metadata"]["labels"][marks.TENANT] == "acme"
    assert [each["kind"] for each in found["metadata"]["ownerReferences"]] == ["Tenant"]
    world.world.delete(CLAIMS, "acme/acme")
    world.settle()
    assert claim(world)["metadata"]["uid"] != found["metadata"]["uid"]
    assert claim(world)["status"]["state"] == "Bound"


def test_back_to_shared_the_nodes_are_released() -> None:
    """E13: the claim is deleted, and the namespaces run pods anywhere again."""
    world = SliceWorld()
    world.node("a")
    ask(world)
    assert claim(world)["status"]["state"] == "Bound"
    world.world.patch(Tenant.resource, "acme", SHARED)
    world.settle()
    assert world.world.list(CLAIMS) == []
    assert world.slices == []
    assert not {marks.SLICE, marks.OWN_NODES} & set(core_labels(world))
    assert of_tenant(world.world, reasons.NODES_READY) == {}
    assert of_tenant(world.world, reasons.READY)["status"] == "True"


def test_the_claim_follows_the_tenant() -> None:
    """E13: another number of nodes in the Tenant is another number in the claim."""
    world = SliceWorld()
    for name in ("a", "b"):
        world.node(name)
    ask(world)
    ask(world, count=2, selector={"matchLabels": {"disk": "ssd"}}, perNode={"cpu": 2})
    spec = claim(world)["spec"]
    assert (spec["count"], spec["selector"], spec["perNode"]) == (2, {"matchLabels": {"disk": "ssd"}}, {"cpu": 2})
    ask(world, count=1, selector=None, perNode=None)
    assert spec_of(world) == {"mode": "Dynamic", "users": "Everybody"}


def test_a_claim_of_users_becomes_that_of_the_tenant() -> None:
    """E13: with the nodes that it has."""
    world = SliceWorld()
    world.node("a")
    world.claim("acme", users="Everybody", gracePeriodSeconds=DEFAULT_GRACE_SECONDS)
    world.settle()
    before = claim(world)
    assert before["status"]["state"] == "Bound"
    ask(world)
    found = claim(world)
    assert found["metadata"]["uid"] == before["metadata"]["uid"]
    assert ownnodes.is_kept(_typed(found))
    assert found["status"]["nodes"] == ["a"]
    assert of_tenant(world.world, reasons.READY)["status"] == "True"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "x/v1", "kind": "Widget", "name": "w", "uid": "w", "controller": True}
                    ]
                }
            },
            "it belongs to Widget 'w'",
        ),
        ({"metadata": {"finalizers": ["example.com/held"]}}, "it has finalizers of users"),
        ({"spec": {"sharing": "Part", "perNode": {"cpu": "1", "memory": "1Gi"}}}, "it is for parts of nodes"),
    ],
    ids=["foreign owner", "finalizers", "parts"],
)
def test_a_claim_of_another_owner_is_left_alone(change: Json, told: str) -> None:
    """E13: the condition says what to do; neither changed nor deleted, not even when the field goes back."""
    world = SliceWorld()
    world.claim("acme")
    world.world.patch(CLAIMS, "acme/acme", change)
    before = claim(world)["spec"], claim(world)["metadata"].get("ownerReferences")
    ask(world)
    ready = of_tenant(world.world, reasons.NODES_READY)
    assert (ready["status"], ready["reason"]) == ("False", reasons.OBJECT_EXISTS)
    assert told in ready["message"]
    assert of_tenant(world.world, reasons.STALLED)["status"] == "True"
    world.world.patch(Tenant.resource, "acme", SHARED)
    world.settle()
    assert (claim(world)["spec"], claim(world)["metadata"].get("ownerReferences")) == before


def test_a_claim_of_users_stays_if_the_field_is_shared() -> None:
    """E13: only what a Tenant kept is deleted."""
    world = SliceWorld()
    world.claim("acme")
    world.settle()
    assert claim(world)["spec"]


def test_every_namespace_of_the_tree_waits_for_nodes() -> None:
    """E12: Subtenants too, which do not use the nodes of their parent: no pod of the tenant is on shared nodes."""
    world = SliceWorld()
    world.node("a")
    team = add_subnamespace(world.world)
    customer = add_subnamespace(
        world.world, "customer", mode=Mode.SUBTENANT, owners=(user("zoe"),), inheritance=Inheritance()
    )
    ask(world)
    labels = {each: world.world.get(Namespace.resource, each)["metadata"]["labels"] for each in (team, customer)}
    assert all(each[marks.OWN_NODES] == "true" for each in labels.values())
    assert marks.SLICE in labels[team]
    assert marks.SLICE not in labels[customer]
    world.world.patch(Tenant.resource, "acme", SHARED)
    world.settle()
    for each in (team, customer):
        assert not {marks.SLICE, marks.OWN_NODES} & set(world.world.get(Namespace.resource, each)["metadata"]["labels"])


def test_a_new_child_uses_the_nodes_at_once() -> None:
    """E13: whether the claim is for the whole tree, or names the child."""
    world = SliceWorld()
    for name in ("a", "b"):
        world.node(name)
    ask(world)
    fast = world.claim("fast", users="Subnamespaces", subnamespaces=["web"])
    world.settle()
    for child in ("team", "web"):
        namespace = add_subnamespace(world.world, child)
        world.settle(20)
        own = slice_name("acme", claim(world)["metadata"]["uid"])
        assert world.label(namespace) == (fast if child == "web" else own)


@pytest.mark.parametrize("spec", [{"count": 9}, PART], ids=["whole", "part"])
def test_a_nearer_claim_has_the_namespace_until_it_ends(spec: Json) -> None:
    """E12: while it gets no nodes, the policy refuses the pods; afterwards they run on those of the tenant again."""
    world = SliceWorld()
    world.node("a")
    ask(world)
    team = add_subnamespace(world.world)
    world.settle()
    own = world.label(team)
    assert own
    meta = {"name": "near", "namespace": team}
    world.world.put_in(CLAIMS, {"metadata": meta, "spec": {"users": "Everybody", **spec}})
    world.settle(20)
    assert (world.label(), world.label(team), world.label(team, marks.OWN_NODES)) == (own, "", "true")
    world.world.delete(CLAIMS, f"{team}/near")
    world.settle(20)
    assert world.label(team) == own


def test_an_older_claim_that_has_the_namespace_is_named() -> None:
    """E13: of two claims for the whole tree, the older has the namespace."""
    world = SliceWorld()
    for name in ("a", "b"):
        world.node(name)
    world.claim("fast", users="Everybody")
    world.settle()
    ask(world)
    for name, year in (("fast", 2025), ("acme", 2026)):
        world.world.patch(CLAIMS, f"acme/{name}", {"metadata": {"creationTimestamp": f"{year}-01-01T00:00:00Z"}})
    world.settle()
    told = of_tenant(world.world, reasons.NODES_READY)
    assert (told["status"], told["reason"]) == ("False", reasons.NODES_RESERVED)
    assert "an older SliceClaim with `users: Everybody` has the namespace: delete it" in told["message"]
    world.world.delete(CLAIMS, "acme/fast")
    world.settle()
    assert of_tenant(world.world, reasons.NODES_READY)["status"] == "True"


def test_the_claim_has_a_place_in_the_count_of_objects() -> None:
    """E13: users cannot take the place of the operator's claim."""
    limits = replace(objectcounts.DEFAULT, core={"sliceclaims.tenantry.dev": 120})

    def most(value: Tenant) -> str:
        children = desired.children(value, CLUSTER_UID, limits=limits)
        quotas = [each.object for each in children if isinstance(each.object, ResourceQuota)]
        return next(each.spec.hard["count/sliceclaims.tenantry.dev"] for each in quotas)

    assert (most(tenant()), most(with_nodes())) == ("120", "121")


def test_render_has_the_claim() -> None:
    """A06: without a uid, which only a cluster gives."""
    found = [
        each for each in render(Manifests(tenants=[with_nodes()], subnamespaces=[])) if isinstance(each, SliceClaim)
    ]
    assert [(each.key, each.metadata.owner_references[0].uid) for each in found] == [("acme/acme", "")]


def test_what_cannot_be_is_refused_before_it_is_sent() -> None:
    """E15: as the CRD does."""
    assert validate_tenant(with_nodes(OwnNodes(count=2))) == []
    found = tenant()
    isolation = replace(found.spec.isolation, slice=OwnNodes())
    without = replace(found, spec=replace(found.spec, isolation=isolation))
    assert [str(each) for each in validate_tenant(without)] == [
        "spec.isolation.slice must not be set unless nodes is Slice"
    ]
    odd = OwnNodes(
        per_node={"cpu": "-1"},
        total={"foo bar": 1},
        selector=NodeSelector(match_expressions=(SelectorRequirement(key="disk", operator=SelectorOperator.IN),)),
    )
    assert [each.path for each in validate_tenant(with_nodes(odd))] == [
        "spec.isolation.slice.perNode[cpu]",
        "spec.isolation.slice.total",
        "spec.isolation.slice.selector.matchExpressions[0].values",
    ]
    assert validate_tenant(with_nodes(name="a" * MAX_NAME)) == []
    assert "at most 46 characters" in str(validate_tenant(with_nodes(name="a" * (MAX_NAME + 1)))[0])


def test_a_change_of_the_status_alone_is_news_only_if_it_is_reported() -> None:
    """E13: nodes and namespaces of a claim change without the Tenant being looked at."""
    wanted = ownnodes.claim_of(with_nodes(OwnNodes(selector=NodeSelector(match_labels={"a": "b"}))))
    assert wanted is not None
    more = replace(wanted, status=replace(wanted.status, nodes=("a",)))
    assert ownnodes.keys(Change(wanted, more)) == []
    assert ownnodes.keys(Change(None, wanted)) == ["acme"]
    other = SliceClaim(metadata=ObjectMeta(name="fast", namespace="acme"), spec=SliceClaimSpec())
    assert ownnodes.keys(Change(None, other)) == []


def test_a_mark_without_the_owner_is_no_proof() -> None:
    """E13: a later Tenant of the name deletes nothing by a label alone."""
    wanted = ownnodes.claim_of(with_nodes())
    assert wanted is not None
    owner = OwnerReference(api_version="tenantry.dev/v1alpha1", kind="Tenant", name="acme", uid="else", controller=True)
    other = replace(wanted, metadata=replace(wanted.metadata, owner_references=(owner,)))
    assert len(ownnodes.writes(tenant(), wanted)) == 1
    assert ownnodes.writes(tenant(), other) == ()


# -- the class ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has_plane", "is_sandboxed", "has_nodes", "expected"),
    [
        (False, False, False, IsolationClass.SOFT),
        (False, True, True, IsolationClass.SOFT),
        (True, False, False, IsolationClass.SOFT),
        (True, True, False, IsolationClass.HARD),
        (True, False, True, IsolationClass.HARD),
    ],
)
def test_the_class_is_what_holds(
    *, has_plane: bool, is_sandboxed: bool, has_nodes: bool, expected: IsolationClass
) -> None:
    """B01: an attacker passes the weakest wall."""
    found = isolation_class(has_plane=has_plane, is_sandboxed=is_sandboxed, has_nodes=has_nodes)
    assert found is expected


def test_a_wish_is_no_isolation() -> None:
    """B01: the class is about what is in force: there is no sandbox."""
    world = SliceWorld()
    world.world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"runtime": RuntimeChoice.SANDBOXED.value}}})
    world.settle()
    assert world.world.get(Tenant.resource, "acme")["status"]["isolationClass"] == "soft"


def _typed(found: Json) -> SliceClaim:
    return msgspec.convert(found, SliceClaim)
