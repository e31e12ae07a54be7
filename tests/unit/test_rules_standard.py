"""The standard rules, and the merging of CIDRs of several levels."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.rules import Action, Hostnames, Permission, Rules, Services, ServiceType
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
