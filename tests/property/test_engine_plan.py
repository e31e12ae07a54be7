"""The laws of patches: applied as RFC 7396 says they give what is wanted where it is ours, and touch nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, ResourceQuotaSpec, RoleBinding
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.policyparameters import parameters
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.controllers.tenant import desired
from tenantry.engine.observed import is_ours, observe
from tenantry.engine.plan import Child, Step, StepAction, compare, merge_patch, update_patch
from testkit.rfc7396 import merged
from testkit.worlds import CLUSTER_UID, tenant

Json = dict[str, Any]

# No null: an API object never holds one, and a merge patch cannot say one.
SCALARS = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("xyz", max_size=2), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_makes_the_one_of_the_other(live: Json, wanted: Json) -> None:
    kept = copy.deepcopy(live)
    patch = merge_patch(live, wanted)
    assert json.dumps(merged(live, patch), sort_keys=True) == json.dumps(wanted, sort_keys=True)
    assert live == kept, "what it was made from stays"
    assert (patch == {}) == (json.dumps(live, sort_keys=True) == json.dumps(wanted, sort_keys=True))


MARKS = st.dictionaries(
    st.sampled_from(["app.kubernetes.io/managed-by", "tenantry.dev/tenant", "x.tenantry.dev/y", "team", "other.io/z"]),
    st.sampled_from(["tenantry", "acme", ""]),
    max_size=4,
)


@given(OBJECTS, st.one_of(st.none(), MARKS), st.one_of(st.none(), MARKS), MARKS, OBJECTS)
def test_an_update_gives_our_fields_and_leaves_others_marks_and_fields_alone(
    spec: Json, labels: Json | None, annotations: Json | None, ours: dict[str, str], status: Json
) -> None:
    """E01: hand edits are put back, what is not ours stays."""
    metadata: Json = {"name": "q", "namespace": "acme", "uid": "u", "resourceVersion": "7", "finalizers": ["theirs"]}
    metadata |= {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value is not None}
    live: Json = {"metadata": metadata, "spec": spec, "status": status}
    labels_wanted = {key: value for key, value in ours.items() if is_ours(key)}
    wanted = ResourceQuota(
        metadata=ObjectMeta(name="q", namespace="acme", labels=labels_wanted),
        spec=ResourceQuotaSpec(hard={"pods": "1"}),
    )
    after = merged(live, update_patch(wanted, live))
    assert after["spec"] == {"hard": {"pods": "1"}}
    assert after["status"] == status
    assert {key: value for key, value in after["metadata"].get("labels", {}).items() if is_ours(key)} == labels_wanted
    for marks, before in (("labels", labels), ("annotations", annotations)):
        theirs = {key: value for key, value in (before or {}).items() if not is_ours(key)}
        assert {k: v for k, v in after["metadata"].get(marks, {}).items() if not is_ours(k)} == theirs
    untouched = ("name", "namespace", "uid", "resourceVersion", "finalizers")
    assert {key: after["metadata"][key] for key in untouched} == {key: metadata[key] for key in untouched}
    assert update_patch(wanted, after) == {}, "a second one is empty"


def _stored(value: KubernetesObject) -> Json:
    return {**msgspec.to_builtins(value), "status": {"a": 1}}


KINDS: list[type[KubernetesObject]] = [ResourceQuota, LimitRange, NetworkPolicy, RoleBinding]


@given(st.booleans(), st.booleans(), st.sets(st.integers(0, 7)))
def test_a_plan_on_its_own_result_is_empty_and_on_part_of_it_makes_the_rest(
    suspended: bool,  # noqa: FBT001 - hypothesis calls by position
    cluster_policy: bool,  # noqa: FBT001
    missing: set[int],
) -> None:
    """E01: the fewest writes."""
    value = tenant(quota={"cpu": 1, "limits.cpu": 1}, suspended=suspended, cluster_policy=cluster_policy)
    children = desired.children(value, CLUSTER_UID, has_cluster_policies=True)
    there = {
        (child.object.resource, child.object.key): observe(
            child.object.resource, json.dumps(_stored(child.object)).encode()
        )
        for index, child in enumerate(children)
        if index not in missing
    }
    made = compare(children, lambda resource, key: there.get((resource, key)))
    steps = [step for wave in made.waves for step in wave]
    assert {step.action for step in steps} <= {StepAction.CREATE}
    assert {(step.resource, step.key) for step in steps} == {
        (child.object.resource, child.object.key) for index, child in enumerate(children) if index in missing
    }
    assert made.is_empty == (not steps)


@given(st.integers(0, 3), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_waves_come_in_order_and_deletions_last(stale: int, waves: list[int]) -> None:
    children = [
        Child(object=ResourceQuota(metadata=ObjectMeta(name=f"q{n}"), spec=ResourceQuotaSpec(hard={})), wave=wave)
        for n, wave in enumerate(waves)
    ]
    old = [
        (ResourceQuota.resource, observe(ResourceQuota.resource, json.dumps({"metadata": {"name": f"o{n}"}}).encode()))
        for n in range(stale)
    ]
    made = compare(children, lambda _resource, _key: None, stale=old)
    flat: list[Step] = [step for wave in made.waves for step in wave]
    assert [step.child.wave for step in flat if step.child] == sorted(waves)
    assert [step.action for step in flat] == [StepAction.CREATE] * len(waves) + [StepAction.DELETE] * stale
    for wave in made.waves:
        assert len({step.child.wave if step.child else "last" for step in wave}) == 1


def test_what_is_going_is_not_deleted_again() -> None:
    going = {"metadata": {"name": "o", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    found = observe(ResourceQuota.resource, json.dumps(going).encode())
    assert compare([], lambda _resource, _key: None, stale=[(ResourceQuota.resource, found)]).is_empty


@given(st.sampled_from(["there", "missing", "theirs", "going"]), st.booleans())
def test_rules_come_with_the_label_that_points_at_them(namespace: str, shared: bool) -> None:  # noqa: FBT001
    """X02: where rules come to be a namespace's own, it is without rules at no moment; elsewhere it is made first."""
    room = Namespace(metadata=ObjectMeta(name="acme", labels={OWN_MARK: "own"}))
    rules = parameters("rules", "acme", "enforce", {})
    children = [
        Child(object=room, wave=0, owner_uid="u"),
        Child(object=rules, wave=1, with_namespace=not shared),
    ]
    metadata: Json = {"name": "acme", "ownerReferences": [_owner("u" if namespace != "theirs" else "other")]}
    if namespace == "going":
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = observe(Namespace.resource, json.dumps({"metadata": metadata}).encode())
    made = compare(
        children, lambda resource, _key: found if resource == room.resource and namespace != "missing" else None
    )
    kinds = [[step.resource.kind for step in wave] for wave in made.waves]
    expected = {
        "there": [["Namespace"], ["LimitRange"]] if shared else [["Namespace", "LimitRange"]],
        "missing": [["Namespace"], ["LimitRange"]],
    }
    assert kinds == expected.get(namespace, [])


def _owner(uid: str) -> Json:
    return {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": "acme", "uid": uid, "controller": True}
