"""Guards decide in Python as their examples say, and their policies are ones that an API server takes from a file."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.clusterguards import ClusterGuard
from tenantry.hosting import guards as files
from tenantry.policy import guards
from tenantry.policy.request import Request
from testkit.guardcases import CASES, GuardCase

MASTERS = ("system:masters", "system:authenticated")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.called)
def test_each_case_is_refused_by_its_guard_and_by_no_other(case: GuardCase) -> None:
    """H04: and by none if the operator sends it, unless no identity is exempt."""
    found = {each: bool(guards.violations(case.request, (each,))) for each in ClusterGuard}
    assert {each for each, is_refused in found.items() if is_refused} == ({case.guard} if case.guard else set())
    by_operator = msgspec.structs.replace(case.request, groups=MASTERS)
    refused = guards.violations(by_operator, tuple(ClusterGuard))
    assert bool(refused) == (case.guard is ClusterGuard.OUTGOING_URLS)


@pytest.mark.parametrize("guard", ClusterGuard)
def test_each_guard_has_a_check_whose_example_it_refuses(guard: ClusterGuard) -> None:
    """H04: so that no guard is a name only."""
    found = guards.GUARDS[guard]
    assert {each.scope.target for each in found.checks} == {each.name for each in found.targets}
    assert any(case.guard is guard for case in CASES)


def test_a_kubelet_writes_its_own_node() -> None:
    """H04: NodeRestriction of Kubernetes confines it to that."""
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    asked = Request(resource="nodes", object=node, name="n", groups=("system:nodes",), user="system:node:n")
    assert guards.violations(asked, tuple(ClusterGuard)) == []


def test_policies_have_names_and_forms_of_static_ones() -> None:
    """H04, KEP-5793: the suffix, no parameters, one binding each; the order of guards changes nothing."""
    made = guards.manifests(ClusterGuard)
    assert made == guards.manifests(reversed(tuple(ClusterGuard)))
    policies = [each for each in made if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in made if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    names = [each["metadata"]["name"] for each in policies]
    assert len(set(names)) == len(names) == 5
    assert all(each.endswith(".static.k8s.io") for each in names)
    assert [each["spec"]["policyName"] for each in bindings] == names
    assert not any("paramKind" in each["spec"] or "params." in str(each) for each in policies)


def test_a_control_plane_without_guards_has_no_file_of_them() -> None:
    """H04: and no flag, so that the alpha feature is off."""
    assert files.files((), "/plane") == {}
    assert files.flags(()) == []
    assert files.gate(()) == ""


@pytest.mark.parametrize(
    ("version", "emulates", "is_in_force"),
    [("", "", True), ("1.36.3", "", True), ("1.36.3", "1.35", False), ("1.35.4", "", False), ("1.37", "1.36", True)],
)
def test_versions_before_the_feature_have_none(version: str, emulates: str, is_in_force: bool) -> None:  # noqa: FBT001 - a table
    """H04, KEP-5793: a process that soaks behaves as the version of before."""
    assert (files.obstacle(version, emulates) == "") is is_in_force
