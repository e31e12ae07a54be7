"""What honest pods cost the API server: a condition that looks at them once, and lets nothing pass that is refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.marks import PART_OPEN, PART_SUFFIX, RUNTIME, SLICE
from tenantry.api.tenancyrules import Bound, Listed, Section
from tenantry.policy.catalog import TARGETS, violations
from tenantry.policy.compile import SUSPICIOUS, compiled
from tenantry.policy.request import Request
from tenantry.policy.targets.configuration import CONFIGURATION
from tenantry.policy.targets.pods import PODS
from tenantry.policy.targets.sizes import SIZES
from tenantry.world.rules import RUNTIME_CLASS
from testkit.draws import few, one, some

Json = dict[str, Any]

KEYS = one("disk", SLICE, "other", f"a{PART_SUFFIX}{PART_OPEN}")
SPECS = some(
    runtimeClassName=one("gvisor", "runc"),
    tolerations=few(st.fixed_dictionaries({"key": KEYS, "operator": one("Exists")})),
    nodeSelector=st.dictionaries(KEYS, one("a", "b"), max_size=3),
)
RULES = Section(
    allowed={
        "runtimeClasses.allowed": Listed(source="Tenant 'x'", values=("kata",)),
        "scheduling.tolerations": Listed(source="Tenant 'x'", values=("other",)),
        "scheduling.nodeSelectors": Listed(source="Tenant 'x'", values=("disk=a",)),
    },
    chosen={RUNTIME_CLASS: Bound(source="Tenant 'x'", value="gvisor")},
)


def against(spec: Json, *labels: str) -> set[str]:
    """Return what the rules have against a pod in a namespace with these labels."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    request = Request(resource="pods", namespace="n", object=pod, namespace_labels=dict.fromkeys(labels, "v"))
    return {finding.rule for finding in violations(request, RULES, [PODS])}


@given(SPECS, st.sets(one(SLICE, RUNTIME)))
def test_labels_of_the_namespace_only_excuse(spec: Json, labels: set[str]) -> None:
    """E15: so a condition that cannot see them asks the policy too often, and never too seldom."""
    assert against(spec, *labels) <= against(spec)


def test_there_is_something_to_excuse() -> None:
    """E14, E15: what Tenantry itself puts into pods."""
    assert against({"runtimeClassName": "gvisor"}) == {"runtimeClasses.allowed"}
    assert against({"runtimeClassName": "gvisor"}, RUNTIME) == set()
    assert against({"nodeSelector": {SLICE: "a"}}, SLICE) == set() != against({"nodeSelector": {SLICE: "a"}})


def test_a_condition_knows_no_variables_and_no_namespace() -> None:
    """Point 2: the API server refuses a policy with such a condition, or every request that it is asked about."""
    assert [target.name for target in TARGETS if target.many] == ["pods", "configuration", "sizes"]
    for target in (PODS, CONFIGURATION, SIZES):
        ((name, condition),) = compiled(target).conditions.items()
        assert name == SUSPICIOUS
        for unknown in ("variables.", "namespaceObject"):
            assert unknown not in condition
