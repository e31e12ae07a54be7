"""The series of tenants for Prometheus.

Names and labels are those that users of kube-state-metrics know: `type` of a quota as in kube_resourcequota, quantities
in base units (cores, bytes). Source: Prometheus, "Metric and label naming"; kube-state-metrics, resourcequota metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import asdict
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tenantry.controllers.tenantmetrics.figures import OTHERS, Figures, bounded

_SUMMED = f"; {OTHERS} is the sum of all but the largest"


def of_tenants(figures: Sequence[Figures]) -> list[GaugeMetricFamily]:
    """Return the metrics of each of the largest tenants.

    Args:
        figures: Those that `bounded` returns.
    """
    info = GaugeMetricFamily(
        "tenantry_tenant_info",
        "1 for each of the largest tenants, with its isolation.",
        labels=["tenant", "isolation_class", "control_plane", "network", "nodes"],
    )
    namespaces = GaugeMetricFamily("tenantry_tenant_namespaces", f"Namespaces of a tenant{_SUMMED}.", labels=["tenant"])
    pods = GaugeMetricFamily(
        "tenantry_tenant_pods", f"Pods of a tenant, finished ones included{_SUMMED}.", labels=["tenant"]
    )
    suspended = GaugeMetricFamily("tenantry_tenant_suspended", f"1 if suspended{_SUMMED}.", labels=["tenant"])
    quota = GaugeMetricFamily(
        "tenantry_tenant_quota",
        "Quota of a tenant in cores, bytes or objects. hard: what it may use; assigned: what its subnamespaces, claims"
        f" and control planes have of that; used: what it uses; free: hard without used{_SUMMED}.",
        labels=["tenant", "resource", "type"],
    )
    conditions = GaugeMetricFamily(
        "tenantry_tenant_status_condition",
        f"1 for the status of a condition{_SUMMED}.",
        labels=["tenant", "condition", "status"],
    )
    objects = GaugeMetricFamily(
        "tenantry_tenant_objects",
        f"Objects in the namespaces of a tenant by the status of Ready{_SUMMED}.",
        labels=["tenant", "kind", "ready"],
    )
    waiting = GaugeMetricFamily(
        "tenantry_tenant_requests_pending", f"Undecided requests{_SUMMED}.", labels=["tenant", "kind"]
    )
    refusals = GaugeMetricFamily(
        "tenantry_tenant_refusals",
        "How often controllers could not create an object, as the Events report that the cluster still has (an hour by"
        f" default){_SUMMED}.",
        labels=["tenant", "by", "rule"],
    )
    for each in figures:
        name = each.tenant
        if each.facts is not None:
            info.add_metric([name, *asdict(each.facts).values()], 1)
        namespaces.add_metric([name], each.namespaces)
        if each.pods is not None:
            pods.add_metric([name], each.pods)
        suspended.add_metric([name], each.suspended)
        for (type_, key), value in sorted(each.quota.items()):
            quota.add_metric([name, key, type_], value / 1000)
        for (condition, status), value in sorted(each.conditions.items()):
            conditions.add_metric([name, condition, status], value)
        for (kind, ready), value in sorted(each.objects.items()):
            objects.add_metric([name, kind, ready], value)
        for kind, value in sorted(each.waiting.items()):
            waiting.add_metric([name, kind], value)
        for (by, rule), value in sorted(each.refusals.items()):
            refusals.add_metric([name, by, rule], value)
    return [info, namespaces, pods, suspended, quota, conditions, objects, waiting, refusals]


def of_cluster(pending: Mapping[str, Sequence[float]], classes: Mapping[str, int]) -> list[GaugeMetricFamily]:
    """Return the metrics of all tenants together.

    Args:
        pending: When the undecided requests of the cluster were created, by kind; the oldest first.
        classes: Number of tenants by isolation class.
    """
    tenants = GaugeMetricFamily("tenantry_tenants", "Tenants by isolation class.", labels=["isolation_class"])
    for each, number in sorted(classes.items()):
        tenants.add_metric([each], number)
    requests = GaugeMetricFamily("tenantry_requests_pending", "Undecided requests of the cluster.", labels=["kind"])
    oldest = GaugeMetricFamily(
        "tenantry_requests_pending_oldest_timestamp_seconds",
        "When the oldest undecided request of the cluster was created, in seconds since 1970.",
        labels=["kind"],
    )
    for kind, created in sorted(pending.items()):
        requests.add_metric([kind], len(created))
        if created:
            oldest.add_metric([kind], created[0])
    return [tenants, requests, oldest]


class TenantSeries(Collector):
    """Collects the series of tenants at each scrape.

    Args:
        read: Returns the figures of each tenant, and when the undecided requests of the cluster were created, by kind.
        most: How many tenants get series of their own.
    """

    def __init__(self, read: Callable[[], tuple[Sequence[Figures], Mapping[str, Sequence[float]]]], most: int) -> None:
        self._read = read
        self._most = most

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics as they are now."""
        figures, pending = self._read()
        classes = Counter(each.facts.isolation_class for each in figures if each.facts is not None)
        return [*of_cluster(pending, classes), *of_tenants(bounded(figures, self._most))]

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values: the registry asks at registration, before there are caches."""
        return [*of_cluster({}, {}), *of_tenants(())]
