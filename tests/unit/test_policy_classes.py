"""Which classes rules let users name, asked without a request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tenantry.api.marks import RUNTIME, SLICE
from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import Bound, Section
from tenantry.policy import classes
from tenantry.world.rules import RUNTIME_CLASS, Layer, effective

GIVEN = {
    "storageClasses": {"allowed": ["fast"], "default": "fast"},
    "priorityClasses": {"allowed": ["low", "system-node-critical"]},
    "runtimeClasses": {"allowed": ["gvisor"]},
    "hostnames": {"ingressClasses": ["public"], "domain": "example.org"},
    "podSecurity": {"level": "Restricted"},
}


def section(given: Mapping[str, object]) -> Section:
    """Return the rules in force below a tenant's."""
    return effective([Layer("Tenant 'a'", msgspec.convert(given, Rules))]).enforce


@pytest.mark.parametrize(
    ("kind", "name", "is_allowed"),
    [
        ("StorageClass", "fast", True),
        ("StorageClass", "slow", False),
        ("PriorityClass", "low", True),
        ("PriorityClass", "high", False),
        ("PriorityClass", "system-node-critical", False),
        ("RuntimeClass", "gvisor", True),
        ("RuntimeClass", "kata", False),
        ("IngressClass", "public", True),
        ("IngressClass", "private", False),
    ],
)
def test_lists_of_classes_decide(kind: str, name: str, is_allowed: bool) -> None:  # noqa: FBT001 - a column of the table
    """E15, H08: and no other rule does, such as those about what a pod or an Ingress lacks here."""
    rules = section(GIVEN)
    assert classes.is_allowed(kind, name, rules, {}) is is_allowed
    assert classes.is_allowed(kind, name, classes.about_classes(rules), {}) is is_allowed
    assert classes.is_allowed(kind, name, section({}), {}) is (name != "system-node-critical")


def test_classes_whose_volumes_stay_are_not_allowed() -> None:
    """H06: the standard allows volumes that are deleted with their claim."""
    for rules in (section(GIVEN), classes.about_classes(section(GIVEN))):
        assert classes.is_allowed("StorageClass", "fast", rules, {}, reclaim_policy="Delete")
        assert not classes.is_allowed("StorageClass", "fast", rules, {}, reclaim_policy="Retain")


def test_a_sandboxed_namespace_has_the_sandbox_alone() -> None:
    """H03: on nodes of its own slice it chooses."""
    rules = msgspec.structs.replace(Section(), chosen={RUNTIME_CLASS: Bound(source="Tenant 'a'", value="gvisor")})
    sandboxed = {RUNTIME: "Sandboxed"}
    assert classes.is_allowed("RuntimeClass", "gvisor", rules, sandboxed)
    assert not classes.is_allowed("RuntimeClass", "kata", rules, sandboxed)
    assert classes.is_allowed("RuntimeClass", "kata", rules, {**sandboxed, SLICE: "s"})
    assert classes.is_allowed("RuntimeClass", "kata", rules, {})


def test_the_default_of_the_rules_is_that_of_claims() -> None:
    """Other kinds have no default of the rules."""
    rules = section(GIVEN)
    assert classes.default_class("StorageClass", rules) == "fast"
    assert not classes.default_class("StorageClass", section({}))
    assert not classes.default_class("IngressClass", rules)
