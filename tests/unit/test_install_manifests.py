"""What is installed, as data: policies, bindings, roles and the order in which they are applied."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tenantry import __version__
from tenantry.api import marks
from tenantry.controllers.installation.release import PART_OF
from tenantry.install import canary, manifests
from tenantry.install.policy import IN_TENANTS, binding, bound, by, exists, mutating, rule, says, validating
from tenantry.install.repairs import REPAIRS
from tenantry.install.rights import OPERATOR
from tenantry.install.waves import CRDS, founding, guarding, resource_of

Json = dict[str, Any]

EVERYTHING = manifests.everything()
LOCAL = manifests.foundation(manifests.LOCAL_USER)
POLICIES = [each for each in EVERYTHING if str(each["kind"]).endswith("AdmissionPolicy")]
BINDINGS = [each for each in EVERYTHING if str(each["kind"]).endswith("AdmissionPolicyBinding")]
NAMES = [f"{each['kind']}/{each['metadata']['name']}" for each in POLICIES]
ON_POLICIES = pytest.mark.parametrize("policy", POLICIES, ids=NAMES)


def expressions(policy: Json) -> dict[str, str]:
    """Return every expression of a policy by where it stands."""
    spec = policy["spec"]
    found = {f"condition {each['name']}": each["expression"] for each in spec.get("matchConditions", ())}
    found |= {f"variable {each['name']}": each["expression"] for each in spec.get("variables", ())}
    for number, each in enumerate(spec.get("validations", ())):
        found[f"validation {number}"] = each["expression"]
        found[f"message {number}"] = each.get("messageExpression", "''")
    for number, each in enumerate(spec.get("mutations", ())):
        found[f"patch {number}"] = each["jsonPatch"]["expression"]
    return found


def without_strings(cel: str) -> str:
    """Return an expression with its string literals emptied."""
    return re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", "''", cel)


def is_balanced(cel: str) -> bool:
    """Return whether the brackets of an expression match."""
    pairs, stack = {")": "(", "]": "[", "}": "{"}, list[str]()
    for character in without_strings(cel):
        if character in pairs.values():
            stack.append(character)
        elif character in pairs and (not stack or stack.pop() != pairs[character]):
            return False
    return not stack


@ON_POLICIES
def test_every_expression_is_closed(policy: Json) -> None:
    """E15: strings end, brackets match, and no placeholder of Python is left."""
    for where, cel in expressions(policy).items():
        bare = without_strings(cel)
        assert is_balanced(cel), where
        assert bare.replace("''", "").count("'") == 0, where
        assert not re.search(r"\bLIST\b|\{\}\.|None\b", bare), where


@ON_POLICIES
def test_variables_are_declared_before_they_are_used(policy: Json) -> None:
    """E15: the API server refuses a policy with an unknown variable, or with one in a condition."""
    known = set[str]()
    for where, cel in expressions(policy).items():
        used = set(re.findall(r"\bvariables\.(\w+)", without_strings(cel)))
        assert used <= (set() if where.startswith("condition") else known), where
        known |= {where.removeprefix("variable ")} if where.startswith("variable") else set()


@ON_POLICIES
def test_every_declared_variable_is_used(policy: Json) -> None:
    """X03: each costs the API server time and memory."""
    texts = " ".join(expressions(policy).values())
    unused = [name for name in policy["spec"].get("variables", ()) if f"variables.{name['name']}" not in texts]
    assert unused == []


@ON_POLICIES
def test_a_policy_is_bound_with_parameters_if_it_has_some(policy: Json) -> None:
    """E15: a policy without a binding does nothing, and one without parameters refuses everything."""
    kind = f"{policy['kind']}Binding"
    own = [b for b in BINDINGS if b["kind"] == kind and b["spec"]["policyName"] == policy["metadata"]["name"]]
    assert own
    for each in own:
        assert ("paramRef" in each["spec"]) == ("paramKind" in policy["spec"])
        reference = each["spec"].get("paramRef", {"parameterNotFoundAction": "Deny"})
        assert reference["parameterNotFoundAction"] in {"Allow", "Deny"}
        if policy["kind"] == "ValidatingAdmissionPolicy":
            assert set(each["spec"]["validationActions"]) <= {"Deny", "Warn", "Audit"}


@ON_POLICIES
def test_every_policy_fails_closed_and_says_why(policy: Json) -> None:
    """E15: an expression that fails refuses; each refusal has a message."""
    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    ours = dict.fromkeys((marks.MANAGED_BY, PART_OF), marks.MANAGER)
    assert policy["metadata"]["labels"] == {**ours, marks.INSTALLED_VERSION: __version__}
    for each in spec.get("validations", ()):
        assert each.get("message") or each.get("messageExpression")
        assert each["reason"] == "Forbidden"


@ON_POLICIES
def test_requests_are_matched_by_group_resource_and_operation(policy: Json) -> None:
    """X03: only a policy on everything in a namespace may match all groups."""
    for each in policy["spec"]["matchConstraints"]["resourceRules"]:
        assert each["apiGroups"]
        assert each["resources"]
        assert set(each["operations"]) <= {"CREATE", "UPDATE", "DELETE", "CONNECT", "*"}
        if each["apiGroups"] == ["*"]:
            assert each["scope"] == "Namespaced"


def test_no_binding_is_without_its_policy() -> None:
    """E15: a binding of a policy that is not there does nothing, and is never noticed."""
    known = {(each["kind"], each["metadata"]["name"]) for each in POLICIES}
    assert {(b["kind"].removesuffix("Binding"), b["spec"]["policyName"]) for b in BINDINGS} == known


@pytest.mark.parametrize("objects", [EVERYTHING, LOCAL], ids=["cluster", "local"])
def test_names_are_unique_and_every_kind_can_be_applied(objects: list[Json]) -> None:
    """X02: a second object of a name would overwrite the first."""
    keys = [
        (resource_of(each).full_name, each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in objects
    ]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    for each in objects:
        assert resource_of(each).namespaced == ("namespace" in each["metadata"]), each["metadata"]["name"]


def test_every_binding_of_rights_names_a_role_that_is_there() -> None:
    """B06: roles of Kubernetes itself begin with system."""
    roles = {(each["kind"], each["metadata"]["name"]) for each in EVERYTHING if each["kind"] in {"Role", "ClusterRole"}}
    for each in EVERYTHING:
        if each["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            name = each["roleRef"]["name"]
            assert name.startswith("system:") or (each["roleRef"]["kind"], name) in roles
            assert each["subjects"]


def test_no_role_of_tenants_reaches_admission_policies_or_marks() -> None:
    """E15: policies cannot protect policies, so no tenant role may write them."""
    for role in [each for each in EVERYTHING if each["kind"] == "ClusterRole"]:
        for each in role.get("rules", ()):
            if role["metadata"]["name"] not in {REPAIRS, OPERATOR}:
                assert "admissionregistration.k8s.io" not in each.get("apiGroups", ()), role["metadata"]["name"]
            if role["metadata"]["name"] != "tenantry-admin":
                assert "*" not in each.get("resources", ())
                assert "*" not in each.get("verbs", ())


def test_the_operator_is_named_in_conditions_as_it_authenticates() -> None:
    """E02: a local user of that name elsewhere is not the operator."""
    assert by(manifests.SERVICE_ACCOUNT).endswith("== 'system:serviceaccount:tenantry-system:tenantry-operator'")
    assert by(manifests.LOCAL_USER).endswith(f"== '{marks.OPERATOR_USER}'")
    text = str(LOCAL)
    assert "system:serviceaccount:tenantry-system:tenantry-operator" not in text
    assert marks.OPERATOR_USER in text


def test_policies_stay_within_the_limits_of_the_api_server() -> None:
    """E15: Kubernetes allows 64 conditions; a resource limit of 1 MiB would hit the largest policy first."""
    for each in POLICIES:
        assert len(each["spec"].get("matchConditions", ())) <= 64
        assert len(str(each)) < 500_000, each["metadata"]["name"]


# -- order ----------------------------------------------------------------------------------------


def test_kinds_and_the_namespace_are_applied_first_and_the_canary_last() -> None:
    """X02: each object in one wave; nothing needs what comes later."""
    waves = [*founding(EVERYTHING), *guarding(EVERYTHING)]
    kinds, rest, guards, last = (wave.objects for wave in waves)
    assert {each["kind"] for each in kinds} == {CRDS.kind, "Namespace"}
    assert {each["metadata"]["name"] for each in last} == {canary.NAME}
    assert not [each for each in (*kinds, *rest) if "AdmissionPolicy" in each["kind"]]
    assert all("AdmissionPolicy" in each["kind"] for each in (*guards, *last))
    assert sum(len(wave.objects) for wave in waves) == len(EVERYTHING)


def test_each_wave_waits_for_what_the_next_one_needs() -> None:
    """X02: every kind is served before objects of it, every policy in force before the installation ends."""
    first, second = founding(EVERYTHING)
    assert set(first.served) == {each["metadata"]["name"] for each in manifests.definitions()}
    assert (second.served, second.refused) == ((), "")
    guards, last = guarding(EVERYTHING)
    assert (guards.served, guards.refused) == ((), "")
    assert last.refused == canary.told_by(EVERYTHING) != ""


def test_without_policies_there_is_nothing_to_wait_for() -> None:
    """X02: as for `tenantry install --crds`."""
    guards, last = guarding(manifests.definitions())
    assert (guards.objects, last.objects, last.refused) == ((), (), "")


def test_the_canary_changes_with_any_policy() -> None:
    """X02: the message of a canary that is already there says that older policies are in force."""
    told = canary.told_by(EVERYTHING)
    assert canary.told_by(LOCAL) != told
    probe = canary.probe()
    (policy,) = [each for each in POLICIES if canary.is_canary(each)]
    (matched,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert matched["resourceNames"] == [probe["metadata"]["name"]]
    assert matched["resources"] == [canary.PROBED.plural]


# -- building blocks ------------------------------------------------------------------------------


def test_a_policy_has_only_the_fields_that_are_given() -> None:
    """E15: conditions and variables are lists of names and expressions, in order."""
    plain = validating("x", [rule("", ["pods"])], [says("false", "no")])
    assert plain["spec"]["matchConstraints"] == {
        "matchPolicy": "Exact",
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
        ],
    }
    assert set(plain["spec"]) == {"failurePolicy", "matchConstraints", "validations"}
    full = mutating(
        "x",
        [rule("", ["pods"], "DELETE")],
        ["[]"],
        conditions={"b": "1", "a": "2"},
        variables={"v": "3"},
        where=exists("label"),
        params={"apiVersion": "v1", "kind": "ConfigMap"},
    )["spec"]
    assert full["matchConditions"] == [{"name": "b", "expression": "1"}, {"name": "a", "expression": "2"}]
    assert full["variables"] == [{"name": "v", "expression": "3"}]
    assert full["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["key"] == "label"
    assert full["paramKind"]["kind"] == "ConfigMap"


def test_a_binding_enforces_unless_it_is_told_otherwise() -> None:
    """E15: of a mutating policy there is nothing to enforce."""
    policy = validating("x", [rule("", ["pods"])], [says("false", "no")], where=IN_TENANTS)
    (_, enforced), (_, warned) = bound(policy), bound(policy, validationActions=["Warn"])
    assert enforced["spec"] == {"policyName": "x", "validationActions": ["Deny"]}
    assert warned["spec"]["validationActions"] == ["Warn"]
    assert binding("y", "Mutating", called="z")["metadata"]["name"] == "z"
    assert "validationActions" not in binding("y", "Mutating")["spec"]
