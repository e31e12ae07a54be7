"""Makes tenants of approved TenantRequests, and approves those that an administrator has said beforehand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, ApiError
from tenantry.api.kubernetes import Namespace
from tenantry.api.requests import APPROVALS, REQUEST_UID, AutoApproval, Decision, TenantRequest
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import RulesMap
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.conclusion import PATIENCE, problem_of
from tenantry.controllers.requests import desired, pending, status
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked

LOOK_AGAIN_SECONDS = 30.0
"""When to look again whether what is in the way has gone."""

BY_NAME = "tenant"
"""Requests, by the name of the tenant that they ask for."""

RULES = "rules:"
"""The key that means which rules there are, and every undecided request; no request has such a name."""


class TenantRequestController:
    """Reconciles TenantRequests; the key is the request's name."""

    name = "tenantrequest"
    kind = TenantRequest

    def __init__(self) -> None:
        # Known from the first reconcile on; a tenant that is there before that is seen then.
        self._requests: Cache[TenantRequest] | None = None

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        decode = watched.decoder(TenantRequest)
        return [
            Watch(
                resource=TenantRequest.resource,
                decode=decode,
                keys=watched.own_key,
                indexes={**pending.INDEX, BY_NAME: lambda request: (request.spec.tenant,)},
            ),
            watched.defaults(lambda _: [RULES]),
            watched.watch(RulesMap.resource, _concerned),
            # It is there in every cluster, and so are the approvals then, with or without TenancyDefaults.
            watched.watch(Namespace.resource, _concerned),
            watched.tenants(self._by_name),
        ]

    def _by_name(self, change: Change[Tenant]) -> Iterable[str]:
        """Return the requests whose name is taken now, or free again."""
        tenant = change.after or change.before
        if self._requests is None or tenant is None or (change.before and change.after):
            return ()
        return [request.key for request in self._requests.by_index(BY_NAME, tenant.metadata.name)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Bring one request to what was decided; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status says what, and the queue tries again.
        """
        requests = self._requests = cluster.cache(TenantRequest.resource)
        if key == RULES:
            await self._tell(cluster)
            for found in requests:
                if found.status.decision is Decision.PENDING:
                    cluster.wake(TenantRequest, found.key)
            return None
        request = cast("TenantRequest | None", requests.get(key))
        if request is None:
            cluster.forget(self.name, key)
            return None
        if request.metadata.deletion_timestamp or await pending.withdraw(cluster, request):
            return None
        now = cluster.clock.now()
        request = await self._decide(cluster, request, now)
        return await self._keep(cluster, request, now, attempt) if request is not None else None

    async def _tell(self, cluster: Cluster) -> None:
        """Bring what the API server lets the operator approve to what TenancyDefaults say."""
        plan = desired.plan_approvals(_rules(cluster), cluster.lookup, cluster.writer.equivalent)
        outcome = await cluster.writer.apply(plan)
        if outcome.error is not None:
            raise outcome.error

    async def _decide(self, cluster: Cluster, request: TenantRequest, now: dt.datetime) -> TenantRequest | None:
        """Approve what approves itself, and write down when the tenant ends before it is made."""
        before = after = request.status
        if before.decision is Decision.PENDING:
            reason = desired.fitting(request, _rules(cluster))
            if reason:
                after = msgspec.structs.replace(after, decision=Decision.APPROVED, reason=reason)
        seconds = request.spec.duration_seconds
        if after.decision is Decision.APPROVED and seconds and not after.expires_at:
            after = msgspec.structs.replace(after, expires_at=rfc3339(now + dt.timedelta(seconds=seconds)))
        if after == before:
            return request
        await cluster.writer.status(msgspec.structs.replace(request, status=after))
        return cast("TenantRequest | None", cluster.cache(TenantRequest.resource).get(request.key))

    async def _keep(self, cluster: Cluster, request: TenantRequest, now: dt.datetime, attempt: int) -> float | None:
        before, name = request.status, request.spec.tenant
        granted, outcome, problem = before.granted, Outcome(), None
        if not granted and before.decision is not Decision.DENIED:
            problem = self._in_the_way(cluster, request)
            if problem is None and before.decision is Decision.APPROVED:
                outcome = await self._make(cluster, request)
                problem = problem_of(outcome)
                granted = name if problem is None else ""
        written = status.compute(
            request, problem=problem, granted=granted, done=f"tenant {name!r} is made", now=rfc3339(now)
        )
        waits = problem is not None and problem.passing and attempt < PATIENCE
        if written != before and not waits:
            await cluster.writer.status(msgspec.structs.replace(request, status=written))
        if granted and not before.granted:
            cluster.recorder.say(request, EventKind.NORMAL, reasons.GRANTED, f"made Tenant {name!r}")
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        return LOOK_AGAIN_SECONDS if problem is not None else None

    def _in_the_way(self, cluster: Cluster, request: TenantRequest) -> Blocked | None:
        name = request.spec.tenant
        tenant = cast("Tenant | None", cluster.cache(Tenant.resource).get(name))
        if tenant is None or tenant.metadata.labels.get(REQUEST_UID) == request.metadata.uid:
            return None
        message = f"there is a tenant {name!r} already: ask for another name"
        return Blocked(reason=reasons.TENANT_EXISTS, message=message)

    async def _make(self, cluster: Cluster, request: TenantRequest) -> Outcome:
        """Create the tenant, once: if it is deleted later, it is not created again."""
        wanted = desired.tenant(request, request.status.expires_at)
        try:
            await cluster.writer.create(wanted)
        except AlreadyExists:
            # Before our status was written, or by another client a moment ago.
            found = await cluster.live.get(Tenant, request.spec.tenant)
            if found.metadata.labels.get(REQUEST_UID) != request.metadata.uid:
                message = f"there is a tenant {request.spec.tenant!r} already: ask for another name"
                return Outcome(blocked=(Blocked(reason=reasons.TENANT_EXISTS, message=message),))
        except ApiError as error:
            return Outcome(error=error)
        return Outcome()


def _rules(cluster: Cluster) -> Sequence[AutoApproval]:
    defaults = cast("TenancyDefaults | None", cluster.cache(TenancyDefaults.resource).get(DEFAULTS))
    return defaults.spec.auto_approve if defaults is not None else ()


def _concerned(change: Change[Any]) -> Iterable[str]:
    value: Observed | None = change.after or change.before
    ours = value is not None and (
        value.name == marks.SYSTEM_NAMESPACE or (value.namespace, value.name) == (marks.SYSTEM_NAMESPACE, APPROVALS)
    )
    return [RULES] if ours else []
