"""The page of a DedicatedCluster. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.cli import durations, output
from tenantry.cli.describe.sections import conditions, events, head, rows, section
from tenantry.controllers.dedicatedcluster import template

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.objects import ReportedEvent


def page(value: DedicatedCluster, found: Sequence[ReportedEvent] | None, now: datetime) -> list[Part]:
    """Return the page.

    Args:
        value: The cluster.
        found: Its events; None if they may not be read.
        now: The time.
    """
    status, meta = value.status, value.metadata
    outside = [(each.name, each.stage or "-", each.message) for each in status.contributed]
    pools = [
        (each.name, str(each.want), str(each.ready), str(each.joining), str(each.leaving)) for each in status.pools
    ]
    return [
        *head(meta, _lines(value), now, place="Namespace"),
        *section("Pools", rows(("POOL", "WANTED", "READY", "JOINING", "LEAVING"), pools)),
        *(section("Contributed Nodes", rows(("NODE", "STAGE", "MESSAGE"), outside)) if outside else ()),
        *conditions(meta, status.observed_generation, status.conditions, now),
        *events(found, now),
    ]


def _lines(value: DedicatedCluster) -> Iterator[tuple[str, str]]:
    spec, status = value.spec, value.status
    wanted = f" (spec.version is {spec.version})" if spec.version else ""
    yield "Kubernetes", f"{status.version or 'not started yet'}{wanted}"
    yield "Template", _template(value)
    yield "Endpoint", status.endpoint or "none yet"
    where = f" of namespace {status.kubeconfig_namespace}" if status.kubeconfig_namespace else ""
    yield "Kubeconfig", f"Secret {status.kubeconfig_secret}{where}" if status.kubeconfig_secret else "none yet"
    yield "Nodes", f"{output.cell(status.ready_nodes)} Ready"
    if status.provider is ClusterProvider.CLUSTER_API:
        yield "Built by", f"Cluster API, as Cluster {value.metadata.name}"
        if spec.paused:
            yield "Paused", "the operator leaves the Cluster as it is"
        return
    has = template.settings(value)
    yield "Datastore", has.datastore.kind.value
    yield "Replicas", str(has.replicas)
    idle = has.after_idle_seconds
    yield "Sleeps", f"after {durations.text(idle)} without a request" if idle else "on request"
    if spec.paused:
        yield "Paused", "the operator leaves its control plane and its nodes as they are"


def _template(value: DedicatedCluster) -> str:
    name, wanted = template.taken(value).name, value.spec.template
    if wanted and wanted != name:
        return f"{name or 'none yet'} (spec.template is {wanted})"
    return name or "none"
