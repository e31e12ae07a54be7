"""The quota of a tree as a table, what flags of subnamespaces and leases mean, and what descriptions say."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, OtherInheritance, Subnamespace
from tenantry.api.tenantresourcequota import (
    Adjustment,
    ClaimKind,
    ClaimShareStatus,
    RemoteShareStatus,
    ShareStatus,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
    TenantResourceQuotaStatus,
)
from tenantry.cli import durations, output, quota, refusals
from tenantry.cli.describe.subnamespace import quota_page
from tenantry.cli.explain import quota as explain_quota
from tenantry.cli.flags import parse_pairs, parse_renewal
from tenantry.cli.kinds import ObjectSelection, told, told_key
from tenantry.cli.sub import inheritance
from tenantry.views.explain.quota import conclude
from tenantry.views.objects import ResourceQuotaStatus, ResourceQuotaWithUsage
from tenantry.views.quotas import part, shortages
from tenantry.views.quotas import quota as view_of
from tenantry.world.explain.quota import PathNamespace
from testkit.worlds import tenant

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SALE = Adjustment(name="sale", resources={"requests.cpu": "2", "pods": "-5"}, expires_at="2026-01-03T03:04:05Z")
TREE = (
    ShareStatus(
        namespace="acme",
        assigned={"requests.cpu": "10", "pods": "5"},
        used={"requests.cpu": "3", "pods": "0"},
        free={"requests.cpu": "7", "pods": "5"},
    ),
    ShareStatus(namespace="web-1", parent="acme", depth=1, assigned={"requests.cpu": "2"}, used={}, free={}),
)


def trq(*tree: ShareStatus, adjustments: tuple[Adjustment, ...] = ()) -> TenantResourceQuota:
    return TenantResourceQuota(
        metadata=ObjectMeta(name="acme"),
        spec=TenantResourceQuotaSpec(adjustments=adjustments),
        status=TenantResourceQuotaStatus(hard={"requests.cpu": "10"}, used={"requests.cpu": "3"}, tree=tree, omitted=2),
    )


def own(namespace: str, hard: dict[str, str], used: dict[str, str]) -> ResourceQuotaWithUsage:
    return ResourceQuotaWithUsage(
        metadata=ObjectMeta(name="tenantry-quota", namespace=namespace),
        status=ResourceQuotaStatus(hard=hard, used=used),
    )


def test_the_tree_is_a_table() -> None:
    """E09, E10: assigned, used and free of each namespace; and what is changed for a while."""
    core = own("acme", {"pods": "5", "requests.cpu": "8"}, {"requests.cpu": "2500m"})
    view = view_of("acme", trq(*TREE, adjustments=(SALE,)), {"acme": core})
    assert view.omitted == 2
    assert output.plain(*quota.lines([view], NOW)) == [
        "NAMESPACE   KEY            ASSIGNED   USED     FREE     OWN FREE",
        "acme        pods           5          0        5        5",
        "            requests.cpu   10         3        7        5500m",
        "  web-1     requests.cpu   2          <none>   <none>   <none>",
        "",
        "TENANT   ADJUSTMENT   BY                        EXPIRES",
        "acme     sale         pods=-5,requests.cpu=+2   2026-01-03T03:04:05Z (in 1d)",
    ]


def test_nothing_is_free_in_a_quota_that_is_smaller_than_its_use() -> None:
    """E10: never less than nothing."""
    view = view_of("acme", None, {"acme": own("acme", {"pods": "5", "memory": "1Gi"}, {"pods": "7", "memory": "3Gi"})})
    assert view.tree[0].free == {"pods": "0", "memory": "0"}
    assert view.tree[0].own_free == view.tree[0].free


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"requests.cpu": "-8"}, ""),
        ({"requests.cpu": "-9"}, "and 1 would be left: at most requests.cpu=-8 fits"),
        ({"requests.cpu": "-20"}, "and 0 would be left: at most requests.cpu=-8 fits"),
        ({"requests.cpu": "3"}, ""),
        ({"pods": "-5"}, ""),
    ],
)
def test_an_adjustment_below_what_subnamespaces_hold_does_not_fit(resources: dict[str, str], told: str) -> None:
    """E10: an adjustment of the same name is replaced; one that adds always fits."""
    acme = tenant(quota={"cpu": 10, "pods": 5})
    wanted = Adjustment(name="sale", resources=dict(resources), expires_at="")
    found = shortages(acme, trq(*TREE, adjustments=(SALE,)), wanted, NOW)
    assert len(found) == bool(told)
    assert all(told in line and "'web-1' has 2" in line for line in found)


def test_a_quota_that_is_short_already_gives_nothing() -> None:
    """E10: only what adds fits."""
    acme = tenant(quota={"cpu": 1, "pods": 5})
    wanted = Adjustment(name="cut", resources={"requests.cpu": "-500m"}, expires_at="")
    assert "nothing can be taken away" in shortages(acme, trq(*TREE), wanted, NOW)[0]


def test_an_adjustment_below_what_control_planes_hold_does_not_fit() -> None:
    """E10, H01: their processes have it, whatever the quota says."""
    acme = tenant(quota={"cpu": 10, "pods": 5})
    kind = ClaimKind.VIRTUAL_CONTROL_PLANE
    claims = (
        ClaimShareStatus(claim="web", kind=kind, assigned={"requests.cpu": "1"}),
        # A claim of nodes may be within the share of a subnamespace already.
        ClaimShareStatus(claim="fast", assigned={"requests.cpu": "2"}),
    )
    tree = (msgspec.structs.replace(TREE[0], claims=claims), TREE[1])
    cut = Adjustment(name="cut", resources={"requests.cpu": "-8"}, expires_at="")
    (found,) = shortages(acme, trq(*tree), cut, NOW)
    assert "subnamespaces and control planes hold 3 of 10" in found
    assert "at most requests.cpu=-7 fits" in found
    assert "'control plane web' has 1" in found
    assert "  control plane web   requests.cpu   1          <none>   <none>   <none>" in output.plain(
        *quota.lines([view_of("acme", trq(*tree), {})], NOW)
    )


def test_what_claims_have_is_a_line_below_their_namespace() -> None:
    """X03: nodes come out of the same quota."""
    claims = (ClaimShareStatus(claim="fast", assigned={"requests.cpu": "4", "requests.memory": "8Gi"}),)
    tree = (msgspec.structs.replace(TREE[0], claims=claims), TREE[1])
    view = view_of("acme", trq(*tree), {})
    assert output.plain(*quota.lines([view], NOW))[3:6] == [
        "  claim fast   requests.cpu      4          <none>   <none>   <none>",
        "               requests.memory   8Gi        <none>   <none>   <none>",
        "  web-1        requests.cpu      2          <none>   <none>   <none>",
    ]
    assert view.tree[0].claims == claims


def test_what_peers_hold_is_a_table_with_the_time_of_their_silence() -> None:
    """X03: a peer that does not answer keeps what it holds."""
    held = {"requests.cpu": "8"}
    silent = RemoteShareStatus(
        peer="b", namespace="acme", held=held, given={"requests.cpu": "2"}, unreachable_since="2026-01-02T00:04:05Z"
    )
    answers = RemoteShareStatus(peer="c", namespace="web-1", held=held, given=held)
    found = trq(*TREE)
    found = msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, clusters=(silent, answers)))
    assert [line.split() for line in output.plain(*quota.lines([view_of("acme", found, {})], NOW))[-3:]] == [
        ["NAMESPACE", "PEER", "KEY", "HELD", "GIVEN", "UNREACHABLE"],
        ["acme", "b", "requests.cpu", "8", "2", "3h"],
        ["web-1", "c", "requests.cpu", "8", "8", "<none>"],
    ]


def test_a_child_stands_behind_its_own_parent() -> None:
    """E09: the status has a tree level by level; what is indented must be what is inside."""
    shares = [
        ShareStatus(namespace=name, parent=parent, depth=depth)
        for name, parent, depth in (
            ("acme", "", 0),
            ("web-1", "acme", 1),
            ("shop-1", "acme", 1),
            ("inner-1", "web-1", 2),
            ("till-1", "shop-1", 2),
        )
    ]
    view = view_of("acme", trq(*shares), {})
    assert [each.namespace for each in view.tree] == ["acme", "web-1", "inner-1", "shop-1", "till-1"]
    below = part(view, "web-1")
    assert [(each.namespace, each.depth) for each in below.tree] == [("web-1", 0), ("inner-1", 1)]
    with pytest.raises(NotFound, match="no share of namespace 'gone-1'"):
        part(view, "gone-1")


@pytest.mark.parametrize("tree", [None, trq(adjustments=(SALE,))])
def test_where_nothing_is_divided_yet_the_core_namespace_is_all(tree: TenantResourceQuota | None) -> None:
    """E09: what Kubernetes counts there."""
    core = own("acme", {"requests.memory": "8Gi", "pods": "5"}, {"requests.memory": "512Mi"})
    view = view_of("acme", tree, {"acme": core})
    assert view.adjustments == (() if tree is None else (SALE,))
    assert output.plain(*quota.lines([view], NOW))[1:3] == [
        "acme        pods              5          0       5        5",
        "            requests.memory   8Gi        512Mi   7680Mi   7680Mi",
    ]
    assert output.plain(*quota.lines([view_of("acme", None, {})], NOW)) == []


def test_the_page_of_a_tenants_quota() -> None:
    page = "\n".join(output.plain(*quota_page(trq(*TREE, adjustments=(SALE,)), [], NOW)))
    assert "Namespaces:       4" in page
    assert "sale   requests.cpu=2, pods=-5   2026-01-03T03:04:05Z (in 1d)" in page
    assert "requests.cpu   10         3" in page


WEB = PathNamespace(
    namespace="web-1",
    subnamespace="web",
    parent="acme",
    asked={"cpu": "2"},
    hard={"requests.cpu": "2"},
    used={"requests.cpu": "1500m"},
)
CORE = PathNamespace(namespace="acme", asked={"cpu": "4", "pods": 5}, hard={"requests.cpu": "2", "pods": "5"})


def test_an_explanation_names_what_to_raise() -> None:
    """E09: who is short, by how much, and what fits."""
    assert output.plain(*explain_quota.lines(conclude("acme", [WEB, CORE], {"cpu": "3", "services": 1}))) == [
        "NAMESPACE   KEY            HARD   USED    FREE   NEEDED   SHORT",
        "web-1       requests.cpu   2      1500m   500m   3        2500m",
        "acme        requests.cpu   2      0       2      2500m    500m",
        "",
        "requests.cpu: 3 does not fit into 'web-1': 500m free, 2500m with all that is free above; raise",
        "  spec.quota.hard[cpu] of Tenant 'acme' from 4 to 4500m",
        "  spec.quota.hard[cpu] of Subnamespace 'web' in 'acme' from 2 to 4500m",
        "services: 1 fits: the tenant's quota does not limit it",
    ]


def test_an_explanation_of_what_fits() -> None:
    assert (
        explain_quota.lines(conclude("acme", [CORE], {"pods": 5}))[-1] == "pods: 5 fits into 'acme', which has 5 free"
    )


NONE, COPY, SYNC = InheritanceMode.NONE, InheritanceMode.COPY, InheritanceMode.SYNC


@pytest.mark.parametrize(
    ("texts", "mode", "owned", "found"),
    [
        ((), Mode.WORKSPACE, False, Inheritance(roles=SYNC, role_bindings=SYNC)),
        ((), Mode.WORKSPACE, True, Inheritance()),
        ((), Mode.SUBTENANT, False, Inheritance()),
        (("roles=None",), Mode.WORKSPACE, False, Inheritance()),
        (
            ("Secrets=copy,configMap=SYNC", "networkPolicy=Copy"),
            Mode.WORKSPACE,
            True,
            Inheritance(secrets=COPY, config_maps=SYNC, network_policies=COPY),
        ),
        (
            ("widgets.example.com=Copy",),
            Mode.SUBTENANT,
            True,
            Inheritance(others=(OtherInheritance(resource="widgets.example.com", mode=COPY),)),
        ),
    ],
)
def test_what_is_inherited(texts: tuple[str, ...], mode: Mode, owned: bool, found: Inheritance) -> None:  # noqa: FBT001 - a table's column
    """E06: a Workspace without owners gets its parent's owners."""
    assert inheritance(texts, mode=mode, owned=owned) == found


def test_pairs() -> None:
    assert parse_pairs("--label", ["a=b", "c=", "d=e=f"]) == {"a": "b", "c": "", "d": "e=f"}
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(InputError, match="--label"):
            parse_pairs("--label", wrong)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1d", "2026-01-03T03:04:05Z"),
        ("2026-01-02T05:00:00+02:00", "2026-01-02T03:00:00Z"),
        ("2026-01-02T03:00:00Z", "2026-01-02T03:00:00Z"),
        ("2026-01-02T03:00:00", ""),
        ("2026-01-02", ""),
        ("soon", ""),
        ("", ""),
    ],
)
def test_an_end_is_a_duration_or_a_time(text: str, meant: str) -> None:
    """X05: whatever is given, the spec has UTC."""
    assert durations.instant(text, NOW) == meant


def test_never_is_no_end() -> None:
    """X05."""
    assert parse_renewal("Never") is None
    with pytest.raises(InputError, match="--for must not be empty"):
        parse_renewal("")


def test_objects_in_namespaces_are_told_with_them() -> None:
    asked = quota.ObjectSelection(TenantResourceQuota, ("acme",))
    assert (asked.keys, asked.listing) == (("acme",), "tenantry get tenantresourcequotas")
    sub = ObjectSelection(Subnamespace, ("web",), "acme")
    assert (sub.keys, sub.listing) == (("acme/web",), "tenantry get subnamespaces -n acme")
    assert told_key(sub.kind, "acme/web") == told(sub.kind, "web", "acme") == "subnamespace.tenantry.dev/web in 'acme'"


def test_a_policys_refusal_is_its_message() -> None:
    """E15: as the API server 1.36 says it; anything else is left as it is."""
    said = (
        "subnamespaces.tenantry.dev \"web\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied"
        " request: spec.expiresAt must be in the future"
    )
    told_short = refusals.denied(Forbidden(said, status=403))
    assert str(told_short) == 'subnamespaces.tenantry.dev "web": spec.expiresAt must be in the future'
    other = Forbidden('User "ada" cannot list', status=403)
    assert refusals.denied(other) is other
