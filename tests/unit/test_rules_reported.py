"""Which namespaces pay for policies that only warn or audit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import action_mark
from tenantry.controllers.tenant import desired
from tenantry.install import rules as installed
from tenantry.policy.catalog import TARGETS
from testkit.worlds import CLUSTER_UID, tenant

Json = dict[str, Any]
SUBJECT: Json = {"kind": "ServiceAccount", "name": "tenantry-operator", "namespace": "tenantry-system"}
RARE = [target for target in TARGETS if target.is_rarely_reported]


def _marks(rules: Json) -> set[str]:
    """Return the labels about warnings and audits of the namespace of a tenant with these rules."""
    made = tenant("acme")
    made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, rules=msgspec.convert(rules, Rules)))
    children = desired.children(made, CLUSTER_UID)
    (namespace,) = [each.object for each in children if isinstance(each.object, Namespace)]
    starts = tuple(action_mark(section) for section in ("warn", "audit"))
    return {label for label in namespace.metadata.labels if label.startswith(starts)}


def _selected(section: str, target: str) -> list[set[str]]:
    """Return the labels that each binding of a policy for a section wants a namespace to have."""
    name = f"tenantry-rules-{target}-{section}"
    bindings = [each for each in installed.everything(SUBJECT) if each["metadata"]["name"] in (name, f"{name}-shared")]
    selectors = [each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] for each in bindings]
    return [{each["key"] for each in selector if each["operator"] == "Exists"} for selector in selectors]


@pytest.mark.parametrize(
    ("rules", "section", "target"),
    [
        pytest.param({"objects": {"maxSizes": {"others": "1Ki"}, "action": "Warn"}}, "warn", "sizes", id="sizes"),
        pytest.param({"objects": {"maxSizes": {"others": "1Ki"}, "action": "Audit"}}, "audit", "sizes", id="audited"),
        pytest.param({"annotations": {"dangerous": "Refuse", "action": "Warn"}}, "warn", "podrecords", id="records"),
    ],
)
def test_a_rule_that_warns_or_audits_selects_the_policy_of_its_kind(rules: Json, section: str, target: str) -> None:
    """E15: otherwise the API server would convert each pod and Event once more, for nothing."""
    mark = action_mark(section, target)
    assert mark in _marks(rules)
    assert [mark in found for found in _selected(section, target)] == [True, True]


def test_no_namespace_with_the_standard_pays_for_what_it_does_not_warn_of() -> None:
    assert _marks({}) == {action_mark("warn")}
    assert [target.name for target in RARE] == ["podrecords", "sizes"]


def test_other_kinds_are_selected_by_the_label_for_all() -> None:
    assert [action_mark("warn") in found for found in _selected("warn", "pods")] == [True, True]
