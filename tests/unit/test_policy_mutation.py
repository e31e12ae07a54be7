"""Mutating policies in Python: the operations of JSON Patch, one policy after the other."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.install import fallback, manifests
from tenantry.policy import mutation
from tenantry.policy.cel.syntax import UnsupportedExpression
from tenantry.policy.cel.values import EvaluationError
from tenantry.policy.mutation import MutationFacts, applied

Json = dict[str, Any]
USER: Json = {"operation": "CREATE", "userInfo": {"username": "alice", "groups": ["staff"]}}


def policy(*patches: str, **variables: str) -> Json:
    """Return a MutatingAdmissionPolicy."""
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in patches]
    named = [{"name": name, "expression": cel} for name, cel in variables.items()]
    return {"metadata": {"name": "p"}, "spec": {"mutations": mutations, "variables": named}}


def patched(manifest: Json, value: Json, **more: Any) -> list[Json]:  # noqa: ANN401 - fields of the facts
    """Return the operations of a policy on an object."""
    facts = MutationFacts(object=value, old_object=None, request=USER, **more)
    return mutation.patched(mutation.policy(manifest), facts)


def test_a_later_patch_sees_what_an_earlier_one_changed() -> None:
    """Issue 20, point 1: variables are computed anew for each patch, as the API server does."""
    found = patched(
        policy(
            "variables.has ? [] : [JSONPatch{op: 'add', path: '/spec/list', value: [1]}]",
            "variables.has ? [JSONPatch{op: 'add', path: '/spec/list/-', value: 2}] : []",
            has="has(object.spec.list)",
        ),
        {"spec": {}},
    )
    assert [(each["path"], each["value"]) for each in found] == [("/spec/list", [1]), ("/spec/list/-", 2)]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a", "value": 1}, {"a": 1, "l": [1, 2], "m": {"x/y": 0}}),
        ({"op": "add", "path": "/l/-", "value": 3}, {"l": [1, 2, 3], "m": {"x/y": 0}}),
        ({"op": "add", "path": "/l/1", "value": 3}, {"l": [1, 3, 2], "m": {"x/y": 0}}),
        ({"op": "replace", "path": "/l/1", "value": 3}, {"l": [1, 3], "m": {"x/y": 0}}),
        ({"op": "replace", "path": "/m/x~1y", "value": 3}, {"l": [1, 2], "m": {"x/y": 3}}),
        ({"op": "add", "path": "/m/a~0b", "value": 3}, {"l": [1, 2], "m": {"x/y": 0, "a~b": 3}}),
    ],
)
def test_operations_change_a_copy(operation: Json, expected: Json) -> None:
    """Issue 20, point 1: as RFC 6902 says."""
    value: Json = {"l": [1, 2], "m": {"x/y": 0}}
    assert applied(value, [operation]) == expected
    assert value == {"l": [1, 2], "m": {"x/y": 0}}


def test_what_operations_put_into_an_object_stays_as_it_is() -> None:
    """Issue 20, point 1: a patch may put one value into two places, and change it in one of them."""
    shared: Json = {"x": 0}
    made = applied({}, [{"op": "add", "path": f"/{each}", "value": shared} for each in "ab"])
    assert made == {"a": {"x": 0}, "b": {"x": 0}}
    assert applied(made, [{"op": "replace", "path": "/a/x", "value": 1}]) == {"a": {"x": 1}, "b": {"x": 0}}
    later = {"op": "add", "path": "/a/y", "value": 1}
    assert applied({}, [{"op": "add", "path": "/a", "value": shared}, later]) == {"a": {"x": 0, "y": 1}}
    assert (made, shared) == ({"a": {"x": 0}, "b": {"x": 0}}, {"x": 0})


@pytest.mark.parametrize(
    "expression",
    [
        "object.l.exists(x, x == 1) ? [] : []",
        "object.l.all(x, object.l.all(y, true)) ? [] : []",
        "object.l.map(x, JSONPatch{op: 'add', path: '/m', value: x})",
        "object.l.transformList(i, x, JSONPatch{op: 'add', path: '/m', value: x})",
        "object.l.filter(x, object.l.exists(y, y != y)).size() > 0 ? [] : []",
    ],
)
def test_no_object_makes_an_evaluation_long(expression: str) -> None:
    """Issue 20, point 1: an owner sends long lists before a validating policy refuses them."""
    few = {"l": [0] * 100}
    assert isinstance(patched(policy(expression), few), list)
    with pytest.raises(EvaluationError, match="too long to be evaluated"):
        patched(policy(expression), {"l": [0] * (mutation.MOST_ITEMS + 1)})


def test_no_object_makes_the_api_server_apply_a_long_patch() -> None:
    """Issue 20, point 1: one NetworkPolicy of 60 KB with 10,000 rules cost it 1.5 s of CPU."""
    manifest = policy("object.l.map(x, JSONPatch{op: 'add', path: '/m', value: x})")
    assert len(patched(manifest, {"l": [0] * mutation.MOST_OPERATIONS})) == mutation.MOST_OPERATIONS
    with pytest.raises(EvaluationError, match="needs 501 changes, and at most 500 are made"):
        patched(manifest, {"l": [0] * (mutation.MOST_OPERATIONS + 1)})


def test_patches_share_one_budget() -> None:
    """Issue 20, point 1: a policy with many patches does not take many times as long."""
    one = "object.l.exists(x, x == 1) ? [] : []"
    half = {"l": [0] * (mutation.MOST_ITEMS // 2 + 1)}
    assert patched(policy(one), half) == []
    with pytest.raises(EvaluationError, match="too long to be evaluated"):
        patched(policy(one, one), half)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/missing/a", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "remove", "path": "/l", "value": 1},
    ],
)
def test_an_operation_that_does_not_fit_is_an_error(operation: Json) -> None:
    """Issue 20, point 1: then the request is not changed at all."""
    with pytest.raises(EvaluationError):
        applied({"l": [1, 2], "n": None}, [operation])


def test_other_types_of_patches_are_refused() -> None:
    """Issue 20, point 1: a policy that is not evaluated here must not look as if it were."""
    manifest = policy("[]")
    manifest["spec"]["mutations"][0]["patchType"] = "ApplyConfiguration"
    with pytest.raises(UnsupportedExpression, match="'p' must have patches of type JSONPatch only"):
        mutation.policy(manifest)


def test_every_mutating_policy_is_evaluated() -> None:
    """Issue 20, point 1: the webhook serves exactly the policies and bindings that other versions have."""
    shipped = [each for each in manifests.foundation(manifests.LOCAL_USER) if fallback.is_mutating(each)]
    served = fallback.served(manifests.LOCAL_USER)
    bindings = {each["metadata"]["name"]: each["spec"] for each in shipped if each["kind"].endswith("Binding")}
    assert {each.name: each.policy.name for each in served} == {
        name: spec["policyName"] for name, spec in bindings.items()
    }
    policies = {each["metadata"]["name"]: each["spec"] for each in shipped if not each["kind"].endswith("Binding")}
    for each in served:
        own = policies[each.policy.name]
        assert each.match["rules"] == own["matchConstraints"]["resourceRules"]
        assert each.match.get("matchConditions") == own.get("matchConditions")
        selector = bindings[each.name].get("matchResources", {}).get("namespaceSelector")
        assert each.match.get("namespaceSelector") == selector
    # A webhook's condition sees neither of these.
    conditions = str([each.match.get("matchConditions") for each in served])
    assert not [word for word in ("namespaceObject", "params.", "variables.") if word in conditions]
