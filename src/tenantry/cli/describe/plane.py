"""The page of a VirtualControlPlane. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from tenantry.api.planesnapshots import PlaneOutcome, PlaneUpgrade
from tenantry.api.virtualcontrolplane import (
    PlanePhase,
    SleepWorkloads,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.cli import durations, output
from tenantry.cli.describe.sections import conditions, events, head, map_text, rows, section

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.objects import ReportedEvent


def page(
    value: VirtualControlPlane,
    found: Sequence[ReportedEvent] | None,
    now: datetime,
    limited: Collection[str] | None = None,
) -> list[Part]:
    """Return the page.

    Args:
        value: The control plane.
        found: Its events; None if they may not be read.
        now: The time.
        limited: The keys of the quota of its namespace; None if they may not be read.
    """
    spec, status, meta = value.spec, value.status, value.metadata
    listed = [(each.name, durations.age(each.time, now), str(each.size)) for each in status.snapshots]
    return [
        *head(meta, [*_state(spec, status, now, limited), *_choices(spec)], now, place="Namespace"),
        *conditions(meta, status.observed_generation, status.conditions, now),
        *section("Snapshots", rows(("NAME", "AGE", "BYTES"), listed)),
        *section("Last requests", rows(("REQUEST", "AGE", "OUTCOME"), list(_requests(status, now)))),
        *events(found, now),
    ]


def _state(
    spec: VirtualControlPlaneSpec, status: VirtualControlPlaneStatus, now: datetime, limited: Collection[str] | None
) -> Iterator[tuple[str, str]]:
    """Yield its state."""
    yield "Phase", status.phase.value
    if status.phase is PlanePhase.ASLEEP and status.next_wake:
        yield "Wakes", f"with the next connection, at the latest {durations.remaining(status.next_wake, now)}"
    wanted = f" (spec.version is {spec.version})" if spec.version else ""
    yield "Kubernetes", f"{status.version or 'not started yet'}{wanted}"
    yield "Endpoint", status.endpoint or "none yet"
    where = f" of namespace {status.kubeconfig_namespace}" if status.kubeconfig_namespace else ""
    yield "Kubeconfig", f"Secret {status.kubeconfig_secret}{where}" if status.kubeconfig_secret else "none yet"
    given = (
        status.charged if limited is None else {key: status.charged[key] for key in status.charged if key in limited}
    )
    yield "Charged to the quota", map_text(given)


def _choices(spec: VirtualControlPlaneSpec) -> Iterator[tuple[str, str]]:
    """Yield what its spec chooses."""
    requests, limits = spec.resources.requests, spec.resources.limits
    yield "Requests", f"cpu={requests.cpu}, memory={requests.memory}; limit memory={limits.memory}"
    yield "Replicas", str(spec.replicas)
    yield "Datastore", spec.datastore.kind.value
    yield "Nodes", spec.nodes.value
    yield "Sleeps", _sleep(spec)
    yield "Snapshots", _schedule(spec)
    yield "Audit", spec.audit.level.value
    oidc = spec.authentication.oidc
    if oidc is not UNSET:
        yield "OIDC issuer", oidc.issuer
    allowed = [*spec.egress.allowed_cidrs, *spec.egress.allowed_hosts]
    if allowed:
        yield "Egress", ", ".join(allowed)


def _sleep(spec: VirtualControlPlaneSpec) -> str:
    given = spec.sleep
    if spec.replicas > 1:
        return "on request, because it has several replicas"
    if not given.after_idle_seconds:
        return "on request"
    pods = "run on" if given.workloads is SleepWorkloads.KEEP else "are deleted"
    return f"after {durations.text(given.after_idle_seconds)} without a request; its pods {pods}"


def _schedule(spec: VirtualControlPlaneSpec) -> str:
    given = spec.snapshots
    when = f"at {given.schedule!r} (UTC)" if given.schedule else "on request"
    where = f" at {given.destination}" if given.destination else ""
    return f"{when}; {given.keep} are kept{where}"


def _requests(status: VirtualControlPlaneStatus, now: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield the outcome of the last request of each kind."""
    for kind, outcome in (("snapshot", status.last_snapshot), ("restore", status.last_restore)):
        if outcome.time:
            yield kind, durations.age(outcome.time, now), _outcome(outcome)
    if status.last_upgrade.time:
        yield "upgrade", durations.age(status.last_upgrade.time, now), _upgrade(status.last_upgrade)
    if status.last_rotation.time:
        scope = status.last_rotation.requested.partition("@")[0]
        told = f"credentials replaced: {scope}" if scope else "credentials of users replaced by the operator"
        yield "rotation", durations.age(status.last_rotation.time, now), told


def _outcome(given: PlaneOutcome) -> str:
    return f"failed: {given.message}" if given.message else given.snapshot


def _upgrade(given: PlaneUpgrade) -> str:
    way = f"from {given.before} to {given.after}"
    if given.message:
        return f"{way} has not begun: {given.message}"
    return f"{way}{'' if given.completed else ' is not complete'}; snapshot {output.cell(given.snapshot)}"
