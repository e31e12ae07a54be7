"""A preview is what the write would do, and a second one is empty."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.model import ObjectMeta
from tenantry.engine.observed import observe
from tenantry.engine.plan import Child, Step, StepAction, merge_patch
from tenantry.engine.preview import merged, preview_step, shown

Json = dict[str, Any]

LIVE: Json = {
    "metadata": {
        "name": "tenantry-quota",
        "namespace": "acme",
        "uid": "u1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "x"}],
        "labels": {"theirs": "stays", "tenantry.dev/tenant": "acme"},
    },
    "spec": {"hard": {"pods": "5"}},
    "status": {"used": {"pods": "1"}},
}


def step(action: StepAction, pods: str = "9") -> Step:
    wanted = ResourceQuota(
        metadata=ObjectMeta(name="tenantry-quota", namespace="acme", labels={"tenantry.dev/tenant": "acme"}),
        spec=ResourceQuotaSpec(hard={"pods": pods}),
    )
    return Step(
        action=action,
        resource=ResourceQuota.resource,
        namespace="acme",
        name="tenantry-quota",
        child=None if action is StepAction.DELETE else Child(object=wanted, wave=1),
        observed=None if action is StepAction.CREATE else observe(ResourceQuota.resource, msgspec.json.encode(LIVE)),
    )


def test_an_update_changes_our_fields_only() -> None:
    found = preview_step(step(StepAction.UPDATE), LIVE)
    assert found is not None
    before: Json = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": "tenantry-quota",
            "namespace": "acme",
            "labels": {"theirs": "stays", "tenantry.dev/tenant": "acme"},
        },
        "spec": {"hard": {"pods": "5"}},
    }
    assert found.before == before
    assert found.after == {**before, "spec": {"hard": {"pods": "9"}}}


def test_an_update_that_changes_nothing_is_none() -> None:
    """A newer server may fill in what our models do not know: the plan's digest differs, the content does not."""
    assert preview_step(step(StepAction.UPDATE, pods="5"), LIVE) is None


def test_creations_and_deletions_have_one_side() -> None:
    created, deleted = preview_step(step(StepAction.CREATE), None), preview_step(step(StepAction.DELETE), LIVE)
    assert created is not None
    assert deleted is not None
    assert (created.before, deleted.after) == (None, None)
    assert created.key == "acme/tenantry-quota"


def test_what_is_gone_meanwhile_needs_no_deletion() -> None:
    assert preview_step(step(StepAction.DELETE), None) is None


def test_what_the_server_keeps_for_itself_is_not_shown() -> None:
    assert "status" not in shown(Namespace.resource, LIVE)
    assert set(shown(Namespace.resource, LIVE)["metadata"]) == {"name", "namespace", "labels"}


json_values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


@given(objects, objects)
def test_merging_a_merge_patch_makes_what_was_wanted(live: Json, wanted: Json) -> None:
    """RFC 7396, for values without nulls."""
    before = copy.deepcopy(live)
    assert merged(live, merge_patch(live, wanted)) == wanted
    assert live == before
