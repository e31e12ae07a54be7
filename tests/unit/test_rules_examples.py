"""Every rule refuses the example that it declares, accepts an honest object, and mends what it can mend."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tenantry.api.model import Resource
from tenantry.api.rulefields import fields
from tenantry.api.tenancyrules import Section
from tenantry.policy.catalog import CHECKS, TARGETS, checks_of, violations
from tenantry.policy.check import RuleCheck
from tenantry.policy.explain.mend import mended
from tenantry.policy.explain.parts import Part
from testkit.rules import EVERY_CHECK, SOURCE, request_of

PARAMETERS = [pytest.param(check, id=name) for name, check in EVERY_CHECK]


@pytest.mark.parametrize("check", PARAMETERS)
def test_a_rule_refuses_its_example_and_says_who_set_it(check: RuleCheck) -> None:
    """E15: the first finding is of the rule; without the rule there is none."""
    request = request_of(check, check.scope.sample(check.example))
    found = violations(request, check.section(SOURCE))
    assert [each.rule for each in found] == [check.rule] * len(found) != []
    assert all(each.source == SOURCE and each.what and each.fix for each in found)
    assert any(each.check is check for each in found), "another check of the rule refuses the example"
    assert violations(request, Section()) == []


@pytest.mark.parametrize("check", [pytest.param(each, id=name) for name, each in EVERY_CHECK if each.example])
def test_a_rule_accepts_an_object_that_asks_for_nothing(check: RuleCheck) -> None:
    """E15: only a rule without an example refuses the plainest object, because it requires something of each."""
    found = violations(request_of(check, check.scope.sample({})), check.section(SOURCE))
    assert [each for each in found if each.check is check] == []


@pytest.mark.parametrize("check", [pytest.param(each, id=name) for name, each in EVERY_CHECK if each.mend is not None])
def test_a_mended_manifest_passes(check: RuleCheck) -> None:
    """X07: what `--fix` changes is enough for the rule; the manifest that was given stays as it is."""
    rules, manifest = check.section(SOURCE), check.scope.sample(check.example)
    request = request_of(check, manifest)
    part = Part(resource=Resource(request.group, "v1", request.resource, ""), object=manifest)
    found = [(part, each) for each in violations(request, rules) if each.check is check]
    changed = mended(manifest, found, rules)
    assert changed != manifest
    assert [each for each in violations(request_of(check, changed), rules) if each.check is check] == []
    assert manifest == check.scope.sample(check.example)


def test_every_check_belongs_to_one_kind_of_object() -> None:
    """E15: a check of an unknown target would never be evaluated."""
    assert sum(len(checks_of(target)) for target in TARGETS) == len(CHECKS)
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def test_the_checks_of_a_rule_have_one_form() -> None:
    """E15: a path stands in one map of a section."""
    ordered = sorted(CHECKS, key=lambda check: check.rule)
    assert all(one.form == other.form for one, other in pairwise(ordered) if one.rule == other.rule)


def test_every_field_of_the_api_is_checked() -> None:
    """E15: no field is only declared. A level and seccomp become switches; two fields concern StorageClasses."""
    others = {"podSecurity.level", "podSecurity.seccomp", "storageClasses.default", "storageClasses.reclaimPolicies"}
    others |= {"annotations.known", "images.credentials"}  # read by annotations.unknown and images.cached
    assert {field.path for field in fields()} - others <= {check.rule for check in CHECKS}
