"""The metrics of an operator that serves many clusters: sums of groups, without the names of tenants."""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace
from tenantry.api.tenant import Tenant
from tenantry.engine.metrics import ClusterCounts, Metrics


def _counts(cluster: str, cached: int, age: float, ready: int, working: int) -> ClusterCounts:
    return ClusterCounts(
        cluster=cluster,
        cached={Namespace.resource: cached},
        ages={Namespace.resource: age},
        ready=ready,
        working=working,
    )


def _of(metrics: Metrics) -> list[str]:
    return [each for each in metrics.text().decode().splitlines() if "cluster=" in each]


def test_control_planes_and_peers_are_shown_as_sums_of_their_groups() -> None:
    metrics = Metrics()
    metrics.show(
        [
            _counts("home", 10, 1.0, 1, 0),
            _counts("vcp/acme/prod", 2, 7.0, 2, 1),
            _counts("vcp/umbra/web", 3, 5.0, 3, 1),
            _counts("peer/paris", 4, 2.0, 0, 0),
        ]
    )
    lines = _of(metrics)
    assert 'tenantry_cached_objects{cluster="home",resource="namespaces"} 10.0' in lines
    assert 'tenantry_cached_objects{cluster="vcp",resource="namespaces"} 5.0' in lines
    assert 'tenantry_watch_age_seconds{cluster="vcp",resource="namespaces"} 7.0' in lines
    assert 'workqueue_depth{cluster="vcp",name="tenantry"} 5.0' in lines
    assert 'controller_runtime_active_workers{cluster="vcp",controller="tenantry"} 2.0' in lines
    assert 'tenantry_cached_objects{cluster="peer",resource="namespaces"} 4.0' in lines


def test_no_series_names_a_tenant_or_a_peer() -> None:
    """The page of the operator is open to every pod that reaches its port."""
    metrics = Metrics()
    for number in range(500):
        cluster = f"vcp/acme-{number}/prod"
        metrics.show([_counts(cluster, 1, 1.0, 1, 1)])
        metrics.observe_request(cluster, "GET", 200, 0.1)
        metrics.observe_reconcile(cluster, "pods", "success", 0.1)
        metrics.queue_added(cluster).inc()
        metrics.queue_retried(cluster)
    lines = _of(metrics)
    assert lines
    assert not [each for each in lines if "acme" in each]
    assert len(lines) < 100
    assert 'rest_client_requests_total{cluster="vcp",code="200",method="GET"} 500.0' in lines


def test_a_group_without_clusters_leaves_no_gauges() -> None:
    metrics = Metrics()
    metrics.show([_counts("home", 1, 1.0, 0, 0), _counts("vcp/a/b", 1, 1.0, 0, 0)])
    metrics.show([_counts("home", 1, 1.0, 0, 0)])
    assert not [each for each in _of(metrics) if 'cluster="vcp"' in each]


def test_kinds_of_one_group_are_apart() -> None:
    metrics = Metrics()
    tenants = ClusterCounts(cluster="home", cached={Tenant.resource: 7}, ages={}, ready=0, working=0)
    metrics.show([tenants, _counts("home", 1, 1.0, 0, 0)])
    assert {each for each in _of(metrics) if "cached" in each} == {
        f'tenantry_cached_objects{{cluster="home",resource="{Tenant.resource.full_name}"}} 7.0',
        'tenantry_cached_objects{cluster="home",resource="namespaces"} 1.0',
    }
