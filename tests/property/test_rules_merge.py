"""Rules of several levels merge into what is never looser than any of them, however they are grouped."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import Section, TenancyRulesSpec
from tenantry.policy.catalog import violations
from tenantry.policy.request import Request
from tenantry.world import quantity
from tenantry.world.rules import STANDARD_SOURCE, Layer, covers, effective, flatten, meet, merged

Json = dict[str, Any]

PERMISSION = st.sampled_from(["Allow", "Refuse"])
ACTION = st.sampled_from(["Enforce", "Enforce", "Warn", "Audit"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Return objects that have any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def few(*values: str) -> st.SearchStrategy[list[str]]:
    """Return some of the values."""
    return st.lists(st.sampled_from(values), max_size=3, unique=True)


def _rules(given_: Json) -> Rules:
    return msgspec.convert(given_, Rules)


def _flat(rules: Rules, name: str) -> TenancyRulesSpec:
    return flatten(Layer(name, rules))


RULES = some(
    podSecurity=some(
        action=ACTION,
        level=st.sampled_from(["Privileged", "Baseline", "Restricted"]),
        privileged=PERMISSION,
        runAsRoot=PERMISSION,
        seccomp=st.sampled_from(["Any", "Confined", "Required"]),
        capabilities=few("CHOWN", "KILL", "NET_ADMIN"),
    ),
    images=some(action=ACTION, allowed=few("a.*", "b.*", ".*c")),
    scheduling=some(action=ACTION, nodeName=PERMISSION, nodeSelectors=few("disk", "disk=ssd", "zone=a", "zone=b")),
    containers=some(
        action=ACTION,
        max=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "500m"]), max_size=2),
        requiredLimits=few("cpu", "memory"),
    ),
    tokens=some(action=ACTION, maxSeconds=st.sampled_from([600, 86_400, 600_000]), secrets=PERMISSION),
).map(_rules)
SPECS = st.builds(_flat, RULES, st.sampled_from(["one", "two", "three"]))
CONTEXT = some(
    privileged=st.booleans(),
    runAsNonRoot=st.booleans(),
    capabilities=some(add=few("CHOWN", "KILL", "NET_ADMIN")),
    seccompProfile=st.fixed_dictionaries({"type": st.sampled_from(["Unconfined", "RuntimeDefault"])}),
)


def _pod(image: str, context: Json, selector: dict[str, str], limits: dict[str, str]) -> Json:
    container = {"name": "c", "image": image, "securityContext": context, "resources": {"limits": limits}}
    return {"spec": {"containers": [container], "nodeSelector": selector}}


PODS = st.builds(
    _pod,
    st.sampled_from(["a1", "bc", "x"]),
    CONTEXT,
    st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from(["ssd", "a", "b"]), max_size=2),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["500m", "2", "3"]), max_size=2),
)


def plain(spec: TenancyRulesSpec) -> list[object]:
    """Return what a spec limits, without who set it and in no order."""
    return [limits(section) for section in (spec.enforce, spec.warn, spec.audit)]


def limits(section: Section) -> object:
    """Return what one section limits."""
    return (
        set(section.refused),
        {key: set(listed.values) for key, listed in section.allowed.items()},
        {key: {frozenset(listed.values) for listed in lists} for key, lists in section.patterns.items()},
        {key: quantity.parse(bound.value) for key, bound in section.maxima.items()},
        set(section.required),
    )


@given(SPECS, SPECS, SPECS)
def test_merging_is_the_same_however_levels_are_grouped(
    one: TenancyRulesSpec, two: TenancyRulesSpec, three: TenancyRulesSpec
) -> None:
    """E15: associative, and idempotent."""
    assert plain(meet(meet(one, two), three)) == plain(meet(one, meet(two, three)))
    assert meet(one, one) == one


@given(SPECS, SPECS)
def test_merging_limits_the_same_in_either_order(one: TenancyRulesSpec, two: TenancyRulesSpec) -> None:
    """E15: who is above decides who is named, not what is limited."""
    assert plain(meet(one, two)) == plain(meet(two, one))


@given(st.lists(RULES, min_size=1, max_size=4), PODS)
def test_what_any_level_refuses_is_refused(levels: list[Rules], pod: Json) -> None:
    """E15: never looser below: a pod passes the merged rules only if it passes each level's."""
    specs = [flatten(Layer(f"level {number}", rules)) for number, rules in enumerate(levels)]
    request = Request(resource="pods", object=pod)
    whole = merged(specs)
    for section in ("enforce", "warn", "audit"):
        refused = [bool(violations(request, getattr(spec, section))) for spec in specs]
        assert bool(violations(request, getattr(whole, section))) == any(refused)


@given(RULES, RULES, PODS)
def test_the_standard_holds_unless_an_administrator_decides(above: Rules, below: Rules, pod: Json) -> None:
    """E15: a Subnamespace does not undo it, nor do rules that only warn."""
    spec = effective([Layer("Tenant", above)], [Layer("Subnamespace", below)])
    rule = above.pod_security
    decides = bool(rule and rule.action == "Enforce" and (rule.level or rule.privileged))
    assert decides or spec.enforce.refused["podSecurity.privileged"] == STANDARD_SOURCE
    privileged = any(c["securityContext"].get("privileged") for c in pod["spec"]["containers"])
    assert decides or not privileged or violations(Request(resource="pods", object=pod), spec.enforce)


@given(
    few("disk", "disk=ssd", "zone=a"),
    few("disk", "disk=ssd", "zone=a"),
    st.sampled_from(["disk=ssd", "disk=hdd", "zone=a"]),
)
def test_a_label_is_allowed_where_both_lists_allow_it(one: list[str], two: list[str], value: str) -> None:
    """E15: KEY allows each KEY=VALUE."""
    rules = [msgspec.convert({"scheduling": {"nodeSelectors": names}}, Rules) for names in (one, two)]
    whole = merged(flatten(Layer("x", each)) for each in rules).enforce.allowed["scheduling.nodeSelectors"]
    assert covers(whole.values, value) == (covers(one, value) and covers(two, value))
