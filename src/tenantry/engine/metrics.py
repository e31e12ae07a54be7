"""The metrics of the operator for Prometheus, under the names that controller-runtime users know.

The label `cluster` is the group of a cluster: an operator may serve a thousand control planes and peers, and only
administrators may read their names.
"""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from tenantry.api.model import Resource

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


def group_of(cluster: str) -> str:
    """Return the group of a cluster: the part of its id before the first slash, as `vcp` of `vcp/acme/prod`."""
    return cluster.partition("/")[0]


class ClusterCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of one cluster's caches and queue at one time.

    Args:
        cluster: Its id.
        cached: Number of objects of each kind.
        ages: For how many seconds the API server has sent nothing for a kind.
        ready: Number of keys that are ready.
        working: Number of keys that are being reconciled.
    """

    cluster: str
    cached: Mapping[Resource, int]
    ages: Mapping[Resource, float]
    ready: int
    working: int


class Metrics:
    """The counters of one operator."""

    def __init__(self) -> None:
        # A _created series beside each counter doubles the page and has nothing that we need.
        disable_created_metrics()
        registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=registry)
        self._registry = registry
        # Looking up labels costs more than counting: each pair is looked up once.
        self._by_request: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._by_reconcile: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self.reconciles = Counter(
            "controller_runtime_reconcile",
            "Reconciliations by controller and result (success, error, requeue_after).",
            ["cluster", "controller", "result"],
            registry=registry,
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of one reconciliation.",
            ["cluster", "controller"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers",
            "Reconciliations under way.",
            ["cluster", "controller"],
            registry=registry,
        )
        self.queue_depth = Gauge("workqueue_depth", "Keys that are ready.", ["cluster", "name"], registry=registry)
        self.queue_adds = Counter("workqueue_adds", "Keys added.", ["cluster", "name"], registry=registry)
        self.queue_retries = Counter(
            "workqueue_retries", "Keys that failed and wait.", ["cluster", "name"], registry=registry
        )
        self.requests = Counter(
            "rest_client_requests", "Requests to the API server.", ["cluster", "method", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server's response begins.",
            ["cluster", "verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.leader = Gauge("leader_election_master_status", "1 on the replica that acts.", ["name"], registry=registry)
        self.cached = Gauge(
            "tenantry_cached_objects", "Objects in the cache.", ["cluster", "resource"], registry=registry
        )
        self.watch_age = Gauge(
            "tenantry_watch_age_seconds",
            "Time since the API server has sent something for a cache: an object, or the bookmark of each minute.",
            ["cluster", "resource"],
            registry=registry,
        )
        self.reviews = Counter(
            "controller_runtime_webhook_requests",
            "Reviews that the webhook has answered, by HTTP status.",
            ["webhook", "code"],
            registry=registry,
        )

    def show(self, counts: Iterable[ClusterCounts]) -> None:
        """Set the gauges to the sums of each group of clusters, and the age of a watch to the largest."""
        cached: Sums[tuple[str, str]] = Sums()
        ready: Sums[str] = Sums()
        working: Sums[str] = Sums()
        ages: dict[tuple[str, str], float] = {}
        for each in counts:
            group = group_of(each.cluster)
            ready[group] += each.ready
            working[group] += each.working
            for resource, number in each.cached.items():
                cached[group, resource.full_name] += number
            for resource, seconds in each.ages.items():
                key = group, resource.full_name
                ages[key] = max(seconds, ages.get(key, 0.0))
        # Also without the series of groups that have no cluster any more.
        for gauge in (self.cached, self.watch_age, self.queue_depth, self.active_workers):
            gauge.clear()
        for key, number in cached.items():
            self.cached.labels(*key).set(number)
        for key, seconds in ages.items():
            self.watch_age.labels(*key).set(seconds)
        for group in ready:
            self.queue_depth.labels(group, "tenantry").set(ready[group])
            self.active_workers.labels(group, "tenantry").set(working[group])

    def queue_added(self, cluster: str) -> Counter:
        """Return the counter of keys that are added to the queue of a cluster."""
        return self.queue_adds.labels(group_of(cluster), "tenantry")

    def queue_retried(self, cluster: str) -> None:
        """Count a key that has failed and waits."""
        self.queue_retries.labels(group_of(cluster), "tenantry").inc()

    def observe_request(self, cluster: str, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 is one without a response."""
        cluster = group_of(cluster)
        known = self._by_request.get((cluster, method, status))
        if known is None:
            counter = self.requests.labels(cluster, method, str(status) if status else "<error>")
            seconds_of = self.request_seconds.labels(cluster, method)
            known = self._by_request[cluster, method, status] = (counter, seconds_of)
        known[0].inc()
        known[1].observe(seconds)

    def observe_reconcile(self, cluster: str, controller: str, result: str, seconds: float) -> None:
        """Count one reconciliation."""
        cluster = group_of(cluster)
        known = self._by_reconcile.get((cluster, controller, result))
        if known is None:
            counter = self.reconciles.labels(cluster, controller, result)
            seconds_of = self.reconcile_seconds.labels(cluster, controller)
            known = self._by_reconcile[cluster, controller, result] = (counter, seconds_of)
        known[0].inc()
        known[1].observe(seconds)

    def text(self, *further: Collector) -> bytes:
        """Return everything in Prometheus' text format.

        Args:
            further: What this page says besides.
        """
        page = generate_latest(self._registry)
        for each in further:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(each)
            page += generate_latest(registry)
        return page
