"""The tree: what is drawn, and in what a terminal can show."""

from __future__ import annotations

import sys

import click
import msgspec
import pytest

from tenantry.api.model import ConditionStatus, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceQuota, SubnamespaceSpec, SubnamespaceStatus
from tenantry.api.tenant import Tenant, TenantSpec
from tenantry.api.tenantresourcequota import (
    ClaimKind,
    ClaimShareStatus,
    ShareStatus,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
    TenantResourceQuotaStatus,
)
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.cli import output
from tenantry.cli.tree import draw
from tenantry.views.objects import KeyUsage, NamespaceStatus, NamespaceWithPhase
from tenantry.views.snapshot import Snapshot
from tenantry.views.tree import ConditionView, NamespaceView, TenantView, below, tenants

READY = ConditionView(type="Ready", status=ConditionStatus.TRUE, reason="Established", message="all is there")
BLOCKED = ConditionView(type="Ready", status=ConditionStatus.FALSE, reason="NamespaceExists", message="choose another")
STALLED = ConditionView(type="Stalled", status=ConditionStatus.TRUE, reason="NamespaceExists", message="choose another")
EXPIRING = ConditionView(
    type="Expiring", status=ConditionStatus.TRUE, reason="ExpiresSoon", message="it ends in an hour"
)


def drawn(views: list[TenantView]) -> list[str]:
    return output.plain(*draw(views, blocks=True))


def drawn_in_ascii(views: list[TenantView]) -> list[str]:
    return output.plain(*draw(views, blocks=False), encoding="ascii")


def tenant(
    *conditions: ConditionView, ready: bool = True, quota: tuple[KeyUsage, ...] = (), suspended: bool = False
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
    quota = (KeyUsage("pods", "5", "10"), KeyUsage("requests.memory", "7Gi", "8Gi"))
    assert drawn([tenant(READY, quota=quota)]) == [
        "acme  Ready  User:ada, Group:devs  Isolated",
        "└── namespace acme  Active",
        "    ├── pods             [█████░░░░░]    5 / 10    50 %",
        "    └── requests.memory  [████████░░]  7Gi / 8Gi   87 %",
    ]


def test_the_same_in_ascii() -> None:
    lines = drawn_in_ascii([tenant(READY, quota=(KeyUsage("pods", "5", "10"),)), tenant(BLOCKED, STALLED, ready=False)])
    assert lines == [
        "acme  Ready  User:ada, Group:devs  Isolated",
        "`-- namespace acme  Active",
        "    `-- pods  [#####-----]  5 / 10   50 %",
        "acme  NotReady  User:ada, Group:devs  Isolated",
        "+-- Ready is False: NamespaceExists: choose another",
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
    line = drawn_in_ascii([tenant(READY, quota=(KeyUsage("cpu", used, hard),))])[-1]
    assert f"[{bar}]" in line
    assert line.endswith(share)


def test_colours_repeat_the_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    views = [
        tenant(READY, quota=(KeyUsage("cpu", "10", "10"),), suspended=True),
        tenant(BLOCKED, ready=False),
        tenant(ready=False),
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    output.show(*draw(views, blocks=True))
    painted = capsys.readouterr().out
    assert click.unstyle(painted).splitlines() == drawn(views)
    assert painted.splitlines() != drawn(views)


def test_a_tenant_that_was_never_reconciled_is_reported() -> None:
    assert "the operator has not dealt with it yet" in drawn_in_ascii([tenant(ready=False)])[1]


@pytest.mark.parametrize(
    ("encoding", "has_blocks"), [("utf-8", True), ("ascii", False), ("iso-8859-1", False), (None, False)]
)
def test_blocks_need_an_encoding_that_has_them(encoding: str | None, has_blocks: bool) -> None:  # noqa: FBT001 - a table's column
    assert output.has_blocks(encoding) is has_blocks


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "<none>"), ("", "<none>"), (False, "false"), (7, "7"), ("a\n b", "a b")]
)
def test_cells(value: object, shown: str) -> None:
    assert output.cell(value) == shown


def test_a_tree_of_namespaces() -> None:
    """E04, E05: each with its mode, its own share, and what is wrong with it; one below the other."""
    shop = NamespaceView(name="shop-1", phase="Active", kind="subtenant", subnamespace="shop", conditions=(READY,))
    late = NamespaceView(name="", phase="", kind="workspace", subnamespace="late", conditions=(BLOCKED, STALLED))
    web = NamespaceView(
        name="web-1",
        phase="Active",
        kind="workspace",
        subnamespace="web",
        quota=(KeyUsage("pods", "1", "4"),),
        conditions=(READY, EXPIRING),
        children=(shop, late),
    )
    core = NamespaceView(name="acme", phase="Active", quota=(KeyUsage("pods", "5", "10"),), children=(web,))
    assert drawn([msgspec.structs.replace(tenant(READY), namespaces=(core,))])[1:] == [
        "└── namespace acme  Active",
        "    ├── pods  [█████░░░░░]  5 / 10   50 %",
        "    └── web  Workspace  web-1  Active",
        "        ├── Expiring: it ends in an hour",
        "        ├── pods  [██░░░░░░░░]  1 / 4   25 %",
        "        ├── shop  Subtenant  shop-1  Active  no quota",
        "        └── late  Workspace  no namespace yet",
        "            └── Ready is False: NamespaceExists: choose another",
    ]


def _namespace(name: str, parent: str = "", **labels: str) -> NamespaceWithPhase:
    marked = {f"tenantry.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    marked |= {"tenantry.dev/tenant-uid": "t-uid"} | ({"tenantry.dev/parent": parent} if parent else {})
    return NamespaceWithPhase(metadata=ObjectMeta(name=name, labels=marked), status=NamespaceStatus(phase="Active"))


def _child(name: str, parent: str, uid: str) -> NamespaceWithPhase:
    return _namespace(f"{name}-1", parent, kind="workspace", subnamespace=name, subnamespace_uid=uid)


def _sub(name: str, namespace: str, uid: str) -> Subnamespace:
    return Subnamespace(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid), spec=SubnamespaceSpec(mode=Mode.WORKSPACE)
    )


def test_the_share_of_a_control_plane_is_a_line_of_its_namespace() -> None:
    """H01: what is missing in the bars is there."""
    claim = ClaimShareStatus(
        claim="web", kind=ClaimKind.VIRTUAL_CONTROL_PLANE, assigned={"requests.memory": "96Mi", "requests.cpu": "50m"}
    )
    status = TenantResourceQuotaStatus(tree=(ShareStatus(namespace="acme", claims=(claim,)),))
    trq = TenantResourceQuota(metadata=ObjectMeta(name="acme"), spec=TenantResourceQuotaSpec(), status=status)
    core = _namespace("acme", kind="core")
    lines = drawn(tenants(Snapshot(tenants=[ACME], namespaces=[core], tenant_quotas=[trq])))
    assert lines[-1] == "    └── VirtualControlPlane web  requests.cpu 50m, requests.memory 96Mi"


def test_control_planes_have_their_phase() -> None:
    """H01: one that sleeps has no share, and is there all the same."""
    claims = (
        ClaimShareStatus(claim="web", kind=ClaimKind.VIRTUAL_CONTROL_PLANE, assigned={"requests.cpu": "50m"}),
        ClaimShareStatus(claim="test", assigned={"requests.cpu": "4"}),
    )
    status = TenantResourceQuotaStatus(tree=(ShareStatus(namespace="acme", claims=claims),))
    trq = TenantResourceQuota(metadata=ObjectMeta(name="acme"), spec=TenantResourceQuotaSpec(), status=status)
    planes = [
        VirtualControlPlane(
            metadata=ObjectMeta(name=name, namespace="acme"), status=VirtualControlPlaneStatus(phase=phase)
        )
        for name, phase in (("web", PlanePhase.AWAKE), ("test", PlanePhase.ASLEEP))
    ]
    core = _namespace("acme", kind="core")
    whole = Snapshot(tenants=[ACME], namespaces=[core], tenant_quotas=[trq], control_planes=planes)
    assert drawn(tenants(whole))[-3:] == [
        "    ├── VirtualControlPlane web  Awake  requests.cpu 50m",
        "    ├── SliceClaim test  requests.cpu 4",
        "    └── VirtualControlPlane test  Asleep",
    ]
    (view,) = tenants(whole)
    assert view.namespaces[0].planes == below(whole, "acme").planes


OWNER = Owner(kind=OwnerKind.USER, name="ada")
ACME = Tenant(metadata=ObjectMeta(name="acme", uid="t-uid"), spec=TenantSpec(owners=(OWNER,)))


def test_the_tree_is_put_together_from_labels_and_subnamespaces() -> None:
    """E04: a namespace stands below its parent, and a Subnamespace without one below the namespace that it is in."""
    namespaces = [_child("b", "a-1", "b-uid"), _child("a", "acme", "a-uid"), _namespace("acme", kind="core")]
    subnamespaces = [_sub("a", "acme", "a-uid"), _sub("b", "a-1", "new-uid"), _sub("0", "a-1", "c-uid")]
    (view,) = tenants(Snapshot(tenants=[ACME], namespaces=namespaces, subnamespaces=subnamespaces))
    (core,) = view.namespaces
    (a,) = core.children
    assert (core.name, a.name, a.subnamespace, a.bound) == ("acme", "a-1", "a", True)
    # b's namespace is bound to one that is gone; the new one waits.
    assert [(each.subnamespace, each.name, each.bound) for each in a.children] == [
        ("0", "", True),
        ("b", "b-1", False),
        ("b", "", True),
    ]


@pytest.mark.parametrize(
    "odd", [[_child("x", "y-1", ""), _child("y", "x-1", "")], [_child("x", "gone", "")], [_child("x", "x-1", "")]]
)
def test_namespaces_that_hang_nowhere_are_shown_once(odd: list[NamespaceWithPhase]) -> None:
    """A tree can be drawn whatever the labels say."""
    (view,) = tenants(Snapshot(tenants=[ACME], namespaces=[_namespace("acme", kind="core"), *odd]))
    shown: list[str] = []
    left = list(view.namespaces)
    while left:
        each = left.pop()
        shown.append(each.name)
        left += each.children
    assert sorted(shown) == sorted(["acme", *(each.metadata.name for each in odd)])


def test_an_owner_sees_the_totals_of_a_subtenant_and_nothing_inside() -> None:
    """E05: the tree of an owner is made of what the owner may read."""
    total = SubnamespaceQuota(assigned={"pods": "4"}, used={"pods": "1"})
    status = SubnamespaceStatus(namespace="shop-1", quota=total)
    shop = msgspec.structs.replace(_sub("shop", "acme", "s-uid"), status=status)
    namespaces = [_namespace("acme", kind="core"), _child("a", "acme", "a-uid")]
    core = below(Snapshot(namespaces=namespaces, subnamespaces=[shop, _sub("a", "acme", "a-uid")]), "acme")
    assert core.conditions is None
    assert [(each.subnamespace, each.name, each.is_closed) for each in core.children] == [
        ("a", "a-1", False),
        ("shop", "shop-1", True),
    ]
    assert core.children[1].quota == (KeyUsage("pods", "1", "4"),)
