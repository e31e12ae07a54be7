"""Which tenants have series of their own, and what the series say."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tenantry.api.model import Json
from tenantry.controllers.tenantmetrics import scrapers
from tenantry.controllers.tenantmetrics.figures import OTHERS, Figures, TenantFacts, bounded, total
from tenantry.controllers.tenantmetrics.pages import is_loopback
from tenantry.controllers.tenantmetrics.series import TenantSeries
from tenantry.engine.request import ApiRequest
from tenantry.install import observability
from testkit.clock import ManualClock

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


def _page(tenants: list[Figures], most: int, pending: dict[str, list[float]]) -> str:
    registry = CollectorRegistry()
    registry.register(TenantSeries(lambda: (tenants, pending), most))
    return generate_latest(registry).decode()


def test_quantities_are_in_base_units_and_the_rest_is_one_sum() -> None:
    tenants = [
        Figures(tenant="big", facts=TenantFacts(control_plane="Shared"), quota={("hard", "requests.cpu"): 8000}),
        Figures(tenant="one", quota={("hard", "requests.cpu"): 500}, suspended=1, pods=2),
        Figures(
            tenant="two",
            quota={("hard", "requests.cpu"): 250},
            suspended=1,
            waiting={"RoleRequest": 2},
            refusals={("Rule", "images.allowed"): 3, ("Quota", ""): 1},
        ),
    ]
    page = _page(tenants, 1, {"RoleRequest": [1000.0, 2000.0], "TenantRequest": []}).splitlines()
    assert 'tenantry_tenant_quota{resource="requests.cpu",tenant="big",type="hard"} 8.0' in page
    assert f'tenantry_tenant_quota{{resource="requests.cpu",tenant="{OTHERS}",type="hard"}} 0.75' in page
    assert f'tenantry_tenant_suspended{{tenant="{OTHERS}"}} 2.0' in page
    assert f'tenantry_tenant_requests_pending{{kind="RoleRequest",tenant="{OTHERS}"}} 2.0' in page
    assert 'tenantry_requests_pending{kind="RoleRequest"} 2.0' in page
    assert 'tenantry_requests_pending{kind="TenantRequest"} 0.0' in page
    oldest = "tenantry_requests_pending_oldest_timestamp_seconds"
    assert [each for each in page if each.startswith(oldest)] == [f'{oldest}{{kind="RoleRequest"}} 1000.0']
    assert not any('tenant="one"' in line for line in page)
    # Nothing counts the pods of the others.
    assert [each for each in page if each.startswith("tenantry_tenant_pods{")] == [
        f'tenantry_tenant_pods{{tenant="{OTHERS}"}} 2.0'
    ]
    assert f'tenantry_tenant_refusals{{by="Rule",rule="images.allowed",tenant="{OTHERS}"}} 3.0' in page
    assert f'tenantry_tenant_refusals{{by="Quota",rule="",tenant="{OTHERS}"}} 1.0' in page


def test_tenants_without_series_of_their_own_count_in_their_class() -> None:
    soft, unknown = TenantFacts(isolation_class="soft"), TenantFacts()
    tenants = [Figures(tenant=name, facts=soft) for name in "abc"] + [Figures(tenant="d", facts=unknown)]
    page = _page(tenants, 1, {}).splitlines()
    assert 'tenantry_tenants{isolation_class="soft"} 3.0' in page
    assert 'tenantry_tenants{isolation_class=""} 1.0' in page


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


class _Reviews:
    """An API server that answers reviews of tokens when it is told to.

    Args:
        readers: The users that may read the page; the token of a user is its name.
    """

    def __init__(self, *readers: str) -> None:
        self._readers = readers
        self.asked = 0
        self.open = asyncio.Event()

    async def send(self, asked: ApiRequest) -> bytes:
        self.asked += 1
        await self.open.wait()
        assert isinstance(asked.body, dict)
        spec: Json = asked.body["spec"]
        if "token" in spec:
            known = spec["token"] != "wrong"
            return msgspec.json.encode({"status": {"authenticated": known, "user": {"username": spec["token"]}}})
        return msgspec.json.encode({"status": {"allowed": spec["user"] in self._readers}})


async def test_verdicts_are_remembered_for_a_minute() -> None:
    clock, reviews = ManualClock(), _Reviews("prometheus")
    reviews.open.set()
    asked = scrapers.Scrapers(reviews.send, clock)
    for _ in range(3):
        assert await asked.verdict("Bearer prometheus", "192.0.2.1") == HTTPStatus.OK
        assert await asked.verdict("Bearer pod", "192.0.2.2") == HTTPStatus.FORBIDDEN
        assert await asked.verdict("Bearer wrong", "192.0.2.2") == HTTPStatus.UNAUTHORIZED
    assert reviews.asked == 5
    clock.advance(scrapers.VALID_SECONDS + 1)
    assert await asked.verdict("Bearer prometheus", "192.0.2.1") == HTTPStatus.OK
    assert reviews.asked == 7


async def test_a_pod_that_floods_the_page_with_tokens_keeps_no_scraper_away() -> None:
    clock, reviews = ManualClock(), _Reviews("prometheus")
    reviews.open.set()
    asked = scrapers.Scrapers(reviews.send, clock)
    assert await asked.verdict("Bearer prometheus", "192.0.2.1") == HTTPStatus.OK
    for number in range(300):
        assert await asked.verdict(f"Bearer pod-{number}", "192.0.2.2") == HTTPStatus.FORBIDDEN
    before = reviews.asked
    assert await asked.verdict("Bearer prometheus", "192.0.2.1") == HTTPStatus.OK
    assert reviews.asked == before
    # The API server does not answer, and the verdict on the scraper is too old.
    clock.advance(scrapers.VALID_SECONDS + 1)
    reviews.open.clear()
    flood = [asyncio.ensure_future(asked.verdict(f"Bearer more-{number}", "192.0.2.2")) for number in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(each.done() for each in flood) == 46
    assert {each.result() for each in flood if each.done()} == {HTTPStatus.SERVICE_UNAVAILABLE}
    scraper = asyncio.ensure_future(asked.verdict("Bearer prometheus", "192.0.2.1"))
    another = asyncio.ensure_future(asked.verdict("Bearer new-prometheus", "192.0.2.3"))
    await asyncio.sleep(0)
    assert not another.done()
    reviews.open.set()
    assert await scraper == HTTPStatus.OK
    assert await another == HTTPStatus.FORBIDDEN
    await asyncio.gather(*flood)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in observability.dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
