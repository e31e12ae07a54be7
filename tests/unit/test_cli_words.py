"""What people write on the command line, and what they are told: kinds, owners, quotas, durations, refusals."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api import reasons
from tenantry.api.errors import InputError, Invalid
from tenantry.api.owner import InnerOwner, Owner, OwnerKind
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import durations, kinds, output, paths, refusals
from tenantry.cli.flags import parse_owner, parse_quota
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import parse_condition
from tenantry.views.tree import owner_text

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("word", ["tenants", "tenant", "tnt", "Tenant", "tenants.tenantry.dev", "tenant.tenantry.dev"])
def test_every_word_of_a_kind_means_it(word: str) -> None:
    assert kinds.find_kind(word) is Tenant


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("tenants",), ()),
        (("tenant", "b", "a", "b"), ("b", "a")),
        (("tenant/a", "tnt/b", "tenant/a"), ("a", "b")),
    ],
)
def test_both_forms_name_objects(words: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert kinds.parse(words) == [ObjectSelection(Tenant, names)]


@pytest.mark.parametrize("words", [("sub", "acme/web", "acme/a/b"), ("sub/acme/web", "sub/acme/a/b")])
def test_both_forms_take_paths(words: tuple[str, ...]) -> None:
    assert kinds.parse(words) == [ObjectSelection(Subnamespace, ("acme/web", "acme/a/b"))]


def test_paths_of_one_command_lead_to_one_namespace() -> None:
    assert paths.parent_of(["acme/web/a", "acme/web/b.v1"], "") == "acme/web"


@pytest.mark.parametrize(
    ("texts", "namespace", "said"),
    [
        (["acme/web"], "acme", "leave --namespace out"),
        (["acme/web", "globex/web"], "", "different namespaces"),
        (["acme/web", "web"], "", "different namespaces"),
        (["acme/"], "", "is no name"),
        (["/web"], "", "is no name"),
        (["acme/../web"], "", "is no name"),
        (["acme/..", "acme/web"], "", "is no name"),
        (["acme/web?x=y"], "", "is no name"),
    ],
)
def test_paths_that_contradict_are_refused(texts: list[str], namespace: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        paths.parent_of(texts, namespace)


@pytest.mark.parametrize(
    "words",
    [
        ("acme",),
        ("tenant/",),
        ("tenant/a", "b"),
        ("tenant", "tenant/a"),
        ("sub", "sub/a"),
        ("sub", "subnamespace.tenantry.dev/a"),
        ("sub", "node/a"),
        ("tenant/a/b",),
        ("pod/a",),
    ],
)
def test_words_that_name_nothing_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="KIND"):
        kinds.parse(words)


@pytest.mark.parametrize(
    ("word", "meant"), [("tenats", "tenants"), ("Tenat", "tenant"), ("subnamespace-s", "subnamespaces")]
)
def test_a_mistyped_kind_gets_one_suggestion(word: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        kinds.find_kind(word)
    assert str(caught.value) == f"{word!r} is not a Tenantry kind; did you mean {meant}?"


def test_the_name_that_is_printed_is_taken_back() -> None:
    assert kinds.parse((kinds.full_name(Tenant, "acme"),)) == [ObjectSelection(Tenant, ("acme",))]


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("ada", Owner(kind=OwnerKind.USER, name="ada")),
        ("User:ada", Owner(kind=OwnerKind.USER, name="ada")),
        ("user:ada", Owner(kind=OwnerKind.USER, name="ada")),
        ("system:ada", Owner(kind=OwnerKind.USER, name="system:ada")),
        ("User:oidc:ada", Owner(kind=OwnerKind.USER, name="oidc:ada")),
        ("Group:devs", Owner(kind=OwnerKind.GROUP, name="devs")),
        ("ServiceAccount:ci/deployer", Owner(kind=OwnerKind.SERVICE_ACCOUNT, name="deployer", namespace="ci")),
    ],
)
def test_an_owner_is_a_user_unless_it_says_otherwise(text: str, owner: Owner) -> None:
    """E01: owners are users, groups and service accounts."""
    assert parse_owner(text) == owner
    assert parse_owner(owner_text(owner)) == owner


@pytest.mark.parametrize("text", ["", "User:", "Group:", "ServiceAccount:x", "ServiceAccount:/x", "ServiceAccount:x/"])
def test_an_owner_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--owner .* must"):
        parse_owner(text)


@pytest.mark.parametrize("text", ["Robot:a", "oidc:ada", "Role:", ":a"])
def test_an_unknown_kind_of_owner_is_refused(text: str) -> None:
    """A name with a colon is possible with User: only, so a mistyped kind makes no user."""
    prefix = text.partition(":")[0]
    with pytest.raises(InputError, match=f"--owner '{text}' has the unknown kind '{prefix}'.*write User:{text}"):
        parse_owner(text)


def test_quotas_add_up() -> None:
    assert parse_quota(["cpu=4, memory=8Gi", "pods=5"]) == {"cpu": "4", "memory": "8Gi", "pods": "5"}


@pytest.mark.parametrize("texts", [["cpu"], ["cpu="], ["=4"], [""], ["cpu=1,"], ["cpu=1", "cpu=2"]])
def test_a_quota_that_says_nothing_or_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="--quota"):
        parse_quota(texts)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("0s", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.5h", "5 m", "1m1h", "forever", "\u0665m", "9999999"])
def test_what_is_no_duration(text: str) -> None:
    assert durations.parse(text) is None


@given(st.integers(0, 10**8))
def test_a_duration_that_is_printed_reads_as_no_more_than_it_was(seconds: int) -> None:
    read = durations.parse(durations.text(seconds))
    assert read is not None
    assert 0 <= seconds - read <= seconds * 0.05


def test_ages() -> None:
    assert durations.age("2026-01-02T03:04:00Z", NOW) == "5s"
    assert durations.age("2025-12-30T02:04:05Z", NOW) == "3d1h"
    assert durations.age("never", NOW) == "unknown"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ready", "ready"),
        ("deleted", "gone"),
        ("condition=Ready", "ready"),
        ("condition=Suspended", "Suspended=True"),
        ("condition=Stalled=false", "Stalled=False"),
    ],
)
def test_conditions_to_wait_for(text: str, shown: str) -> None:
    assert str(parse_condition(text)) == shown


@pytest.mark.parametrize("text", ["", "done", "condition", "condition=", "condition=Ready=maybe", "ready=True"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(InputError, match="--for"):
        parse_condition(text)


def test_a_condition_that_no_kind_has_is_refused() -> None:
    """E15: a mistyped condition does not wait until the deadline."""
    with pytest.raises(InputError, match="'Readi' is not a condition of Tenantry's kinds; did you mean Ready"):
        parse_condition("condition=Readi")


def test_all_documented_types_of_conditions_can_be_waited_for() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/reasons.md").read_text()
    types = page.partition("## Condition types")[2].partition("\n## ")[0]
    slices = page.partition("## Condition types of slices")[2].partition("\n## ")[0]
    slices = "\n".join(line for line in slices.splitlines() if "Present only while true" in line)
    assert set(re.findall(r"^\| `(\w+)`", f"{types}\n{slices}", re.MULTILINE)) == reasons.CONDITION_TYPES


NO_RULES = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)


@pytest.mark.parametrize(
    ("causes", "lines"),
    [
        (
            "spec.owners[0].name: Invalid value: must not begin with system:, which names others",
            ["spec.owners[0].name must not begin with system:, which names others"],
        ),
        (
            "spec.owners[0].name: Invalid value: must not begin with system: or tenantry:, which name others",
            ["spec.owners[0].name must not begin with system: or tenantry:, which name others"],
        ),
        ("spec: Invalid value: must not change: make a new one", ["spec must not change: make a new one"]),
        ("<nil>: Invalid value: metadata.name must be a DNS label", ["metadata.name must be a DNS label"]),
        (
            f'[spec.owners[0].kind: Unsupported value: "R": supported values: "User", "Group", {NO_RULES}]',
            ['spec.owners[0].kind is "R"; it must be one of: "User", "Group"'],
        ),
        (
            f'[spec.owners: Required value, spec.x: Invalid value: "a: b, c": must be y, {NO_RULES}]',
            ["spec.owners must be given", "spec.x must be y"],
        ),
        (
            'spec.quota.hard[requests.cpu]: Invalid value: "-1": must be a quantity',
            ["spec.quota.hard[requests.cpu] must be a quantity"],
        ),
        (
            "spec.owners: Invalid value: 0: spec.owners in body should have at least 1 items",
            ["spec.owners must have at least 1 items"],
        ),
        (
            "spec.tenant: Invalid value: \"A\": spec.tenant in body should match '^[a-z]+$'",
            ["spec.tenant must match '^[a-z]+$'"],
        ),
        (
            'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain',
            ["metadata.name must be a lowercase RFC 1123 subdomain"],
        ),
        (
            "spec.owners: Too many: 65: must have at most 64 items",
            ["spec.owners too many: 65: must have at most 64 items"],
        ),
    ],
)
def test_a_refusal_names_the_field_and_what_it_must_be(causes: str, lines: list[str]) -> None:
    """E15: as the API server 1.36 says it."""
    found = refusals.problems(f'Tenant.tenantry.dev "x" is invalid: {causes}')
    assert [str(problem) for problem in found] == lines


def test_a_refusal_in_another_form_is_left_alone() -> None:
    error = Invalid("something else is wrong", status=422)
    assert refusals.explained(error) is error


def test_a_refusal_tells_three_and_counts_the_rest() -> None:
    causes = ", ".join(f"spec.f{number}: Required value" for number in range(5))
    error = refusals.explained(Invalid(f'Tenant.tenantry.dev "x" is invalid: [{causes}]', status=422))
    assert str(error).splitlines() == [
        "Tenant 'x' is wrong in 5 places:",
        "  spec.f0 must be given",
        "  spec.f1 must be given",
        "  spec.f2 must be given",
        "  and 2 more",
    ]


# -- what others have chosen ----------------------------------------------------------------------


def test_a_table_shows_what_a_terminal_would_obey() -> None:
    """L01: no name takes a line back, or turns what follows around."""
    rows = [["ad\x1b[2Kmin", "a\u202eb\x07"], ["größer 語", "\x9b1A"]]
    assert output.plain(output.table(("ROLE", "WHY"), rows)) == [
        "ROLE           WHY",
        "ad\\x1b[2Kmin   a\\u202eb\\x07",
        "größer 語      \\x9b1A",
    ]


def test_what_is_said_keeps_its_lines_and_nothing_else_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """L01: messages of the API server name what people have chosen."""
    output.talk("you may not give 'ad\x1b[2Kmin':\n  it takes the verb bind\r")
    assert capsys.readouterr().err == "you may not give 'ad\\x1b[2Kmin':\n  it takes the verb bind\\r\n"


def test_what_is_printed_keeps_its_colours_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L01: a tree names owners, whom tenants choose."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.write("acme\t\x1b[32mReady\x1b[0m User:a\x1b[2K\x1b[1Gb\r\n")
    assert capsys.readouterr().out == "acme\t\x1b[32mReady\x1b[0m User:a\\x1b[2K\\x1b[1Gb\\r\n"


@pytest.mark.parametrize("name", ["x\nUser bob", "x\r", "\x1b[2J", "x\x00", "x\x7f"])
def test_the_name_of_an_owner_is_one_line_of_text(name: str) -> None:
    """An annotation of namespaces has a line for each owner, which policies read."""
    with pytest.raises(msgspec.ValidationError, match=r"\^\[\^"):
        msgspec.convert({"kind": "User", "name": name}, Owner)
    with pytest.raises(msgspec.ValidationError, match=r"\^\[\^"):
        msgspec.convert({"kind": "User", "name": name}, InnerOwner)


_HOSTILE = "a\x1b[8mhidden\x1b[0m\x9b2J\u202eb"


@pytest.mark.parametrize(("is_terminal", "direction"), [(True, "\\u202e"), (False, "\u202e")])
@pytest.mark.parametrize("form", ["jsonpath={.metadata.annotations.note}", "yaml", "json"])
def test_no_object_of_a_tenant_controls_a_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    is_terminal: bool,  # noqa: FBT001 - a column of the table
    direction: str,
) -> None:
    """Colours of a tenant could hide a part of what an administrator reads; a file gets the characters as they are."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    output.print_objects([{"metadata": {"annotations": {"note": _HOSTILE}}}], form, single=True)
    shown = capsys.readouterr().out
    assert "hidden" in shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    if form == "jsonpath={.metadata.annotations.note}":
        assert shown == f"a\\x1b[8mhidden\\x1b[0m\\x9b2J{direction}b\n"
    assert not is_terminal or "\u202e" not in shown
