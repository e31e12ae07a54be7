"""What monitoring installs beside Tenantry: ServiceMonitor, alerts and a dashboard. Pure.

    deploy/observability/servicemonitor.yaml   the Prometheus operator scrapes the operator of Tenantry
                         prometheusrule.yaml   alerts
                         dashboard.json        Grafana

The kinds are those of the Prometheus operator (monitoring.coreos.com/v1), the dashboard is Grafana's schema 39. The
alerts and the queries of the panels use only metrics of `engine.metrics` and `controllers.tenantmetrics`, and one of
the API server: apiserver_validating_admission_policy_check_total, which counts the refusals of each policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.install.rights import LABELS, OPERATOR

_API_VERSION = "monitoring.coreos.com/v1"
_OTHERS = "_others"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert.

    Args:
        name: Its name.
        query: PromQL; each series of the result is an alert.
        minutes: How long the query has a result before the alert fires.
        severity: `warning` or `critical`.
        summary: One sentence for people, with Prometheus' templates.
        action: What to do.
    """

    name: str
    query: str
    minutes: int
    severity: str
    summary: str
    action: str


ALERTS = (
    Alert(
        name="TenantryHasNoLeader",
        query='sum(leader_election_master_status{name="tenantry-operator"}) < 1'
        ' or absent(leader_election_master_status{name="tenantry-operator"})',
        minutes=5,
        severity="critical",
        summary="No replica of the Tenantry operator leads.",
        action="Admission policies stay in force, but new tenants and changes wait. Look at the pods and the log of the"
        " operator in tenantry-system.",
    ),
    Alert(
        name="TenantryWatchIsStale",
        query='max by (cluster, resource) (tenantry_watch_age_seconds{cluster=~"home|reviews"}) > 300',
        minutes=5,
        severity="warning",
        summary="The API server has sent nothing about {{ $labels.resource }} for more than five minutes.",
        action="The operator acts on old facts. Look at its log, and at the API server's watch cache.",
    ),
    Alert(
        name="TenantryReconcilesFail",
        query='sum by (controller) (rate(controller_runtime_reconcile_total{result="error"}[10m])) > 0.1',
        minutes=15,
        severity="warning",
        summary="Controller {{ $labels.controller }} fails again and again.",
        action="The log of the operator has the error and the object.",
    ),
    Alert(
        name="TenantNotReady",
        query="max by (tenant)"
        f' (tenantry_tenant_status_condition{{condition="Ready",status!="True",tenant!="{_OTHERS}"}}) > 0',
        minutes=15,
        severity="warning",
        summary="Tenant {{ $labels.tenant }} is not Ready.",
        action="`tenantry describe TENANT` shows which condition is missing, and what to do.",
    ),
    Alert(
        name="TenantQuotaAlmostUsed",
        query=f'tenantry_tenant_quota{{type="used",tenant!="{_OTHERS}"}} > ignoring(type)'
        f' (0.9 * tenantry_tenant_quota{{type="hard",tenant!="{_OTHERS}"}})',
        minutes=30,
        severity="warning",
        summary="Tenant {{ $labels.tenant }} uses more than nine tenths of its {{ $labels.resource }}.",
        action="`tenantry quota TENANT` shows which namespaces use it; `tenantry quota adjust` gives more for a time.",
    ),
    Alert(
        name="TenantryRequestsWait",
        query="time() - min by (kind) (tenantry_requests_pending_oldest_timestamp_seconds) > 24 * 60 * 60",
        minutes=5,
        severity="warning",
        summary="A {{ $labels.kind }} has waited for a decision for {{ $value | humanizeDuration }}.",
        action="`tenantry request list` lists them; approve or deny them.",
    ),
)


def service_monitor() -> Json:
    """Return the ServiceMonitor of the operator's page with TLS.

    The token is that of Prometheus' own ServiceAccount, which needs the ClusterRole `tenantry-metrics-reader`.
    """
    endpoint: Json = {
        "port": "https-metrics",
        "scheme": "https",
        "path": "/metrics",
        "interval": "30s",
        "honorLabels": True,
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        # The certificate of the page signs itself.
        "tlsConfig": {"insecureSkipVerify": True},
    }
    return {
        "apiVersion": _API_VERSION,
        "kind": "ServiceMonitor",
        "metadata": _meta(OPERATOR),
        "spec": {
            "selector": {
                "matchLabels": {"app.kubernetes.io/name": "tenantry", "app.kubernetes.io/component": "operator"}
            },
            "endpoints": [endpoint],
        },
    }


def rule_groups() -> list[Json]:
    """Return the groups of alerts, as a rule file of Prometheus has them under `groups`."""
    return [
        {
            "name": "tenantry",
            "rules": [
                {
                    "alert": each.name,
                    "expr": each.query,
                    "for": f"{each.minutes}m",
                    "labels": {"severity": each.severity},
                    "annotations": {"summary": each.summary, "description": each.action},
                }
                for each in ALERTS
            ],
        }
    ]


def prometheus_rule() -> Json:
    """Return the PrometheusRule with all alerts."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "PrometheusRule",
        "metadata": _meta("tenantry"),
        "spec": {"groups": rule_groups()},
    }


def _meta(name: str) -> Json:
    return {"name": name, "namespace": marks.SYSTEM_NAMESPACE, "labels": dict(LABELS)}


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A panel of the dashboard.

    Args:
        title: Its title.
        queries: PromQL and the legend of each series.
        unit: Grafana's name of the unit.
        width: Of 24 columns.
        kind: `timeseries`, `stat` or `table`.
    """

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    width: int = 12
    kind: str = "timeseries"


_OF = 'tenant=~"$tenant"'
_HARD = f'tenantry_tenant_quota{{type="hard",{_OF}}}'
_USED = f'tenantry_tenant_quota{{type="used",{_OF}}}'
_ASSIGNED = f'tenantry_tenant_quota{{type="assigned",{_OF}}}'
_REFUSED = 'apiserver_validating_admission_policy_check_total{policy=~"tenantry-.*",enforcement_action="deny"}'
_SLOWEST = "sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket[5m]))"

PANELS = (
    Panel(title="Tenants", queries=[("sum(tenantry_tenants)", "tenants")], width=6, kind="stat"),
    Panel(
        title="Not Ready",
        queries=[('sum(tenantry_tenant_status_condition{condition="Ready",status!="True"}) or vector(0)', "not Ready")],
        width=6,
        kind="stat",
    ),
    Panel(title="Suspended", queries=[("sum(tenantry_tenant_suspended)", "suspended")], width=6, kind="stat"),
    Panel(title="Requests that wait", queries=[("sum(tenantry_requests_pending)", "requests")], width=6, kind="stat"),
    Panel(
        title="Quota in use",
        queries=[(f"{_USED} / ignoring(type) ({_HARD} > 0)", "{{tenant}} {{resource}}")],
        unit="percentunit",
    ),
    Panel(
        title="Quota that is not given out",
        queries=[(f"{_HARD} - ignoring(type) {_ASSIGNED}", "{{tenant}} {{resource}}")],
    ),
    Panel(title="Namespaces", queries=[(f"tenantry_tenant_namespaces{{{_OF}}}", "{{tenant}}")]),
    Panel(title="Pods", queries=[(f"tenantry_tenant_pods{{{_OF}}}", "{{tenant}}")]),
    Panel(
        title="Subnamespaces, claims, control planes, clusters",
        queries=[(f"tenantry_tenant_objects{{{_OF}}}", "{{tenant}} {{kind}} Ready={{ready}}")],
    ),
    Panel(
        title="Refusals by policy",
        queries=[(f"sum by (policy) (rate({_REFUSED}[5m]))", "{{policy}}")],
        unit="reqps",
    ),
    Panel(
        title="Refused objects of controllers, in an hour",
        queries=[(f"tenantry_tenant_refusals{{{_OF}}}", "{{tenant}} {{by}} {{rule}}")],
    ),
    Panel(
        title="Tenants by isolation class",
        queries=[("sum by (isolation_class) (tenantry_tenants)", "{{isolation_class}}")],
    ),
    Panel(
        title="Reconciles",
        queries=[
            (
                "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
                "{{controller}} {{result}}",
            )
        ],
        unit="ops",
    ),
    Panel(
        title="Length of a reconcile, 99 of 100",
        queries=[(f"histogram_quantile(0.99, {_SLOWEST})", "{{controller}}")],
        unit="s",
    ),
    Panel(title="Keys that are ready", queries=[("sum by (cluster) (workqueue_depth)", "{{cluster}}")]),
    Panel(
        title="Requests to API servers",
        queries=[
            ("sum by (cluster, method, code) (rate(rest_client_requests_total[5m]))", "{{cluster}} {{method}} {{code}}")
        ],
        unit="reqps",
    ),
    Panel(
        title="Age of watches",
        queries=[("topk(5, max by (cluster, resource) (tenantry_watch_age_seconds))", "{{cluster}} {{resource}}")],
        unit="s",
    ),
    Panel(
        title="Objects in caches",
        queries=[("sum by (cluster) (tenantry_cached_objects)", "{{cluster}}")],
    ),
    Panel(
        title="Memory of the operator",
        queries=[("process_resident_memory_bytes and on(instance) leader_election_master_status", "{{instance}}")],
        unit="bytes",
    ),
    Panel(
        title="CPU of the operator",
        queries=[
            ("rate(process_cpu_seconds_total[5m]) and on(instance) leader_election_master_status", "{{instance}}")
        ],
        unit="none",
    ),
)
"""From the top left to the bottom right."""

_COLUMNS = 24
_HEIGHTS = {"stat": 4, "timeseries": 8}
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def dashboard() -> Json:
    """Return the dashboard for Grafana: one variable for the source of data, one for tenants."""
    panels: list[Json] = []
    x = y = 0
    for number, each in enumerate(PANELS, start=1):
        if x + each.width > _COLUMNS:
            x, y = 0, y + panels[-1]["gridPos"]["h"]
        height = _HEIGHTS[each.kind]
        panels.append(_panel(number, each, {"x": x, "y": y, "w": each.width, "h": height}))
        x += each.width
    return {
        "title": "Tenantry",
        "uid": "tenantry",
        "tags": ["tenantry", "kubernetes"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
                {
                    "name": "tenant",
                    "type": "query",
                    "label": "Tenant",
                    "datasource": _SOURCE,
                    "query": {"query": "label_values(tenantry_tenant_namespaces, tenant)", "refId": "tenant"},
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: Json) -> Json:
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }
