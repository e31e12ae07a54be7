"""What is told of the causes of a denial."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenantry.api.ruledeclarations import Action
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Violation
from tenantry.policy.explain import hostwarning
from tenantry.policy.explain.refusal import (
    Author,
    Cause,
    Obstacle,
    Source,
    agrees,
    author_of,
    is_same,
    lines,
    of_refusal,
    of_violation,
    source_of,
    told_by,
)


def test_nothing_is_told_where_nothing_denies() -> None:
    """X07: an object that passes has no causes."""
    assert list(lines([])) == []


def test_who_set_the_rules_is_told_once_for_those_that_follow_each_other() -> None:
    """X07: each cause has a line, and each source one below the last of its causes."""
    causes = [
        Cause(by=Obstacle.RULE, rule="images.allowed", source="Tenant 'a'", message="wrong"),
        Cause(by=Obstacle.RULE, rule="services.types", source="Tenant 'a'", message="wrong, too"),
    ]
    assert list(lines(causes)) == [
        "rule images.allowed: wrong",
        "rule services.types: wrong, too",
        "  set by Tenant 'a'",
    ]


@pytest.mark.parametrize(
    ("status", "message", "by"),
    [
        (403, 'pods is forbidden: User "ada" cannot create resource "pods" in API group ""', Obstacle.RIGHTS),
        (
            403,
            'roles "x" is forbidden: user "ada" (groups=["g"]) is attempting to grant RBAC permissions: {\n}',
            Obstacle.RIGHTS,
        ),
        (403, 'pods "p" is forbidden: exceeded quota: q, requested: pods=1', Obstacle.QUOTA),
        (422, 'Pod "p" is invalid: spec: Required value', Obstacle.VALIDATION),
        (403, "pods is forbidden: something else", Obstacle.KUBERNETES),
    ],
)
def test_a_refusal_says_what_refuses(status: int, message: str, by: Obstacle) -> None:
    """X07: in one line, whatever the server writes."""
    told = of_refusal(status, message)
    assert told.by is by
    assert "\n" not in told.message


def refusal(message: str) -> Cause:
    """Return what a refusal of the policy on pods means."""
    policy = "ValidatingAdmissionPolicy 'tenantry-rules-pods' with binding 'tenantry-rules-pods' denied request: "
    return of_refusal(422, f'pods "p" is forbidden: {policy}{message}')


ONE = "pod names its node (rule scheduling.nodeName of Tenant 'a'): leave out nodeName; let the scheduler choose"
OTHER = "container 'c' is privileged (rule podSecurity.privileged of Tenant 'a'): set it to false"


def test_a_refusal_of_several_rules_is_told_one_by_one() -> None:
    """X07: a fix may have a semicolon itself."""
    first, second = told_by(refusal(f"{ONE}; {OTHER}"))
    assert (first.rule, first.fix) == ("scheduling.nodeName", "leave out nodeName; let the scheduler choose")
    assert (second.message, second.source) == ("container 'c' is privileged", "Tenant 'a'")
    assert told_by(of_refusal(403, "something else"))[0].by is Obstacle.KUBERNETES


def test_a_suspension_is_told_apart_from_other_policies() -> None:
    """E02: by the name of its policy."""
    text = "ValidatingAdmissionPolicy '{}' with binding 'x' denied request: no"
    assert of_refusal(403, text.format("tenantry-suspended")).by is Obstacle.SUSPENSION
    cause = of_refusal(403, text.format("other"))
    assert (cause.by, cause.source, cause.message) == (Obstacle.POLICY, "other", "no")


def test_python_and_the_api_server_agree_if_one_finding_is_told() -> None:
    """X07: a quota, which comes last, says that no rule refuses; a missing right says nothing of rules."""
    finding = Violation(rule="a.b", source="s", path="pod", what="is wrong", fix="leave it out")
    found = [of_violation(finding)]
    assert agrees(found, refusal(str(finding))) is True
    assert agrees(found, refusal(ONE)) is False
    assert agrees(found, None) is False
    assert agrees([], None) is True
    assert agrees([], of_refusal(403, "exceeded quota: q")) is True
    assert agrees(found, of_refusal(403, 'User "x" cannot create')) is None


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Tenant 'a'", Source("Tenant", "a")),
        ("Subnamespace 'a/b'", Source("Subnamespace", "b", "a")),
        ("Tenantry's standard", None),
    ],
)
def test_the_source_of_a_rule_is_an_object(text: str, source: Source | None) -> None:
    """X07: the standard is none."""
    assert source_of(text) == source


def test_the_author_of_a_rule_wrote_its_field_last() -> None:
    """X07: a switch of a level is written by the author of the level; a rule of old by the one who wrote all rules."""

    def entry(manager: str, time: str, *path: str) -> dict[str, object]:
        fields: dict[str, object] = {}
        inner = fields
        for step in path:
            below: dict[str, object] = {}
            inner[f"f:{step}"] = below
            inner = below
        return {"manager": manager, "time": time, "fieldsV1": fields}

    entries = [
        entry("old", "2026-01-01T00:00:00Z", "spec", "rules", "podSecurity", "level"),
        entry("new", "2026-01-02T00:00:00Z", "spec", "rules", "podSecurity", "level"),
        entry("all", "2026-01-03T00:00:00Z", "spec", "rules"),
    ]
    value = {"metadata": {"managedFields": entries}}
    assert author_of(value, "podSecurity.privileged") == Author("new", "2026-01-02T00:00:00Z")
    assert author_of(value, "images.allowed") == Author("all", "2026-01-03T00:00:00Z")
    assert author_of({}, "images.allowed") is None


def test_the_author_is_told_with_the_source() -> None:
    """X07: warnings and notes are told as such."""
    rule = Cause(by=Obstacle.RULE, rule="a.b", source="Tenant 'a'", message="is wrong", fix="leave it out")
    causes = [
        replace(rule, author=Author("kubectl", "2026-01-01T00:00:00Z"), about="each of its pods"),
        replace(rule, action=Action.WARN),
        Cause(by=Obstacle.QUOTA, message="exceeded"),
    ]
    assert list(lines(causes)) == [
        "rule a.b: each of its pods: is wrong: leave it out",
        "  set by Tenant 'a', last written by kubectl at 2026-01-01T00:00:00Z",
        "warned of, rule a.b: is wrong: leave it out",
        "  set by Tenant 'a'",
        "quota: exceeded",
    ]


def test_an_object_that_is_too_large_is_named_once() -> None:
    """X07: the API server measures it with defaults, and so names another number."""
    ours = Cause(by=Obstacle.RULE, rule="objects.maxSizes", source="a", message="has 2000 bytes", fix="split it")
    assert is_same(ours, replace(ours, message="has 2017 bytes"))
    assert not is_same(ours, replace(ours, fix="must have at most 1Ki"))
    assert not is_same(replace(ours, rule="a.b"), replace(ours, rule="a.b", message="has 2017 bytes"))


def test_the_rules_that_a_host_names_mend_a_manifest_inside() -> None:
    """X09: a refusal has all that the checks of fields that may not be set need; what has values is not known."""
    said = (
        "the host refuses this pod: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: spec.hostNetwork"
        " must not be true (rule pods.hostNamespaces of Tenant 'acme'): remove it; spec.containers[0].image must be"
        " another (rule images.allowed of Tenant 'acme'): use another"
    )
    cause = hostwarning.read(f'299 - "{said}"', "")
    assert cause is not None
    known = hostwarning.named(told_by(cause), Section(refused={"services.types": "Tenant 'acme'"}))
    assert set(known.refused) == {"services.types", "pods.hostNamespaces", "images.allowed"}
    assert not known.allowed
