"""The metrics of the operator for Prometheus, under the names that controller-runtime users know."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


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
        self._by_cluster = (
            self.reconciles,
            self.reconcile_seconds,
            self.active_workers,
            self.queue_depth,
            self.queue_adds,
            self.queue_retries,
            self.requests,
            self.request_seconds,
            self.cached,
            self.watch_age,
        )

    def observe_request(self, cluster: str, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 is one without a response."""
        known = self._by_request.get((cluster, method, status))
        if known is None:
            counter = self.requests.labels(cluster, method, str(status) if status else "<error>")
            seconds_of = self.request_seconds.labels(cluster, method)
            known = self._by_request[cluster, method, status] = (counter, seconds_of)
        known[0].inc()
        known[1].observe(seconds)

    def observe_reconcile(self, cluster: str, controller: str, result: str, seconds: float) -> None:
        """Count one reconciliation."""
        known = self._by_reconcile.get((cluster, controller, result))
        if known is None:
            counter = self.reconciles.labels(cluster, controller, result)
            seconds_of = self.reconcile_seconds.labels(cluster, controller)
            known = self._by_reconcile[cluster, controller, result] = (counter, seconds_of)
        known[0].inc()
        known[1].observe(seconds)

    def forget_cluster(self, cluster: str) -> None:
        """Drop the series of a cluster that is gone."""
        self._by_request = {key: known for key, known in self._by_request.items() if key[0] != cluster}
        self._by_reconcile = {key: known for key, known in self._by_reconcile.items() if key[0] != cluster}
        for metric in self._by_cluster:
            metric.remove_by_labels({"cluster": cluster})

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
