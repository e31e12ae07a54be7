"""The keys of several clusters: what one of them does never takes the workers of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.engine.cache import Change
from tenantry.engine.cluster import HOME, Cluster, ClusterId, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.observed import Observed, observe
from tenantry.engine.runtime import FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS, ClusterLane, Runtime
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit.clock import ManualClock


def _decode(raw: object) -> Observed:
    return observe(Namespace.resource, bytes(raw))  # pyright: ignore[reportArgumentType] - never called here


def _other_decode(raw: object) -> Observed:
    return _decode(raw)


def _by_name(found: Observed) -> list[str]:
    return [found.name]


def _by_uid(found: Observed) -> list[str]:
    return [found.uid]


def _key(change: Change[Observed]) -> list[str]:
    value = change.after or change.before
    return [value.key] if value is not None else []


def _watch(resource: Resource = Namespace.resource, **fields: Any) -> Watch:  # noqa: ANN401 - any field of a Watch
    return msgspec.structs.replace(Watch(resource=resource, decode=_decode, keys=_key), **fields)


class Reconciler:
    """A controller that does nothing.

    Args:
        name: Its name.
        watches: What it listens to.
        kind: What it reconciles.
    """

    def __init__(self, name: str, *watches: Watch, kind: type = Tenant) -> None:
        self.name = name
        self.kind = kind
        self._watches = watches

    def watches(self) -> Sequence[Watch]:
        """Return what it listens to."""
        return self._watches

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


def _cluster(cluster_id: str = HOME) -> Cluster:
    client = Client(Connection(server="https://192.0.2.1", source="a test"))
    return Cluster(ClusterId(cluster_id), client, clock=ManualClock(), instance="test")


def _lane(clock: ManualClock, *, workers: int = 2) -> ClusterLane:
    cluster = _cluster()
    lane = ClusterLane(cluster, [Reconciler("one")], workers=workers, clock=clock, added=lambda: None)
    cluster.join(lane)
    lane.is_open = True
    return lane


def _take_all(lane: ClusterLane, now: float) -> list[str]:
    taken: list[str] = []
    while (item := lane.take(now)) is not None:
        taken.append(item[1])
    return taken


def test_a_lane_gives_out_no_more_keys_than_it_has_workers() -> None:
    lane = _lane(ManualClock())
    for key in "abc":
        lane.add("one", key)
    assert _take_all(lane, 0) == ["a", "b"]
    assert lane.next_wake(0) is None, "the end of a reconcile wakes the runtime"
    lane.queue.done(("one", "a"), 0)
    assert _take_all(lane, 0) == ["c"]


def test_a_lane_whose_caches_are_not_in_step_gives_out_nothing() -> None:
    lane = _lane(ManualClock())
    lane.is_open = False
    lane.add("one", "a")
    assert lane.take(0) is None
    lane.is_open = True
    assert lane.take(0) == ("one", "a")


def test_a_lane_waits_for_the_caches_of_other_clusters_that_its_controllers_read() -> None:
    clock, other = ManualClock(), _cluster("peer")
    controller = Reconciler("one", _watch(), _watch(Tenant.resource, cluster=other))
    lane = ClusterLane(_cluster(), [controller], workers=1, clock=clock, added=lambda: None)
    lane.is_open = True
    lane.add("one", "a")
    assert lane.take(0) is None
    assert lane.next_wake(0) is None
    other.is_synced = True
    assert lane.take(0) == ("one", "a")


def test_a_lane_waits_longer_each_time_its_api_server_cannot_be_reached_and_not_after_it_was() -> None:
    clock = ManualClock()
    lane = _lane(clock)
    lane.add("one", "a")
    pauses: list[float] = []
    now = 0.0
    for _ in range(8):
        lane.not_reached(now)
        assert lane.take(now) is None
        wake = lane.next_wake(now)
        assert wake is not None
        pauses.append(wake - now)
        now = wake
    assert pauses[0] == pytest.approx(FIRST_PAUSE_SECONDS)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LAST_PAUSE_SECONDS)
    assert lane.take(now) == ("one", "a")
    lane.reached()
    lane.not_reached(now)
    assert (lane.next_wake(now) or 0) - now == pytest.approx(FIRST_PAUSE_SECONDS)


def test_reconciles_that_fail_at_once_count_as_one_failure() -> None:
    lane = _lane(ManualClock())
    for _ in range(100):
        lane.not_reached(1.0)
    assert (lane.next_wake(1.0) or 0) - 1.0 == pytest.approx(FIRST_PAUSE_SECONDS)


def test_wake_reaches_the_controllers_of_a_kind_and_no_others() -> None:
    cluster = _cluster()
    first, second, other = Reconciler("one"), Reconciler("two"), Reconciler("three", kind=ResourceQuota)
    lane = ClusterLane(cluster, [first, second, other], workers=9, clock=ManualClock(), added=lambda: None)
    cluster.join(lane)
    lane.is_open = True
    cluster.wake(Tenant, "acme")
    assert [lane.take(0), lane.take(0), lane.take(0)] == [("one", "acme"), ("two", "acme"), None]


def test_wake_by_class_reaches_one_controller_and_a_kind_that_none_reconciles_is_an_error() -> None:
    lane = _lane(ManualClock())
    lane.wake(Reconciler, "a")
    assert _take_all(lane, 0) == ["a"]
    with pytest.raises(ValueError, match="no controller of cluster 'home' reconciles ResourceQuota"):
        lane.wake(ResourceQuota, "a")


def test_a_cluster_outside_a_runtime_says_so() -> None:
    with pytest.raises(RuntimeError, match="'peer' is in no runtime"):
        _cluster("peer").wake(Tenant, "acme")


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ({}, {"decode": _other_decode}, "decodings"),
        ({}, {"selectors": {"labelSelector": "a=b"}}, "selections"),
        ({}, {"optional": True}, "optionality"),
        ({"indexes": {"by": _by_name}}, {"indexes": {"by": _by_uid}}, "indexes"),
    ],
)
def test_two_controllers_that_want_one_kind_in_different_forms_fail_with_both_named(
    one: dict[str, Any], other: dict[str, Any], difference: str
) -> None:
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    controllers = [Reconciler("first", _watch(**one)), Reconciler("second", _watch(**other))]
    with pytest.raises(ValueError, match=rf"'first' and 'second' want different {difference} of namespaces"):
        runtime.add(_cluster(), controllers)


def test_indexes_of_several_controllers_add_up() -> None:
    cluster = _cluster()
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    watches = (_watch(indexes={"name": _by_name}), _watch(indexes={"uid": _by_uid, "name": _by_name}))
    runtime.add(cluster, [Reconciler(f"c{number}", watch) for number, watch in enumerate(watches)])
    cache = cluster.cache(Namespace.resource)
    cache.put(observe(Namespace.resource, b'{"metadata":{"name":"acme","uid":"u1","resourceVersion":"5"}}'))
    assert [each.key for each in cache.by_index("name", "acme")] == ["acme"]
    assert [each.key for each in cache.by_index("uid", "u1")] == ["acme"]


def test_a_controller_that_comes_late_hears_of_what_is_there() -> None:
    home, peer = _cluster(), _cluster("peer")
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    runtime.add(home, [Reconciler("first", _watch())])
    cache = home.cache(Namespace.resource)
    cache.put(observe(Namespace.resource, b'{"metadata":{"name":"acme","uid":"u1","resourceVersion":"5"}}'))
    heard: list[str] = []

    def keys(change: Change[Observed]) -> list[str]:
        heard.extend(_key(change))
        return []

    runtime.add(peer, [Reconciler("second", _watch(cluster=home, keys=keys, indexes={"uid": _by_uid}))])
    assert heard == ["acme"]
    assert [each.key for each in cache.by_index("uid", "u1")] == ["acme"]


async def test_a_cluster_that_is_removed_listens_no_longer() -> None:
    home, peer = _cluster(), _cluster("peer")
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    runtime.add(home, [Reconciler("first", _watch())])
    runtime.add(peer, [Reconciler("second", _watch(ResourceQuota.resource, cluster=home))])
    assert home.cache_of(ResourceQuota.resource) is not None
    await runtime.remove(ClusterId("peer"))
    assert home.cache_of(ResourceQuota.resource) is None, "no other controller needs it"
    assert home.cache_of(Namespace.resource) is not None
    runtime.add(_cluster("peer"), [Reconciler("second", _watch())])


def test_a_cluster_that_cannot_be_added_leaves_no_listeners() -> None:
    """They would keep watches of the other cluster, and queue keys that are never reconciled."""
    runtime, home = Runtime(clock=ManualClock(), metrics=Metrics()), _cluster()
    runtime.add(home, [Reconciler("first", _watch())])
    wanted = [_watch(ResourceQuota.resource, cluster=home), _watch(cluster=home, decode=_other_decode)]
    with pytest.raises(ValueError, match="different decodings"):
        runtime.add(_cluster("peer"), [Reconciler("second", *wanted)])
    assert home.cache_of(ResourceQuota.resource) is None
    assert home.cache_of(Namespace.resource) is not None
    runtime.add(_cluster("peer"), [Reconciler("second", wanted[0])])


def test_a_cluster_is_added_once() -> None:
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    runtime.add(_cluster(), [])
    with pytest.raises(ValueError, match="'home' is in the runtime already"):
        runtime.add(_cluster(), [])
