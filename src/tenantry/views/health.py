"""Whether Tenantry works in a cluster: the operator, the installed objects, the tenants, and what to do next.

    Lease of the operator ─► leader, its version, whether it renews ─┐
    Deployment            ─► replicas                                ├─► HealthView ─► next steps
    installed objects     ─► views/installation.py                   │
    Tenants, requests     ─► how many are in which state             ─┘

Tenants do not decide about the health: a tenant that is not ready waits for its owner or an administrator, and the
next steps name it. Otherwise an owner, whose objects can make a tenant Stalled, could make the cluster unhealthy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from tenantry import __version__
from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.api.requests import REQUESTS, Decision
from tenantry.api.tenant import Tenant
from tenantry.api.versionorder import is_later
from tenantry.api.wording import shortened
from tenantry.controllers.installation.release import HelmRelease
from tenantry.engine import lease as leases
from tenantry.engine.conditions import find, is_true
from tenantry.engine.lease import Lease
from tenantry.engine.tasks import first_error
from tenantry.install import installed as installations
from tenantry.install.rights import OPERATOR
from tenantry.kube.version import ServerVersion
from tenantry.kube.watch import EventType, watch
from tenantry.views import installation

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.kube.watch import WatchEvent

SHOWN_TENANTS = 3
"""How many tenants that wait for a person the next steps name."""


_STATES = (reasons.SUSPENDED, reasons.STALLED, reasons.READY)
"""The conditions that are states of a tenant, in the order in which they count."""
_NOT_READY = "NotReady"


class _Wanted(Model, frozen=True, kw_only=True):
    replicas: int = 0


class _Present(Model, frozen=True, kw_only=True):
    available_replicas: int = 0


class OperatorDeployment(KubernetesObject, frozen=True, kw_only=True):
    """The Deployment of the operator, with the numbers of its replicas."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "deployments", "Deployment")

    spec: _Wanted = _Wanted()
    status: _Present = _Present()


class OperatorView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The operator.

    Args:
        version: Of the leader; "" if it is of a release that does not report it, or there is none.
        leader: The identity in the Lease; "" for none.
        renewed: When the Lease was renewed last, RFC 3339 by the clock of the leader; "" for never.
        is_leading: The leader renews the Lease.
        replicas: Of its Deployment; 0 on a local cluster, where it runs as a component.
        available_replicas: Those that are available.
    """

    version: str = ""
    leader: str = ""
    renewed: str = ""
    is_leading: bool = False
    replicas: int = 0
    available_replicas: int = 0


class TenantsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tenants.

    Args:
        total: How many there are.
        ready: Those that are Ready and not suspended.
        states: State to the number of tenants in it. Each tenant is in one: Suspended, else Stalled, Ready or NotReady.
        conditions: Other condition to the number of tenants for which it is True.
    """

    total: int = 0
    ready: int = 0
    states: dict[str, int] = {}
    conditions: dict[str, int] = {}


class HealthView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether Tenantry works in a cluster.

    Args:
        healthy: None if a part could not be checked, and no other part has a problem.
        kubernetes: The version of the API server.
        installed: The version of the installed objects; "" if they have none.
        operator: The operator.
        differences: How the installed objects differ from those of this version; None if they were not compared.
        tenants: The tenants; None if the user may not list them.
        pending_requests: How many requests wait for a decision; None if the user may list none of them.
        problems: What makes it unhealthy, or unknown.
        next: What to do, the most urgent first.
    """

    healthy: bool | None
    kubernetes: str
    installed: str = ""
    operator: OperatorView = OperatorView()
    differences: tuple[str, ...] | None = ()
    tenants: TenantsView | None = None
    pending_requests: int | None = None
    problems: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a cluster; arguments as for `HealthView`.

    Args:
        is_installed: Tenantry's namespace is there.
        is_local: The operator runs as a component of a local cluster.
        release: The release of Helm that has the installation; None for none, or if the user may not read it.
        waiting: The tenants that wait for a person, with the reasons.
    """

    kubernetes: str
    is_installed: bool = True
    is_local: bool = False
    release: HelmRelease | None = None
    installed: str = ""
    operator: OperatorView = OperatorView()
    differences: tuple[str, ...] | None = ()
    tenants: TenantsView | None = None
    waiting: tuple[tuple[str, str], ...] = ()
    pending_requests: int | None = None


async def read(client: Client, *, is_local: bool) -> HealthView:
    """Return the health of a cluster.

    Args:
        client: An administrator's; with fewer rights, some parts are not checked.
        is_local: It is a local cluster.

    Raises:
        Forbidden: The user may not even read the Lease of the operator.
    """
    server = msgspec.json.decode(await client.request("GET", "/version"), type=ServerVersion).git_version
    try:
        installed = (await client.get(Namespace, marks.SYSTEM_NAMESPACE)).metadata.labels
    except NotFound:
        return judged(Findings(kubernetes=server, is_installed=False, is_local=is_local))
    except Forbidden as error:
        raise Forbidden(
            f"{error}; `tenantry status` needs the rights of an administrator, and `tenantry my` shows what is yours"
        ) from error
    version = installed.get(marks.INSTALLED_VERSION, "")
    with first_error():
        async with asyncio.TaskGroup() as group:
            operator = group.create_task(_operator(client, is_local=is_local))
            # Only the own version's objects are known.
            compared = group.create_task(_differences(client, version))
            release = group.create_task(_release(client))
            tenants = group.create_task(_tenants(client))
            pending = group.create_task(_pending(client))
    counted, waiting = tenants.result()
    return judged(
        Findings(
            kubernetes=server,
            is_local=is_local,
            release=release.result(),
            installed=version,
            operator=operator.result(),
            differences=compared.result(),
            tenants=counted,
            waiting=waiting,
            pending_requests=pending.result(),
        )
    )


def judged(found: Findings) -> HealthView:
    """Return what the findings mean."""
    if not found.is_installed:
        return HealthView(
            healthy=False,
            kubernetes=found.kubernetes,
            problems=("Tenantry is not installed in this cluster",),
            next=("tenantry install",),
        )
    wrong: list[str] = []
    unknown: list[str] = []
    steps: list[str] = []
    operator = found.operator
    logs = "tenantry logs operator" if found.is_local else f"kubectl -n {marks.SYSTEM_NAMESPACE} describe pods"
    started = ("tenantry up   # if it was started with --no-operator",) if found.is_local else ()
    if not operator.is_leading:
        guards = ", and every guard of admission still refuses" if found.differences == () else ""
        wrong.append(
            f"the leader {operator.leader!r} does not renew its Lease"
            if operator.leader
            else f"no operator leads: nothing is reconciled{guards}"
        )
        steps += [*started, logs]
    if operator.available_replicas < operator.replicas:
        wrong.append(f"{operator.available_replicas} of {operator.replicas} replicas of the operator are available")
        steps.append(logs)
    if found.differences:
        wrong.append(f"installed objects differ: {shortened(found.differences, separator='; ')}")
        is_of_operator = all(each.endswith(installation.BY_OPERATOR) for each in found.differences)
        steps.append(logs if is_of_operator else _installation(found))
    elif found.differences is None and found.installed != __version__:
        unknown.append(
            f"version {found.installed or 'unknown'} is installed, and this command has version {__version__}: it does"
            " not know the objects of the other version"
        )
        steps.append(_installation(found))
    elif found.differences is None:
        unknown.append("the installed objects were not compared: that needs the rights of an administrator")
    steps += _next_for_tenants(found.waiting)
    if found.pending_requests:
        steps.append(f"tenantry request list --pending   # {found.pending_requests} wait for a decision")
    if found.tenants is not None and not found.tenants.total and not wrong:
        steps.append("tenantry tenant create NAME --owner USER   # there are no tenants yet")
    return HealthView(
        healthy=False if wrong else None if unknown else True,
        kubernetes=found.kubernetes,
        installed=found.installed,
        operator=operator,
        differences=found.differences,
        tenants=found.tenants,
        pending_requests=found.pending_requests,
        problems=(*wrong, *unknown),
        next=tuple(dict.fromkeys(steps)),
    )


def _installation(found: Findings) -> str:
    """Return how the installed objects become those of this version, or which version can compare them."""
    if is_later(found.installed, __version__):
        return f"use tenantry {found.installed} or later: `tenantry install` of this version refuses"
    if found.release is None:
        return "tenantry install"
    name, namespace = found.release.name, found.release.namespace
    flags = "--reset-then-reuse-values --force-conflicts"
    return f"helm upgrade {name} CHART --namespace {namespace} {flags}   # the chart of version {__version__}"


async def _release(client: Client) -> HelmRelease | None:
    with contextlib.suppress(Forbidden):
        return await installations.release(client)
    return None


def _next_for_tenants(waiting: Sequence[tuple[str, str]]) -> list[str]:
    restored = [name for name, why in waiting if why == reasons.NOT_ADOPTED]
    others = [(name, why) for name, why in waiting if why != reasons.NOT_ADOPTED]
    steps = [f"tenantry adopt --plan   # {reasons.NOT_ADOPTED}: {shortened(restored)}"] if restored else []
    steps += [f"tenantry describe tenant {name}   # {why}" for name, why in others[:SHOWN_TENANTS]]
    if len(others) > SHOWN_TENANTS:
        steps.append(f"tenantry get tenants   # {len(waiting)} are not ready")
    return steps


async def _differences(client: Client, installed: str) -> tuple[str, ...] | None:
    return await installation.differences(client) if installed == __version__ else None


async def _operator(client: Client, *, is_local: bool) -> OperatorView:
    wanted = available = 0
    if not is_local:
        # Without a Deployment, the operator runs elsewhere, and only the Lease decides.
        with contextlib.suppress(NotFound, Forbidden):
            deployment = await client.get(OperatorDeployment, OPERATOR, marks.SYSTEM_NAMESPACE)
            wanted, available = deployment.spec.replicas, deployment.status.available_replicas
    try:
        found = await client.get(Lease, leases.NAME, marks.SYSTEM_NAMESPACE)
    except NotFound:
        return OperatorView(replicas=wanted, available_replicas=available)
    is_leading = _is_fresh(found)
    if not is_leading:
        renewed = await _renewed(client, found)
        is_leading, found = renewed is not None, renewed or found
    return OperatorView(
        version=leases.version_of(found),
        leader=found.spec.holder_identity or "",
        renewed=found.spec.renew_time or "",
        is_leading=is_leading,
        replicas=wanted,
        available_replicas=available,
    )


def _is_fresh(found: Lease) -> bool:
    """Return whether the holder renewed the Lease within its duration, if the clocks agree."""
    spec = found.spec
    try:
        then = datetime.fromisoformat(spec.renew_time or "")
    except ValueError:
        return False
    age = (datetime.now(UTC) - then.astimezone(UTC)).total_seconds()
    return bool(spec.holder_identity) and abs(age) <= (spec.lease_duration_seconds or leases.DURATION_SECONDS)


async def _renewed(client: Client, before: Lease) -> Lease | None:
    """Wait for a renewal as long as the Lease lasts; None if there is none. Clocks of other machines may differ."""
    selectors = {"fieldSelector": f"metadata.name={leases.NAME}"}
    stream = watch(
        client,
        Lease.resource,
        resource_version=before.metadata.resource_version,
        selectors=selectors,
        namespace=marks.SYSTEM_NAMESPACE,
    )
    try:
        async with (
            asyncio.timeout(before.spec.lease_duration_seconds or leases.DURATION_SECONDS),
            contextlib.aclosing(cast("AsyncGenerator[list[WatchEvent]]", stream)) as batches,
        ):
            async for event in (event async for events in batches for event in events):
                if event.type not in {EventType.ADDED, EventType.MODIFIED}:
                    continue
                found = client.decode(Lease, event.object)
                if found.spec.holder_identity and found.spec.renew_time != before.spec.renew_time:
                    return found
    except (TimeoutError, Forbidden):
        return None
    return None


async def _tenants(client: Client) -> tuple[TenantsView | None, tuple[tuple[str, str], ...]]:
    """Return the numbers of tenants, and those that wait for a person, with the reasons."""
    try:
        found = await client.list(Tenant)
    except Forbidden:
        return None, ()
    return count(found)


def count(found: Sequence[Tenant]) -> tuple[TenantsView, tuple[tuple[str, str], ...]]:
    """Return the numbers of tenants by state and condition, and those that wait for a person, with the reasons."""
    states: Counter[str] = Counter()
    others: Counter[str] = Counter()
    waiting: list[tuple[str, str]] = []
    for each in found:
        conditions = each.status.conditions
        ready = find(conditions, reasons.READY)
        state = next((one for one in _STATES if is_true(conditions, one)), _NOT_READY)
        states[state] += 1
        others.update(one.type for one in conditions if one.type not in _STATES and one.status == "True")
        if not is_true(conditions, reasons.READY) and state != reasons.SUSPENDED:
            waiting.append((each.metadata.name, ready.reason if ready is not None else "NotReconciled"))
    view = TenantsView(
        total=len(found),
        ready=states[reasons.READY],
        states=dict(sorted((+states).items())),
        conditions=dict(sorted(others.items())),
    )
    return view, tuple(sorted(waiting))


async def _pending(client: Client) -> int | None:
    """Return how many requests wait for a decision; None if the user may list none of them."""
    counts: list[int] = []
    for kind in REQUESTS:
        try:
            found = await client.list(kind)
        except Forbidden:
            continue
        counts.append(sum(each.status.decision is Decision.PENDING for each in found))
    return sum(counts) if counts else None
