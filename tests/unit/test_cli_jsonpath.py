"""JSONPath templates, custom columns and sorting, as kubectl documents them."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.cli import jsonpath, output
from tenantry.cli.listing import ListOptions, takes_options

PODS: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "ready": True,
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "ready": False,
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another", "address": "::1"}],
            },
        },
    ],
    "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"username": "admin", "password": "secret"}}],
}
"""The example of the page "JSONPath Support", a little longer."""


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        ("{['kind']}", "List"),
        ("{@.kind}", "List"),
        (".kind", "List"),
        ("kind", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.items[*]['metadata.name', 'status.capacity']}", '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}'),
        (r"{.items[0].metadata.labels['kubernetes\.io/hostname']}", "127.0.0.1"),
        ("{.items[*].metadata['name', 'labels']}", '127.0.0.1 127.0.0.2 {"kubernetes.io/hostname":"127.0.0.1"}'),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.user.password)].name}", "e2e"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "127.0.0.1"),
        ("{.items[?(@.status.capacity.cpu>'4')].metadata.name}", "127.0.0.2"),
        ("{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}", "[127.0.0.1, 4] [127.0.0.2, 8] "),
        ('{range .items[*]}{.metadata.name}{"\\n"}{end}', "127.0.0.1\n127.0.0.2\n"),
        (r"{.items[0].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1"),
        ("{.items[0:1].metadata.name}", "127.0.0.1"),
        ("{.items[1].status.addresses[:].address}", "127.0.0.2 ::1"),
        ("{.items[0].status.ready}", "true"),
        ("{.items[9].kind}{.nothing.there}", ""),
        ("{range .users[*]}{range .user}{.username}{end}{end}", "admin"),
        ("{'a }'}{\"{b\"}", "a }{b"),
    ],
)
def test_templates(template: str, shown: str) -> None:
    assert jsonpath.render(jsonpath.template(template), PODS) == shown


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items", "has no }"),
        ("{range .items[*]}{.x}", "has no {end}"),
        ("{end}", "has no {range}"),
        ("{.items[x]}", "must be a number"),
        ("{.items[?(@.a=b)]}", "must be a filter"),
        ("{.items[?(@.a==b)]}", "must be a number, true, false"),
        ("{.a b}", "must begin with"),
        ("{.a[0}", "has no ]"),
        ('{"a}', "has no }"),
        ("{." + "a" * 10_000 + "}", "at most"),
    ],
)
def test_a_wrong_template_is_refused_with_the_reason(template: str, why: str) -> None:
    with pytest.raises(InputError, match=why.replace("[", r"\[").replace("{", r"\{")):
        jsonpath.template(template)


@given(st.text(alphabet="{}[].*@$?()=!<>'\"\\,:ab01- \n", max_size=40))
def test_any_text_is_a_template_or_an_input_error(text: str) -> None:
    try:
        parts = jsonpath.template(text)
    except InputError:
        return
    jsonpath.render(parts, PODS)


def test_custom_columns_have_a_line_for_each_object(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_objects(PODS["items"], "custom-columns=NAME:.metadata.name,HOST:{.metadata.labels}", single=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["NAME", "HOST"],
        ["127.0.0.1", '{"kubernetes.io/hostname":"127.0.0.1"}'],
        ["127.0.0.2", "<none>"],
    ]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-o", "jsonpath"], "jsonpath needs a value"),
        (["-o", "custom-columns="], "custom-columns needs a value"),
        (["-o", "xml"], "is not one of"),
        (["-o", "json=1"], "is not one of"),
    ],
)
def test_a_format_that_does_not_exist_is_refused(flags: list[str], why: str) -> None:
    @click.command()
    @takes_options("wide")
    def command(listing: ListOptions) -> None:
        click.echo(listing.form)

    said = CliRunner().invoke(command, flags)
    assert said.exit_code == 2
    assert why in said.stderr
    for words in (["-o", "jsonpath={.a}"], ["-o=jsonpath={.a}"], ["-ojsonpath={.a}"], ["--output=jsonpath={.a}"]):
        assert CliRunner().invoke(command, words).stdout == "jsonpath={.a}\n"


def test_lists_are_sorted_by_numbers_then_texts_then_what_lacks_the_field() -> None:
    values = [{"a": "b"}, {"a": 10}, {}, {"a": 9}, {"a": "a"}]
    key = ListOptions(sort_by="{.a}").key()
    assert sorted(values, key=key) == [{"a": 9}, {"a": 10}, {"a": "a"}, {"a": "b"}, {}]


def test_a_watch_is_not_sorted() -> None:
    with pytest.raises(InputError, match="--sort-by may not be given with --watch"):
        ListOptions(sort_by=".a", watches=True).check()
