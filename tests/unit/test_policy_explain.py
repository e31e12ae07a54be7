"""What is told of the causes of a denial."""

from __future__ import annotations

from tenantry.policy.explain import By, Cause, lines


def test_nothing_is_told_where_nothing_denies() -> None:
    """X07: an object that passes has no causes."""
    assert list(lines([])) == []


def test_who_set_the_rules_is_told_once_for_those_that_follow_each_other() -> None:
    """X07: each cause has a line, and each source one below the last of its causes."""
    causes = [
        Cause(by=By.RULE, rule="images.allowed", source="Tenant 'a'", message="wrong"),
        Cause(by=By.RULE, rule="services.types", source="Tenant 'a'", message="wrong, too"),
    ]
    assert list(lines(causes)) == [
        "rule images.allowed: wrong",
        "rule services.types: wrong, too",
        "  set by Tenant 'a'",
    ]
