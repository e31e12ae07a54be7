"""What is told of the causes of a denial."""

from __future__ import annotations

import pytest

from tenantry.policy.explain.refusal import By, Cause, lines, of_refusal


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


@pytest.mark.parametrize(
    ("status", "message", "by"),
    [
        (403, 'pods is forbidden: User "ada" cannot create resource "pods" in API group ""', By.RIGHTS),
        (
            403,
            'roles "x" is forbidden: user "ada" (groups=["g"]) is attempting to grant RBAC permissions: {\n}',
            By.RIGHTS,
        ),
        (403, 'pods "p" is forbidden: exceeded quota: q, requested: pods=1', By.QUOTA),
        (422, 'Pod "p" is invalid: spec: Required value', By.VALIDATION),
        (403, "pods is forbidden: something else", By.KUBERNETES),
    ],
)
def test_a_refusal_says_what_refuses(status: int, message: str, by: By) -> None:
    """X07: in one line, whatever the server writes."""
    told = of_refusal(status, message)
    assert told.by is by
    assert "\n" not in told.message
