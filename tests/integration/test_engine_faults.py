"""The engine behind a proxy that fails on purpose, in front of a real API server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import NotFound, TooManyRequests, Unreachable
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.tenant import Tenant
from tenantry.engine import lease as leases
from tenantry.engine.cache import Change
from tenantry.engine.clock import SystemClock
from tenantry.engine.conditions import is_true
from tenantry.engine.informer import Informer
from tenantry.engine.lease import Election
from tenantry.engine.observed import Observed, observe
from tenantry.kube import client as kube_client
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, Api, stays, tenant_json, until
from testkit.faults import Fault, FaultyProxy, Rule, operating
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
OLD = msgspec.json.encode({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


@pytest_asyncio.fixture
async def proxy(tenancy: LocalCluster) -> AsyncIterator[FaultyProxy]:
    """A proxy that lets an administrator's requests through until it is told otherwise."""
    async with FaultyProxy(tenancy.kubeconfig_path).running() as proxy:
        yield proxy


@pytest_asyncio.fixture
async def client(proxy: FaultyProxy, tmp_path: Path) -> AsyncIterator[Client]:
    """A client behind the proxy."""
    async with Client(kubeconfig.load([proxy.kubeconfig(tmp_path / "config")])) as client:
        yield client


# -- watching -------------------------------------------------------------------------------------


class Followed:
    """An informer of the ConfigMaps of one test, and what it told."""

    def __init__(self, api: Api, proxy: FaultyProxy, name: str) -> None:
        self.changes: list[Change[Observed]] = []
        self._api = api
        self._proxy = proxy
        self._name = name
        self.informer: Informer[Observed] = Informer(
            CONFIG_MAPS,
            lambda raw: observe(CONFIG_MAPS, raw),
            self.changes.append,
            selectors={"labelSelector": f"test={name}"},
        )

    async def make(self, suffix: str) -> None:
        """Make a ConfigMap, past the proxy."""
        metadata = {"name": f"{self._name}-{suffix}", "labels": {"test": self._name}}
        await self._api.create(CONFIG_MAPS, {"metadata": metadata}, "default")

    async def end(self, suffix: str) -> None:
        """Delete a ConfigMap, past the proxy."""
        await self._api.delete(CONFIG_MAPS, f"{self._name}-{suffix}", "default")

    async def knows(self, *suffixes: str) -> None:
        """Wait until the cache has exactly these."""
        wanted = {f"default/{self._name}-{suffix}" for suffix in suffixes}

        async def so() -> bool:
            return {found.key for found in self.informer.cache} == wanted

        await until(so, f"the cache has {sorted(suffixes)}")

    def lists(self) -> int:
        """Return how often it listed."""
        return sum("watch=true" not in path for method, path in self._proxy.requests if method == "GET")

    async def watched(self) -> None:
        """Wait until a watch is open."""

        async def so() -> bool:
            return self._proxy.watches() == 1

        await until(so, "a watch is open")


@asynccontextmanager
async def _following(api: Api, proxy: FaultyProxy, client: Client, name: str) -> AsyncGenerator[Followed]:
    followed = Followed(api, proxy, name)
    for suffix in ("a", "b"):
        await followed.make(suffix)
    task = asyncio.create_task(followed.informer.run(client))
    try:
        await followed.informer.synced.wait()
        await followed.watched()
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_is_cut_goes_on_where_it_was(
    api: Api, proxy: FaultyProxy, client: Client, name: str
) -> None:
    """E01: what happened meanwhile is told once, without a list."""
    async with _following(api, proxy, client, name) as followed:
        for suffix in ("c", "d", "e"):
            assert proxy.cut_watches() == 1
            await followed.make(suffix)
            await followed.watched()
        await followed.end("a")
        await followed.knows("b", "c", "d", "e")
        assert followed.lists() == 1
        told = [change.after.name for change in followed.changes if change.after and change.before is None]
        assert sorted(told) == [f"{name}-{suffix}" for suffix in "abcde"]


async def test_a_watch_that_is_told_that_it_is_too_old_lists_again(
    api: Api, proxy: FaultyProxy, client: Client, name: str
) -> None:
    """E01: 410 in the stream; what went meanwhile goes from the cache too."""
    async with _following(api, proxy, client, name) as followed:
        proxy.fail(Rule(fault=Fault.DELAY, path=r"watch=true", seconds=0.2))
        assert await proxy.expire_watches() == 1
        await followed.end("a")
        await followed.make("c")
        await followed.knows("b", "c")
        assert followed.lists() >= 2
        gone = [change.before.name for change in followed.changes if change.before and change.after is None]
        assert gone == [f"{name}-a"]


async def test_a_watch_that_is_refused_as_too_old_lists_again(
    api: Api, proxy: FaultyProxy, client: Client, name: str
) -> None:
    """E01: 410 instead of a stream."""
    async with _following(api, proxy, client, name) as followed:
        before = followed.lists()
        refusal = proxy.fail(Rule(fault=Fault.REFUSE, path=r"watch=true", status=410, body=OLD))
        proxy.cut_watches()
        await followed.end("b")
        await followed.knows("a")
        await followed.watched()
        await followed.make("c")
        await followed.knows("a", "c")
        assert refusal.hits == 1
        assert followed.lists() > before


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_lists_and_watches_that_are_refused_are_tried_again(
    api: Api, proxy: FaultyProxy, client: Client, name: str, status: int
) -> None:
    """E01: with Retry-After or without it."""
    proxy.fail(Rule(fault=Fault.REFUSE, path=r"limit=", status=status))
    async with _following(api, proxy, client, name) as followed:
        proxy.fail(Rule(fault=Fault.REFUSE, path=r"watch=true", status=status, times=2))
        proxy.fail(Rule(fault=Fault.LOSE_ANSWER, path=r"limit="))
        proxy.cut_watches()
        await followed.make("c")
        await followed.knows("a", "b", "c")


async def test_a_list_whose_snapshot_is_gone_between_two_pages_begins_again(
    api: Api, proxy: FaultyProxy, client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E01: 410 for a page."""
    monkeypatch.setattr(kube_client, "PAGE_SIZE", 1)
    rule = proxy.fail(Rule(fault=Fault.REFUSE, path=r"continue=", status=410, body=OLD))
    async with _following(api, proxy, client, name) as followed:
        await followed.knows("a", "b")
        assert rule.hits == 1


async def test_garbage_in_a_watch_ends_that_watch_only(api: Api, proxy: FaultyProxy, client: Client, name: str) -> None:
    """E01: an answer of something that is no API server is an error like any other."""
    async with _following(api, proxy, client, name) as followed:
        proxy.fail(Rule(fault=Fault.REFUSE, path=r"watch=true", status=200, body=b"<html>sorry</html>\n"))
        proxy.cut_watches()
        await followed.make("c")
        await followed.knows("a", "b", "c")


# -- requests -------------------------------------------------------------------------------------


async def test_a_request_that_was_told_to_wait_waits_and_is_sent_again(proxy: FaultyProxy, client: Client) -> None:
    rule = proxy.fail(Rule(fault=Fault.REFUSE, status=429, headers={"Retry-After": "1"}))
    began = time.monotonic()
    assert (await client.get(Namespace, "default")).metadata.name == "default"
    assert rule.hits == 1
    assert time.monotonic() - began >= 1.0


async def test_a_request_that_is_refused_without_a_time_is_the_callers_to_repeat(
    proxy: FaultyProxy, client: Client
) -> None:
    proxy.fail(Rule(fault=Fault.REFUSE, status=429))
    with pytest.raises(TooManyRequests):
        await client.get(Namespace, "default")


async def test_a_connection_that_breaks_is_unreachable_and_the_next_request_uses_another(
    proxy: FaultyProxy, client: Client, name: str
) -> None:
    value = Namespace(metadata=ObjectMeta(name=name))
    proxy.fail(Rule(fault=Fault.LOSE_ANSWER, method="POST"))
    with pytest.raises(Unreachable, match="cannot be reached"):
        await client.create(value)
    assert (await client.get(Namespace, name)).metadata.name == name, "it was carried out all the same"
    await client.delete(Namespace.resource, "", name)


async def test_a_watch_of_a_kind_that_is_not_there_says_so(client: Client) -> None:
    nothing = Resource("example.com", "v1", "nothings", "Nothing")
    with pytest.raises(NotFound):
        async for _ in watch(client, nothing, resource_version="1"):
            pass


async def test_a_watch_that_falls_silent_ends_and_can_begin_again(
    client: Client, api: Api, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of which the server has seen no change sends no bookmarks either: that is no failure to tell of."""
    monkeypatch.setattr("tenantry.kube.watch.SILENCE_SECONDS", 1.0)
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    selectors = {"fieldSelector": f"metadata.name={name}"}
    version = (await api.get(Namespace.resource, name))["metadata"]["resourceVersion"]

    async def heard() -> tuple[list[EventType]] | None:
        seen = watch(client, Namespace.resource, resource_version=version, selectors=selectors)
        try:
            return ([event.type async for events in seen for event in events],)
        except Unreachable:
            # So long the server took to begin with its answer, which is another matter.
            return None

    (seen,) = await until(heard, "a watch ends in silence")
    assert all(each is EventType.BOOKMARK for each in seen)
    monkeypatch.undo()
    await api.patch(Namespace.resource, name, {"metadata": {"labels": {"a": "b"}}})
    async for events in watch(client, Namespace.resource, resource_version=version, selectors=selectors):
        assert events[0].type is EventType.MODIFIED
        break
    else:
        pytest.fail("the watch ended before it told anything")


async def test_an_answer_that_is_no_json_is_an_error_with_its_kind(proxy: FaultyProxy, client: Client) -> None:
    proxy.fail(Rule(fault=Fault.REFUSE, status=200, body=b"<html>"))
    with pytest.raises(Exception, match="the API server's Namespace does not decode"):
        await client.get(Namespace, "default")


# -- the operator ---------------------------------------------------------------------------------

KINDS = (Namespace, ResourceQuota, LimitRange, NetworkPolicy, RoleBinding)
QUOTA = {"hard": {"cpu": 1, "pods": 2}}


async def _assert_is_whole(api: Api, name: str) -> None:
    names = {
        "resourcequotas": ["tenantry-counts", "tenantry-quota"],
        "limitranges": ["tenantry-limits"],
        "networkpolicies": ["tenantry-isolation"],
        "rolebindings": ["tenantry-owner"],
    }
    for kind in KINDS[1:]:
        found = await api.list(kind.resource, name)
        assert sorted(each["metadata"]["name"] for each in found) == names[kind.resource.plural]


async def test_whatever_write_is_lost_with_or_without_effect_the_tenant_comes_out_right(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E01, B03: each write in turn; a tenant that was ready never stops being so for it."""
    writes = [("POST", rf"/{kind.resource.plural}\?") for kind in KINDS] + [("PUT", "/status")]
    writes.append(("PATCH", "/tenantry-counts/status"))
    async with operating(tenancy, operator, tmp_path) as (proxy, _):
        faults = [(fault, *write) for write in writes for fault in (Fault.LOSE_REQUEST, Fault.LOSE_ANSWER)]
        rules = [proxy.fail(Rule(fault=fault, method=method, path=path)) for fault, method, path in faults]
        names = [f"{name}-{number}" for number in range(len(rules))]
        await asyncio.gather(*(api.create(Tenant.resource, tenant_json(each, quota=QUOTA)) for each in names))
        await asyncio.gather(*(api.ready(each) for each in names))
        assert [rule.hits for rule in rules] == [1] * len(rules)
        for each in names:
            await _assert_is_whole(api, each)


@pytest.mark.long
async def test_single_failures_of_corrections_are_not_told(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E01: conditions do not flap."""
    async with operating(tenancy, operator, tmp_path) as (proxy, _):
        first = await api.make_tenant(name, quota=QUOTA)
        rule = proxy.fail(Rule(fault=Fault.REFUSE, method="POST", path=f"/{name}/networkpolicies", times=2))
        await api.delete(NetworkPolicy.resource, "tenantry-isolation", name)
        await until(lambda: api.find(NetworkPolicy.resource, "tenantry-isolation", name), "it is back")
        assert rule.hits == 2
        last = await api.tenant(name)
        assert last.status == first.status
        rule = proxy.fail(Rule(fault=Fault.REFUSE, method="POST", path=f"/{name}/networkpolicies", times=1000))
        await api.delete(NetworkPolicy.resource, "tenantry-isolation", name)
        await api.condition(name, reasons.READY, holds=False, reason=reasons.API_ERROR)
        assert rule.hits > 2
        # Only now, or the failures could end before the operator has looked.
        rule.times = 0
        await api.ready(name)


async def test_the_operator_goes_on_through_every_kind_of_failure(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E01, E02: seeded by pytest-randomly; in the end every tenant is whole or gone, and the operator lives."""
    chance = random.Random(random.getrandbits(32))
    names = [f"{name}-{number}" for number in range(12)]
    async with operating(tenancy, operator, tmp_path) as (proxy, behind):
        for each in names:
            await api.create(Tenant.resource, tenant_json(each, quota=QUOTA, suspended=chance.random() < 0.3))
            fault = chance.choice([Fault.REFUSE, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.DELAY])
            status = chance.choice([409, 410, 429, 500, 503])
            proxy.fail(Rule(fault=fault, path="", times=chance.randint(1, 6), status=status, seconds=0.3))
            if chance.random() < 0.3:
                await (proxy.expire_watches() if chance.random() < 0.5 else _cut(proxy))
            await asyncio.sleep(chance.random() * 0.15)
        for each in names[::2]:
            await api.patch(Tenant.resource, each, {"spec": {"suspended": False}})
        for each in names[::3]:
            await api.delete(Tenant.resource, each)
        kept = [each for each in names if each not in names[::3]]
        for each in kept:
            tenant = await api.ready(each)
            assert is_true(tenant.status.conditions, reasons.SUSPENDED) is tenant.spec.suspended
            await _assert_is_whole(api, each)
        for each in names[::3]:
            await api.gone(Namespace.resource, each)
        assert behind.is_running, behind.log.read_text()[-3000:]
        assert "Traceback" not in behind.log.read_text()


async def _cut(proxy: FaultyProxy) -> int:
    return proxy.cut_watches()


# -- the lease ------------------------------------------------------------------------------------


async def test_a_holder_that_cannot_renew_stops_before_another_may_begin(
    api: Api, proxy: FaultyProxy, client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E01: refusals first, then no answer at all: both together count from the last renewal."""
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.6)
    monkeypatch.setattr(leases, "DEADLINE_SECONDS", 3.0)
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    election = Election(client, SystemClock(), namespace=name, identity="one")
    await election.acquire()
    proxy.fail(Rule(fault=Fault.REFUSE, path="/leases/", times=4))
    proxy.fail(Rule(fault=Fault.DELAY, path="/leases/", times=100, seconds=30.0))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.1)
            ticks += 1

    # The time in which this process stands still is not the election's.
    ticking = asyncio.create_task(tick())
    await election.hold()
    ticking.cancel()
    # Counted apart it would be 4 * 0.6 s more.
    assert ticks < 42


async def test_a_holder_keeps_the_lease_until_it_has_ended_what_is_under_way(
    api: Api, client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E01: another one is preferred, and begins once the lease is let go of, not before."""
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.1)
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    one, two = (Election(client, SystemClock(), namespace=name, identity=each) for each in ("one", "two"))
    await one.acquire()
    await two.request()
    await one.hold()
    waiting = asyncio.create_task(two.acquire())

    async def is_held() -> bool:
        return not waiting.done() and one.holder == one.identity == await holder(api, name)

    await stays(is_held, "the first one has the lease")
    await one.release()
    await waiting
    assert await holder(api, name) == two.identity


async def holder(api: Api, namespace: str) -> str | None:
    """Return who has the lease."""
    return (await api.get(leases.Lease.resource, leases.NAME, namespace))["spec"].get("holderIdentity")
