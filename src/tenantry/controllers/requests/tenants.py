"""Creates the tenants of approved TenantRequests, and approves those that match a rule of TenancyDefaults."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import Namespace
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.requests import APPROVALS, AutoApproval, Decision, TenantRequest
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.conclusion import PATIENCE, problem_of
from tenantry.controllers.requests import desired, pending, status
from tenantry.controllers.requests.gather import gather_tenant
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed

LOOK_AGAIN_SECONDS = 30.0
"""When to look again whether an obstacle has gone."""

BY_NAME = "tenant"
"""Requests, by the name of the tenant that they ask for."""

RULES = "rules:"
"""The key that stands for the rules and every undecided request; the name of a request has no colon."""


class TenantRequestController:
    """Reconciles TenantRequests; the key is the request's name."""

    name = "tenantrequest"
    kind = TenantRequest

    def __init__(self) -> None:
        # Known from the first reconcile on, which sees the tenants that existed before it.
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
            watched.watch(PolicyParameters.resource, _concerned),
            # The system namespace exists in every cluster, so the approvals are kept even without TenancyDefaults.
            watched.watch(Namespace.resource, _concerned),
            watched.tenants(self._by_name),
        ]

    def _by_name(self, change: Change[Tenant]) -> Iterable[str]:
        """Return the requests that ask for the name of a tenant that was created or deleted."""
        tenant = change.after or change.before
        if self._requests is None or tenant is None or (change.before and change.after):
            return ()
        return [request.key for request in self._requests.by_index(BY_NAME, tenant.metadata.name)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Carry out the decision on one request; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status reports it, and the queue tries again.
        """
        requests = self._requests = cluster.cache(TenantRequest.resource)
        if key == RULES:
            await self._publish_rules(cluster)
            # A new rule may approve requests that were made before it.
            for found in requests:
                if found.status.decision is Decision.PENDING:
                    cluster.wake(TenantRequest, found.key)
            return None
        request = cast("TenantRequest | None", requests.get(key))
        if request is None:
            cluster.forget(self.name, key)
            return None
        # Withdrawn before it is decided: a rule must not approve the request that exceeds the limit.
        if request.metadata.deletion_timestamp or await pending.withdraw(cluster, request):
            return None
        now = cluster.clock.now()
        request = await self._decide(cluster, request, now)
        return await self._keep(cluster, request, now, attempt) if request is not None else None

    async def _publish_rules(self, cluster: Cluster) -> None:
        """Write the rules of TenancyDefaults where the policy that limits the operator's approvals reads them."""
        plan = desired.plan_approvals(_rules(cluster), cluster.lookup, cluster.writer.equivalent)
        outcome = await cluster.writer.apply(plan)
        if outcome.error is not None:
            raise outcome.error

    async def _decide(self, cluster: Cluster, request: TenantRequest, now: dt.datetime) -> TenantRequest | None:
        """Approve a request that matches a rule, and record when the tenant ends before it is created.

        The end is written first: a crash between the two writes must not give the tenant a later end.
        """
        # A decision of a person stands: rules only decide what is still pending.
        before = after = request.status
        if before.decision is Decision.PENDING:
            reason = desired.fitting(request, _rules(cluster))
            if reason:
                after = replace(after, decision=Decision.APPROVED, reason=reason)
        seconds = request.spec.duration_seconds
        if after.decision is Decision.APPROVED and seconds and not after.expires_at:
            after = replace(after, expires_at=rfc3339(now + dt.timedelta(seconds=seconds)))
        if after == before:
            return request
        await cluster.writer.status(replace(request, status=after))
        return cast("TenantRequest | None", cluster.cache(TenantRequest.resource).get(request.key))

    async def _keep(self, cluster: Cluster, request: TenantRequest, now: dt.datetime, attempt: int) -> float | None:
        before, name = request.status, request.spec.tenant
        inputs = gather_tenant(cluster, request)
        plan = desired.plan_tenant(inputs)
        outcome = await cluster.writer.apply(plan)
        if plan.writes and not outcome.written and outcome.error is None:
            # The cache has not seen the tenant yet: it was created before the last status, or for another request.
            inputs = replace(inputs, tenant=await cluster.live.get(Tenant, name))
            outcome = await cluster.writer.apply(desired.plan_tenant(inputs))
        problem = problem_of(outcome)
        is_granted = before.decision is Decision.APPROVED and problem is None
        granted = name if is_granted else before.granted
        written = status.compute(
            request, problem=problem, granted=granted, done=f"tenant {name!r} is made", now=rfc3339(now)
        )
        # Conditions must not flap: a temporary failure is reported only after several tries.
        waits = problem is not None and problem.passing and attempt < PATIENCE
        if written != before and not waits:
            await cluster.writer.status(replace(request, status=written))
        if granted and not before.granted:
            cluster.recorder.say(request, EventKind.NORMAL, reasons.GRANTED, f"made Tenant {name!r}")
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        # A tenant of the name is watched; a refusal of the API server, as by a policy, ends without an event.
        return LOOK_AGAIN_SECONDS if problem is not None else None


def _rules(cluster: Cluster) -> Sequence[AutoApproval]:
    defaults = cast("TenancyDefaults | None", cluster.cache(TenancyDefaults.resource).get(DEFAULTS))
    return defaults.spec.auto_approve if defaults is not None else ()


def _concerned(change: Change[Any]) -> Iterable[str]:
    value: Observed | None = change.after or change.before
    ours = value is not None and (
        value.name == marks.SYSTEM_NAMESPACE or (value.namespace, value.name) == (marks.SYSTEM_NAMESPACE, APPROVALS)
    )
    return [RULES] if ours else []
