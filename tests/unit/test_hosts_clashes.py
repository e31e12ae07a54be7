"""What is said of hosts that are another tenant's."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.wording import SHOWN
from tenantry.controllers.hosts.clashes import Clashes, condition, summary
from tenantry.world.hosts import HostClash, HostUse

WHEN = "2026-01-01T00:00:00Z"


def clash(namespace: str, *hosts: str) -> list[HostClash]:
    use = HostUse(WHEN, f"uid-{namespace}", "Ingress", namespace, "web", "t", hosts)
    return [HostClash(use, host) for host in hosts]


def test_only_namespaces_with_news_are_looked_at_again() -> None:
    """E15: an unchanged result wakes no controller."""
    clashes = Clashes()
    assert clashes.inside("a") is None
    assert clashes.set([*clash("a", "x"), *clash("b", "y")]) == {"a", "b"}
    assert clashes.set([*clash("a", "x"), *clash("b", "y", "z"), *clash("c", "x")]) == {"b", "c"}
    assert clashes.set(clash("c", "x")) == {"a", "b"}
    assert clashes.inside("a") == ()


def test_a_condition_names_a_few_hosts_and_counts_the_others() -> None:
    """E15: with the remedy, and without a tenant's name."""
    found = clash("a", *(f"h{number}.example" for number in range(SHOWN + 2)))
    said = condition(tuple(found), ())[0]
    assert said.message == summary(found)
    assert said.message.count("choose another one") == SHOWN
    assert said.message.endswith("; and 2 more")
    assert condition((), ()) == []


def test_who_reads_it_from_above_is_told_how_many_and_no_names() -> None:
    """E05: a Subtenant's parent."""
    said = condition(tuple(clash("a", "secret.example")), (), is_blind=True)[0]
    assert "secret" not in said.message
    assert "first: 1;" in said.message


def test_a_report_stays_until_the_next_comparison() -> None:
    """E15: an operator that has just started takes nothing back."""
    before = Condition(
        type=reasons.HOSTS_TAKEN,
        status=ConditionStatus.TRUE,
        reason=reasons.HOST_TAKEN,
        message="as it was",
        last_transition_time=WHEN,
    )
    assert [each.message for each in condition(None, [before])] == ["as it was"]
    assert condition(None, []) == []
