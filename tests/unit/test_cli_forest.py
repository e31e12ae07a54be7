"""The tree: what is drawn, and in what a terminal can show."""

from __future__ import annotations

import click
import pytest

from tenantry.api.model import ConditionStatus
from tenantry.cli import output
from tenantry.cli.forest import ConditionView, NamespaceView, Style, TenantView, Use, draw

READY = ConditionView(type="Ready", status=ConditionStatus.TRUE, reason="Established", message="all is there")
BLOCKED = ConditionView(type="Ready", status=ConditionStatus.FALSE, reason="NamespaceExists", message="choose another")
STALLED = ConditionView(type="Stalled", status=ConditionStatus.TRUE, reason="NamespaceExists", message="choose another")
UNICODE, ASCII = Style(draws=True, color=False), Style(draws=False, color=False)


def tenant(
    *conditions: ConditionView, ready: bool = True, quota: tuple[Use, ...] = (), suspended: bool = False
) -> TenantView:
    namespace = NamespaceView(name="acme", phase="Active", quota=quota)
    return TenantView(
        name="acme",
        ready=ready,
        suspended=suspended,
        network="Isolated",
        owners=("User:ada", "Group:devs"),
        conditions=conditions,
        namespaces=(namespace,),
    )


def test_a_ready_tenant() -> None:
    quota = (Use("pods", "5", "10"), Use("requests.memory", "7Gi", "8Gi"))
    assert draw([tenant(READY, quota=quota)], UNICODE) == [
        "acme  Ready  User:ada, Group:devs  Isolated",
        "└── namespace acme  Active",
        "    ├── pods             [█████░░░░░]    5 / 10    50 %",
        "    └── requests.memory  [████████░░]  7Gi / 8Gi   87 %",
    ]


def test_the_same_in_ascii() -> None:
    lines = draw([tenant(READY, quota=(Use("pods", "5", "10"),)), tenant(BLOCKED, STALLED, ready=False)], ASCII)
    assert lines == [
        "acme  Ready  User:ada, Group:devs  Isolated",
        "`-- namespace acme  Active",
        "    `-- pods  [#####-----]  5 / 10   50 %",
        "acme  NotReady  User:ada, Group:devs  Isolated",
        "|-- Ready is False: NamespaceExists: choose another",
        "`-- namespace acme  Active  no quota",
    ]
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize(
    ("used", "hard", "bar", "share"),
    [
        ("0", "10", "----------", "  0 %"),
        ("1m", "10", "#---------", "  0 %"),
        ("9999m", "10", "#########-", " 99 %"),
        ("10", "10", "##########", "100 %"),
        ("62", "60", "##########", "103 %"),
        ("0", "0", "----------", "  0 %"),
        ("1", "0", "##########", "100 %"),
    ],
)
def test_bars_say_full_only_of_what_is_full(used: str, hard: str, bar: str, share: str) -> None:
    line = draw([tenant(READY, quota=(Use("cpu", used, hard),))], ASCII)[-1]
    assert f"[{bar}]" in line
    assert line.endswith(share)


def test_colour_says_nothing_that_the_words_do_not() -> None:
    views = [
        tenant(READY, quota=(Use("cpu", "10", "10"),), suspended=True),
        tenant(BLOCKED, ready=False),
        tenant(ready=False),
    ]
    painted = draw(views, Style(draws=True, color=True))
    assert [click.unstyle(line) for line in painted] == draw(views, UNICODE)
    assert painted != draw(views, UNICODE)


def test_a_tenant_that_nobody_has_dealt_with_says_so() -> None:
    assert "the operator has not dealt with it yet" in draw([tenant(ready=False)], ASCII)[1]


@pytest.mark.parametrize(
    ("encoding", "draws"), [("utf-8", True), ("ascii", False), ("iso-8859-1", False), (None, False)]
)
def test_only_what_can_be_encoded_is_drawn(encoding: str | None, draws: bool) -> None:  # noqa: FBT001 - a table's column
    assert output.can_draw(encoding) is draws


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "<none>"), ("", "<none>"), (False, "false"), (7, "7"), ("a\n b", "a b")]
)
def test_cells(value: object, shown: str) -> None:
    assert output.cell(value) == shown
