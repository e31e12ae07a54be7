"""The standard rules, and the merging of CIDRs of several levels."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.ruledeclarations import Action, ServiceType
from tenantry.api.rules import (
    Annotations,
    Hostnames,
    Permission,
    Rules,
    RuntimeClasses,
    Scheduling,
    Services,
    Standard,
)
from tenantry.world.addresses import is_within
from tenantry.world.rules import STANDARD_SOURCE, Layer, effective

RANGES = "services.loadBalancerSourceRanges"


def test_a_field_that_is_decided_leaves_the_others_as_they_are() -> None:
    """E15: who allows load balancers allows no external addresses; who allows those does."""
    opened = Rules(services=Services(types=(ServiceType.LOAD_BALANCER,), external_name=Permission.ALLOW))
    section = effective([Layer("Tenant 'x'", opened)]).enforce
    assert section.allowed["services.types"].values == ("LoadBalancer",)
    assert section.refused["services.externalIPs"] == STANDARD_SOURCE
    assert "services.externalName" not in section.refused


def test_a_switch_of_pod_security_leaves_the_level_as_it_is() -> None:
    """E15: who refuses, or allows, one thing allows no other; who names a level decides all."""

    def refused(**switches: object) -> set[str]:
        rules = msgspec.convert({"podSecurity": switches}, Rules)
        return set(effective([Layer("Tenant 'x'", rules)]).enforce.refused)

    standard = set(effective([]).enforce.refused)
    assert refused(privileged="Refuse") == standard
    assert refused(hostPath="Allow") == standard - {"podSecurity.hostPath"}
    assert refused(seccomp="Any") == standard - {"podSecurity.seccompUnconfined"}
    assert not [path for path in refused(level="Privileged") if path.startswith("podSecurity")]


def test_a_rule_that_only_warns_leaves_the_standard_in_force() -> None:
    """E15: to warn of something is not to allow it."""
    warned = Rules(hostnames=Hostnames(action=Action.WARN, catch_all=Permission.REFUSE))
    spec = effective([Layer("Tenant 'x'", warned)])
    assert spec.enforce.refused["hostnames.catchAll"] == STANDARD_SOURCE
    assert spec.warn.refused["hostnames.catchAll"] == "Tenant 'x'"


@pytest.mark.parametrize(
    ("above", "below", "both"),
    [
        ("10.0.0.0/8", "10.1.0.0/16", ("10.1.0.0/16",)),
        ("10.1.0.0/16", "10.0.0.0/8", ("10.1.0.0/16",)),
        ("10.0.0.0/8", "192.0.2.0/24", ()),
        ("::/0", "2001:db8::/32", ("2001:db8::/32",)),
        ("::/0", "10.0.0.0/8", ()),
    ],
)
def test_ranges_of_two_levels_are_what_both_allow(above: str, below: str, both: tuple[str, ...]) -> None:
    """E15: a narrower range below stays, a wider one does not widen."""
    layers = [
        Layer(source, Rules(services=Services(load_balancer_source_ranges=(cidr,))))
        for source, cidr in (("Tenant 'x'", above), ("Subnamespace 'x/y'", below))
    ]
    assert effective(layers[:1], layers[1:]).enforce.allowed[RANGES].values == both


def test_of_two_domains_the_upper_one_holds() -> None:
    """E15: never looser below, also where what is below was written first."""
    layers = [
        Layer(source, Rules(hostnames=Hostnames(domain=domain)))
        for source, domain in (("Tenant 'x'", "apps.example"), ("Subnamespace 'x/y'", "evil.example"))
    ]
    for administrators, below in ((layers[:1], layers[1:]), (layers, [])):
        chosen = effective(administrators, below).enforce.chosen["hostnames.domain"]
        assert (chosen.source, chosen.value) == ("Tenant 'x'", "apps.example")


@pytest.mark.parametrize(
    "text", ["10.0.0.0", "10.0.0.0/08", "10.0.0.0/255.0.0.0", " 10.0.0.0/8", "::ffff:10.0.0.1/104", "x", "010.0.0.0/8"]
)
def test_what_is_no_cidr_to_the_api_server_is_in_none(text: str) -> None:
    """E15: Python reads CIDRs as strictly as CEL."""
    assert not is_within(text, "0.0.0.0/0")
    assert not is_within(text, "::/0")


def test_the_standard_of_a_tenant_is_never_looser_below() -> None:
    """E15: an administrator chooses it, on the cluster or on a Tenant; a Subnamespace may only tighten it."""

    def chosen(*standards: Standard | None, below: Standard | None = None) -> tuple[str, bool]:
        layers = [
            Layer(source, Rules() if each is None else Rules(standard=each))
            for source, each in zip(("TenancyDefaults 'default'", "Tenant 'x'"), standards, strict=True)
        ]
        lower = [] if below is None else [Layer("Subnamespace 'x/y'", Rules(standard=below))]
        section = effective(layers, lower).enforce
        return section.chosen["podSecurity.level"].value, section.allowed.get("scheduling.tolerations") is not None

    baseline, restricted = ("Baseline", False), ("Restricted", True)
    assert chosen(None, None) == chosen(Standard.BASELINE, None) == baseline
    assert chosen(None, Standard.RESTRICTED) == chosen(Standard.RESTRICTED, None) == restricted
    assert chosen(Standard.RESTRICTED, Standard.BASELINE) == baseline
    assert chosen(None, None, below=Standard.RESTRICTED) == restricted
    assert chosen(None, Standard.RESTRICTED, below=Standard.BASELINE) == restricted


def test_a_standard_is_loosened_only_by_levels_that_know_it() -> None:
    """E15: a field above the level that chose the standard does not open what the standard closes."""
    opened = Rules(runtime_classes=RuntimeClasses(allowed=("gvisor",)))
    restricted = Rules(standard=Standard.RESTRICTED)
    both = Rules(standard=Standard.RESTRICTED, runtime_classes=RuntimeClasses(allowed=("gvisor",)))

    def allowed(*layers: Rules) -> tuple[str, ...]:
        named = [Layer(f"level {place}", each) for place, each in enumerate(layers)]
        return effective(named).enforce.allowed["runtimeClasses.allowed"].values

    assert allowed(restricted, opened) == allowed(both) == ("gvisor",)
    assert allowed(opened, restricted) == ()


def test_messages_name_the_standard() -> None:
    """E15: a refusal shows which of the standards to change."""
    spec = effective([Layer("Tenant 'x'", Rules(standard=Standard.RESTRICTED))])
    assert spec.enforce.allowed["priorityClasses.allowed"].source == "Tenantry's standard Restricted in Tenant 'x'"
    assert spec.enforce.refused["podSecurity.runAsRoot"] == "Tenantry's standard Restricted in Tenant 'x'"
    assert spec.warn.is_empty
    assert spec.audit.is_empty


def test_administrators_extend_the_list_of_known_annotations() -> None:
    """E15: a list of TenancyDefaults also counts for a Restricted Tenant; one of a Subnamespace does not."""
    ours = Rules(annotations=Annotations(known=("ours/.*",)))
    theirs = Rules(standard=Standard.RESTRICTED, annotations=Annotations(known=("theirs/.*",)))
    mine = Rules(annotations=Annotations(known=(".*",)))
    layers = [Layer("TenancyDefaults 'default'", ours), Layer("Tenant 'x'", theirs)]
    strict = effective(layers, [Layer("Subnamespace 'x/y'", mine)]).enforce
    assert [each.values for each in strict.patterns["annotations.known"]] == [("ours/.*",), ("theirs/.*",)]
    mild = effective(layers[:1])
    assert [each.values for each in mild.warn.patterns["annotations.known"]] == [("ours/.*",)]
    assert "annotations.known" not in mild.enforce.patterns


def test_a_field_that_is_set_replaces_the_warning_of_baseline() -> None:
    """E15: whether the administrator refuses or warns; a level of pod security replaces its own controls only."""
    selectors = "scheduling.nodeSelectors"
    assert selectors in effective([]).warn.allowed
    for action in (Action.ENFORCE, Action.WARN):
        rules = Rules(scheduling=Scheduling(action=action, node_selectors=("disk",)))
        found = effective([Layer("Tenant 'x'", rules)]).warn.allowed.get(selectors)
        assert found is None or found.source == "Tenant 'x'"
    assert selectors not in effective([Layer("Tenant 'x'", Rules(standard=Standard.RESTRICTED))]).warn.allowed
