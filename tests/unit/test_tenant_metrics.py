"""Which tenants have series of their own, and what the series say."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tenantry.controllers.tenantmetrics import scrapers
from tenantry.controllers.tenantmetrics.figures import OTHERS, Figures, TenantFacts, bounded, total
from tenantry.controllers.tenantmetrics.pages import is_loopback
from tenantry.controllers.tenantmetrics.series import TenantSeries
from tenantry.install import observability

_KEYS = st.sampled_from(["requests.cpu", "requests.memory", "pods"])
_AMOUNTS = st.dictionaries(st.tuples(st.sampled_from(["hard", "used"]), _KEYS), st.integers(0, 10**9), max_size=6)


@st.composite
def _tenants(draw: st.DrawFn) -> list[Figures]:
    names = draw(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), unique=True, max_size=12))
    return [
        Figures(
            tenant=name,
            facts=TenantFacts(isolation_class="soft"),
            namespaces=draw(st.integers(0, 50)),
            suspended=draw(st.integers(0, 1)),
            quota=draw(_AMOUNTS),
            conditions={("Ready", draw(st.sampled_from(["True", "False"]))): 1},
            waiting={"RoleRequest": draw(st.integers(0, 3))},
        )
        for name in names
    ]


@given(_tenants(), st.integers(0, 12))
def test_no_tenant_is_lost_and_no_more_than_the_limit_are_shown(tenants: list[Figures], most: int) -> None:
    shown = bounded(tenants, most)
    named = [each for each in shown if each.tenant != OTHERS]
    assert len(named) == min(most, len(tenants))
    assert len({each.tenant for each in shown}) == len(shown)
    assert total(shown) == total(tenants)


@given(_tenants(), st.integers(0, 12))
def test_the_order_of_the_cache_does_not_decide(tenants: list[Figures], most: int) -> None:
    assert bounded(reversed(tenants), most) == bounded(tenants, most)


def test_the_largest_share_of_any_key_makes_a_tenant_large() -> None:
    most_cpu = Figures(tenant="a", quota={("hard", "requests.cpu"): 6000, ("hard", "requests.memory"): 1})
    most_memory = Figures(tenant="b", quota={("hard", "requests.cpu"): 2000, ("hard", "requests.memory"): 99})
    half_of_each = Figures(tenant="c", quota={("hard", "requests.cpu"): 4000, ("hard", "requests.memory"): 50})
    assert [each.tenant for each in bounded([most_cpu, half_of_each, most_memory], 3)] == ["b", "a", "c"]


def test_a_tenant_without_a_quota_is_the_largest() -> None:
    bounds = Figures(tenant="a", quota={("hard", "pods"): 10**9})
    free, larger = Figures(tenant="b", namespaces=1), Figures(tenant="c", namespaces=2)
    assert [each.tenant for each in bounded([bounds, free, larger], 3)] == ["c", "b", "a"]


def test_use_does_not_change_which_tenants_are_shown() -> None:
    one = Figures(tenant="a", quota={("hard", "pods"): 5000, ("used", "pods"): 0})
    other = Figures(tenant="b", quota={("hard", "pods"): 4000, ("used", "pods"): 4000})
    assert bounded([one, other], 1)[0].tenant == "a"


def _page(tenants: list[Figures], most: int, pending: Counter[str]) -> str:
    registry = CollectorRegistry()
    registry.register(TenantSeries(lambda: (tenants, pending), most))
    return generate_latest(registry).decode()


def test_quantities_are_in_base_units_and_the_rest_is_one_sum() -> None:
    tenants = [
        Figures(tenant="big", facts=TenantFacts(control_plane="Shared"), quota={("hard", "requests.cpu"): 8000}),
        Figures(tenant="one", quota={("hard", "requests.cpu"): 500}, suspended=1),
        Figures(tenant="two", quota={("hard", "requests.cpu"): 250}, suspended=1, waiting={"RoleRequest": 2}),
    ]
    page = _page(tenants, 1, Counter(RoleRequest=2)).splitlines()
    assert 'tenantry_tenant_quota{resource="requests.cpu",tenant="big",type="hard"} 8.0' in page
    assert f'tenantry_tenant_quota{{resource="requests.cpu",tenant="{OTHERS}",type="hard"}} 0.75' in page
    assert f'tenantry_tenant_suspended{{tenant="{OTHERS}"}} 2.0' in page
    assert f'tenantry_tenant_requests_pending{{kind="RoleRequest",tenant="{OTHERS}"}} 2.0' in page
    assert 'tenantry_requests_pending{kind="RoleRequest"} 2.0' in page
    assert "tenantry_tenants 3.0" in page
    assert not any('tenant="one"' in line for line in page)


def test_only_addresses_of_this_machine_show_tenants_without_a_token() -> None:
    assert is_loopback("127.0.0.1:8080")
    assert is_loopback("[::1]:8080")
    assert not is_loopback("0.0.0.0:8080")
    assert not is_loopback("[::]:8080")
    # A name may mean anything.
    assert not is_loopback("localhost:8080")


def test_a_review_names_the_user_with_all_that_decides() -> None:
    user = {"username": "system:serviceaccount:m:p", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}
    assert scrapers.whose({"status": {"authenticated": True, "user": user}}) == {
        "user": "system:serviceaccount:m:p",
        "uid": "1",
        "groups": ["g"],
        "extra": {"k": ["v"]},
    }
    assert scrapers.whose({"status": {"authenticated": False, "user": user}}) is None
    assert scrapers.whose({"status": {"user": user}}) is None
    assert scrapers.whose({"status": {"authenticated": True, "user": {}}}) is None
    assert scrapers.whose({}) is None


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in observability.dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
