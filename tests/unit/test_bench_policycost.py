"""The copies of policies by which the benchmark measures them are in force nowhere else."""

from __future__ import annotations

import pytest

from tenantry.bench.policycost import copied, is_about_pods, marker
from tenantry.install import manifests

TENANTS = ["bench-1-0", "bench-1-1"]
OF_THESE = {"key": "tenantry.dev/tenant", "operator": "In", "values": TENANTS}


def bindings() -> list[dict[str, object]]:
    return [value for value in manifests.everything() if value["kind"].endswith("PolicyBinding")]


def test_every_copy_of_a_binding_is_about_the_benchmarks_tenants_alone() -> None:
    """X12: and goes with one of them."""
    for value in bindings():
        made = copied(value, "copy", "u1", TENANTS, "copied-policy")
        assert made["spec"]["policyName"] == "copied-policy"
        assert OF_THESE in made["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_the_marker_acts_on_one_pod_of_these_tenants(kind: str) -> None:
    """X12: it tells when the copies are in force."""
    policy, bound = marker(kind, "marker", "u1", TENANTS)
    assert policy["spec"]["matchConditions"][0]["expression"] == "object.metadata.name == 'bench-probe'"
    assert bound["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] == [OF_THESE]


def test_a_copy_leaves_the_original_alone() -> None:
    """X12: what is in force is never changed."""
    before = bindings()
    for value in before:
        copied(value, "copy", "u1", TENANTS, "copied-policy")
    assert before == bindings()


def test_only_policies_that_a_new_pod_meets_are_measured() -> None:
    """X12: all of them, those about everything included."""
    policies = [value for value in manifests.everything() if value["kind"].endswith("AdmissionPolicy")]
    found = {value["metadata"]["name"] for value in policies if is_about_pods(value)}
    assert {"tenantry-rules-pods", "tenantry-bandwidth", "tenantry-suspended"} <= found
    assert not {"tenantry-closable", "tenantry-networkpolicies"} & found
