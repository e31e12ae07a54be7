"""What policies and their bindings select."""

from __future__ import annotations

import re
from typing import Any

from tenantry.install import manifests
from tenantry.install.policy import IN_TENANTS, binding, items, narrowed, rule, says, validating
from tenantry.install.upgrade import RETIRED

Json = dict[str, Any]

PODS = [rule("", ["pods"], "CREATE")]


def test_no_policy_selects_what_its_bindings_can() -> None:
    """E15: the API server parses a policy's selectors for each request of any kind."""
    made = manifests.everything()
    matches = [each["spec"]["matchConstraints"] for each in made if str(each["kind"]).endswith("AdmissionPolicy")]
    assert matches
    assert not [each for each in matches if set(each) != {"matchPolicy", "resourceRules"}]


def test_every_binding_selects_what_its_policy_did_and_what_it_did_itself() -> None:
    """E15: both selectors hold, whichever parts they have."""
    own = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    policy = validating("x", PODS, [says("false", "no")], where=IN_TENANTS)
    bindings = [
        binding("x"),
        binding("x", called="x-own", matchResources={"namespaceSelector": own, "resourceRules": PODS}),
        binding("x", "Mutating"),
    ]
    other = {"kind": "Namespace", "metadata": {"name": "x"}}
    said, plain, both, mutating, namespace = narrowed([policy, *bindings, other])
    assert said["spec"]["matchConstraints"] == {"matchPolicy": "Exact", "resourceRules": PODS}
    assert said["spec"]["validations"] == policy["spec"]["validations"]
    assert plain["spec"]["matchResources"] == {"namespaceSelector": IN_TENANTS}
    expressions = [*own["matchExpressions"], *IN_TENANTS["matchExpressions"]]
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": expressions}
    assert both["spec"]["matchResources"] == {"namespaceSelector": selector, "resourceRules": PODS}
    # Of another kind, and no policy at all.
    assert (mutating, namespace) == (bindings[2], other)
    assert policy["spec"]["matchConstraints"]["namespaceSelector"] == IN_TENANTS, "what is given stays as it is"


def test_no_mutation_fails_without_containers() -> None:
    """X02: a mutating policy sees `containers: null`, and the answer is the API server's validation."""
    policies = [each for each in manifests.everything() if each["kind"] == "MutatingAdmissionPolicy"]
    # What a validating policy has, too, names no type: its checker knows that a list is not null.
    typed = ("dyn(object.spec.containers)", "object.spec.containers")
    texts = {each["metadata"]["name"]: str(each["spec"]).replace(*typed) for each in policies}
    checked = {name: text for name, text in texts.items() if "object.spec.containers" in text}
    assert {"tenantry-image-pull", "tenantry-bandwidth", "tenantry-part-pods", "tenantry-peer-pods"} <= checked.keys()
    unguarded = [name for name, text in checked.items() if items("object.spec.containers") not in text]
    assert unguarded == []
    for text in checked.values():
        # An index follows a condition that there is an element.
        assert not re.search(r"object\.spec\.\??containers\.(?!orValue)", text)


def test_a_retired_policy_is_not_installed() -> None:
    """Otherwise each installation would delete what it has just applied."""
    installed = {(each["kind"], each["metadata"]["name"]) for each in manifests.everything()}
    for kind, names in RETIRED.items():
        for name in names:
            assert not {(f"{kind}AdmissionPolicy", name), (f"{kind}AdmissionPolicyBinding", name)} & installed
