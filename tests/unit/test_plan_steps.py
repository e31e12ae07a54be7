"""The consequences of planned changes, and what would be pruned."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import RoleBinding, RoleRef, Subject
from tenantry.api.model import ObjectMeta
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceClaimStatus
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec, SubnamespaceStatus
from tenantry.engine.plan import StepAction
from tenantry.engine.preview import Preview, merged
from tenantry.views.drift.applied import three_way
from tenantry.views.drift.pruned import pruned
from tenantry.views.drift.steps import Effect, PlannedStep, PlanSurroundings, StepAuthor, steps
from tenantry.views.pods import PodRequests

Json = dict[str, Any]

TREE = {
    "acme": {"tenantry.dev/tenant": "acme", "acme.tree.tenantry.dev/depth": "0"},
    "web-1": {
        "tenantry.dev/tenant": "acme",
        "acme.tree.tenantry.dev/depth": "1",
        "web-1.tree.tenantry.dev/depth": "0",
    },
    "api-1": {
        "tenantry.dev/tenant": "acme",
        "acme.tree.tenantry.dev/depth": "2",
        "web-1.tree.tenantry.dev/depth": "1",
        "api-1.tree.tenantry.dev/depth": "0",
    },
    "globex": {"tenantry.dev/tenant": "globex", "globex.tree.tenantry.dev/depth": "0"},
}


def subnamespace(name: str, parent: str, child: str, *, cascades: bool = False) -> Subnamespace:
    return Subnamespace(
        metadata=ObjectMeta(name=name, namespace=parent),
        spec=SubnamespaceSpec(mode=Mode.WORKSPACE, allow_cascading_deletion=cascades),
        status=SubnamespaceStatus(namespace=child),
    )


def pod(namespace: str, name: str, *, cpu: str = "1", node: str = "", created: str = "") -> PodRequests:
    found: Json = {
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
    }
    return msgspec.convert(found, PodRequests)


def around(*, cascades: bool = False, **more: Any) -> PlanSurroundings:  # noqa: ANN401 - its fields
    children = [subnamespace("web", "acme", "web-1", cascades=cascades), subnamespace("api", "web-1", "api-1")]
    return PlanSurroundings(namespaces=TREE, subnamespaces={each.key: each for each in children}, **more)


def change(kind: str, key: str, before: Json | None, after: Json | None) -> Preview:
    namespace, _, name = key.rpartition("/")
    action = StepAction.CREATE if before is None else StepAction.DELETE if after is None else StepAction.UPDATE
    return Preview(action=action, kind=kind, namespace=namespace, name=name, before=before, after=after)


def planned(found: Preview, world: PlanSurroundings) -> PlannedStep:
    (step,) = steps(StepAuthor.APPLY, [found], world)
    return step


def effects(found: Preview, world: PlanSurroundings) -> dict[str, tuple[str, ...]]:
    return {str(each.effect): each.objects for each in planned(found, world).consequences}


def test_a_tenant_ends_with_its_whole_tree() -> None:
    """The namespaces of the tenant and no others, their pods, and all whom their bindings name."""
    who = (Subject(kind="User", name="ada"), Subject(kind="ServiceAccount", name="ci", namespace="acme"))
    binding = RoleBinding(
        metadata=ObjectMeta(name="tenantry-owner", namespace="acme"),
        role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="tenantry-owner"),
        subjects=who,
    )
    world = around(pods=[pod("web-1", "a"), pod("globex", "b")], volumes={"api-1": 2}, bindings=[binding])
    step = planned(change("Tenant", "acme", {"spec": {}}, None), world)
    ends, lost = step.consequences
    assert ends.objects == ("Namespace/acme", "Namespace/api-1", "Namespace/web-1")
    assert ends.message == ("3 namespaces (acme, api-1, web-1), 1 pod, 2 PersistentVolumeClaims and all else inside")
    assert lost.effect is Effect.LOSES_ACCESS
    assert lost.objects == ("ServiceAccount acme/ci", "User ada")


def test_a_subnamespace_with_others_inside_does_not_end() -> None:
    found = change("Subnamespace", "acme/web", {"spec": {}}, None)
    assert effects(found, around())["Blocked"] == ("Subnamespace/web-1/api",)
    assert effects(found, around(cascades=True)) == {"Deletes": ("Namespace/api-1", "Namespace/web-1")}


def test_the_newest_pods_beyond_a_smaller_quota_are_named() -> None:
    """Three pods of one CPU, and a quota of two: one is too much. A pod that has ended counts for nothing."""
    ended = msgspec.convert(
        {"metadata": {"namespace": "acme", "name": "z"}, "status": {"phase": "Failed"}}, PodRequests
    )
    pods = [pod("acme", name, created=f"2026-01-0{day}T00:00:00Z") for day, name in ((1, "a"), (3, "c"), (2, "b"))]
    world = around(pods=[*pods, ended], used={"acme/tenantry-quota": {"requests.cpu": "3"}})
    before, after = ({"spec": {"hard": {"requests.cpu": cpu}}} for cpu in ("4", "2"))
    found = change("ResourceQuota", "acme/tenantry-quota", before, after)
    assert effects(found, world) == {"Shrinks": ("ResourceQuota/acme/tenantry-quota",), "NoLongerFits": ("Pod/acme/c",)}
    shrinks = planned(found, world).consequences[0]
    assert shrinks.message == "requests.cpu from 4 to 2"
    assert effects(change("ResourceQuota", "acme/tenantry-quota", after, before), world) == {}


def test_a_limit_where_there_was_none_shrinks() -> None:
    found = change("Tenant", "acme", {"spec": {}}, {"spec": {"quota": {"hard": {"cpu": 2}}}})
    assert planned(found, around()).consequences[0].message == "cpu from no limit to 2"


def test_a_claim_that_ends_drains_the_namespaces_on_its_nodes() -> None:
    """Also those of others, which tolerate everything; pods of the system are no part of a tenant."""
    claim = SliceClaim(
        metadata=ObjectMeta(name="gpu", namespace="acme", uid="c"),
        spec=SliceClaimSpec(),
        status=SliceClaimStatus(nodes=("n1",)),
    )
    pods = [pod("web-1", "a", node="n1"), pod("kube-system", "proxy", node="n1")]
    world = around(claims={"acme/gpu": claim}, on_nodes=pods)
    assert effects(change("SliceClaim", "acme/gpu", {"spec": {}}, None), world) == {"Drains": ("Namespace/web-1",)}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, {}, "1 node leaves the shared pool: pods of other namespaces there are evicted"),
        (
            {"count": 1},
            {"count": 3, "mode": "Manual"},
            "2 nodes leave the shared pool, once an administrator approves: pods of other namespaces there are evicted",
        ),
        (
            None,
            {"count": 2, "total": {"cpu": 64}},
            "at least 2 nodes leave the shared pool: pods of other namespaces there are evicted",
        ),
        (
            {"count": 2, "total": {"cpu": 64}},
            {"count": 2, "total": {"cpu": "512"}},
            "as many nodes as spec.total needs leave the shared pool: pods of other namespaces there are evicted",
        ),
        ({"count": 2, "total": {"cpu": 64, "memory": "1Gi"}}, {"count": 2, "total": {"cpu": "32"}}, ""),
        ({"count": 3}, {"count": 1}, ""),
        ({"count": 1}, {"count": 1, "users": "Everybody"}, ""),
        (None, {"count": 2, "sharing": "Part"}, ""),
    ],
)
def test_a_claim_for_more_nodes_drains_what_is_there(
    before: dict[str, Any] | None, after: dict[str, Any], told: str
) -> None:
    found = change("SliceClaim", "acme/gpu", None if before is None else {"spec": before}, {"spec": after})
    assert [each.message for each in planned(found, around()).consequences] == ([told] if told else [])


def test_a_claim_that_has_more_nodes_than_its_count_grows_from_these() -> None:
    claim = SliceClaim(
        metadata=ObjectMeta(name="gpu", namespace="acme", uid="c"),
        spec=SliceClaimSpec(count=1),
        status=SliceClaimStatus(nodes=("n1", "n2", "n3")),
    )
    world = around(claims={"acme/gpu": claim})
    same = change("SliceClaim", "acme/gpu", {"spec": {"count": 1}}, {"spec": {"count": 3}})
    assert planned(same, world).consequences == ()
    more = change("SliceClaim", "acme/gpu", {"spec": {"count": 1}}, {"spec": {"count": 4}})
    assert [each.message.split(" leave")[0] for each in planned(more, world).consequences] == ["1 node"]


def test_owners_of_control_planes_and_subjects_of_bindings_lose_access() -> None:
    ada, bob = {"kind": "User", "name": "ada"}, {"kind": "User", "name": "bob"}
    plane = change("VirtualControlPlane", "acme/dev", {"spec": {"owners": [ada, bob]}}, {"spec": {"owners": [ada]}})
    assert effects(plane, around()) == {"LosesAccess": ("User bob",)}
    binding = change("RoleBinding", "acme/x", {"roleRef": {"name": "r"}, "subjects": [ada]}, {"subjects": []})
    assert effects(binding, around()) == {"LosesAccess": ("User ada",)}


def test_a_cluster_with_fewer_nodes_drains_and_a_suspension_closes() -> None:
    pools = [{"name": "big", "count": 3}]
    cluster = change("DedicatedCluster", "acme/prod", {"spec": {"nodes": 2, "pools": pools}}, {"spec": {"nodes": 1}})
    told = [each.message for each in planned(cluster, around()).consequences]
    assert told == [
        "1 node drained, cleaned and given back: spec.nodes from 2 to 1",
        "3 nodes drained, cleaned and given back: spec.pools[big].count from 3 to 0",
    ]
    spec = {"owners": [{"kind": "User", "name": "ada"}]}
    suspended = change("Tenant", "acme", {"spec": spec}, {"spec": {**spec, "suspended": True}})
    assert effects(suspended, around()) == {"LosesAccess": ("User ada",)}


# -- applies and prunes ---------------------------------------------------------------------------

values = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
maps = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(maps, maps)
def test_applying_what_was_applied_before_changes_nothing(wanted: Json, more: Json) -> None:
    """Fields of others stay, and a second apply is empty."""
    live = merged(more, three_way({}, wanted, more))
    assert three_way(wanted, wanted, live) == {}
    assert merged(live, three_way({}, wanted, live)) == live


@given(maps, maps)
def test_what_was_applied_and_is_no_longer_wanted_is_removed(before: Json, wanted: Json) -> None:
    assert merged(before, three_way(before, wanted, before)) == wanted


def stored(kind: str, name: str, application: str = "", **metadata: Any) -> Json:  # noqa: ANN401 - of any object
    marks = {"argocd.argoproj.io/tracking-id": f"{application}:x"} if application else {}
    meta: Json = {"name": name, **metadata}
    meta["annotations"] = {**marks, **metadata.get("annotations", {})}
    return {"kind": kind, "metadata": meta}


def test_what_the_same_application_has_besides_is_pruned() -> None:
    """GitOps: not what others manage, what says that it stays, or what the operator creates."""
    keep = {"argocd.argoproj.io/sync-options": "Delete=false, Prune=false"}
    live = [
        stored("Tenant", "acme", "tenants"),
        stored("Tenant", "old", "tenants"),
        stored("Tenant", "kept", "tenants", annotations=keep),
        stored("Tenant", "theirs", "others"),
        stored("SliceClaim", "made", "tenants", ownerReferences=[{"controller": True}]),
        stored("Slice", "ours", "tenants", labels={"app.kubernetes.io/managed-by": "tenantry"}),
        stored("Tenant", "by-hand"),
    ]
    assert [each["metadata"]["name"] for each in pruned(live, {("Tenant", "", "acme")}, {})] == ["old"]
    by_label = pruned([*live, stored("Tenant", "red", labels={"team": "red"})], set(), {"team": "red"})
    assert [each["metadata"]["name"] for each in by_label] == ["red"]


def test_a_prune_without_a_tool_or_a_label_is_refused() -> None:
    """Everything else in the cluster would be deleted."""
    with pytest.raises(InputError, match="give the label that all of them have"):
        pruned([stored("Tenant", "acme"), stored("Tenant", "old")], {("Tenant", "", "acme")}, {})
