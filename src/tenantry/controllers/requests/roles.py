"""Keeps the bindings of approved RoleRequests and ClusterRoleRequests until these end: the glue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import RBAC_GROUP, Namespace
from tenantry.api.model import Resource, object_key
from tenantry.api.requests import ClusterRoleRequest, Decision, RoleGrant, RoleKind, RoleRequest
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.announcement import warn_of_end
from tenantry.controllers.conclusion import PATIENCE, problem_of
from tenantry.controllers.requests import desired, pending, status
from tenantry.controllers.requests.gather import binding_kind, binding_name, binding_of, gather
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, StepAction

OF_TENANT = "tenant:"
"""Before a tenant's name: the key that stands for every request in its namespaces."""

LOOK_AGAIN_SECONDS = 30.0
"""When to look again for a missing role, each time twice as long: roles are not watched for this."""

LONGEST_SECONDS = 600.0
"""The longest interval: a new role is found within it, and a request for a role that never exists costs little."""

_ROLES = {
    "Role": Resource(RBAC_GROUP, "v1", "roles", "Role"),
    "ClusterRole": Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False),
}


class RoleRequestController:
    """Reconciles requests of one kind; the key is the request's own.

    Args:
        kind: RoleRequest or ClusterRoleRequest.
    """

    def __init__(self, kind: type[RoleRequest | ClusterRoleRequest]) -> None:
        self.name = kind.resource.kind.lower()
        self.kind = kind
        self._namespaced = kind.resource.namespaced
        self._prefix = binding_name("", namespaced=self._namespaced)
        # By key of a request whose role is missing: the decision at that time, and how often the role was looked for.
        self._looked: dict[str, tuple[Decision, int]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        decode = watched.decoder(self.kind)
        own = Watch(
            resource=self.kind.resource,
            decode=decode,
            keys=watched.own_key,
            indexes={BY_NAMESPACE: _namespace_of, **pending.INDEX},
        )
        bindings = watched.watch(binding_kind(namespaced=self._namespaced).resource, self._binding_keys)
        if not self._namespaced:
            return [own, bindings]
        # Namespaces are only looked up: a suspension is a change of the tenant.
        namespaces = watched.watch(Namespace.resource, lambda _: ())
        return [own, bindings, namespaces, watched.tenants(_tenant_keys)]

    def _binding_keys(self, change: Change[Observed]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or not found.name.startswith(self._prefix):
            return ()
        return [object_key(found.namespace, found.name.removeprefix(self._prefix))]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Apply the plan of one request's binding; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status reports it, and the queue tries again.
        """
        if key.startswith(OF_TENANT):
            return self._wake_all(cluster, key.removeprefix(OF_TENANT))
        request = cluster.cache(self.kind.resource).get(key)
        if request is None:
            self._looked.pop(key, None)
        if request is None or request.metadata.deletion_timestamp:
            await self._take_back(cluster, key)
            if request is None:
                cluster.forget(self.name, key)
            return None
        if await pending.withdraw(cluster, request):
            return None
        now = cluster.clock.now()
        # From here on the request is the one in the cache: the status write has changed its resourceVersion.
        request = await self._begin(cluster, request, now)
        if request is None:
            return None
        return await self._keep(cluster, request, now, attempt)

    def _wake_all(self, cluster: Cluster, tenant: str) -> None:
        caches = cluster.observed_caches((Namespace.resource,))
        requests = cluster.cache(self.kind.resource)
        for namespace in caches[Namespace.resource].by_index(BY_TENANT, tenant):
            for found in requests.by_index(BY_NAMESPACE, namespace.name):
                cluster.wake(self.kind, found.key)

    async def _take_back(self, cluster: Cluster, key: str) -> None:
        """Delete the binding of a request that is gone, before the garbage collector does: access must end at once.

        Raises:
            ApiError: The binding is still there; the queue tries again.
        """
        found = binding_of(cluster, self._namespaced, key)
        if found is None:
            return
        outcome = await cluster.writer.apply(desired.taken_back(found, namespaced=self._namespaced))
        # No event follows: without a retry, the access would last until the garbage collector ends it.
        if outcome.error is not None:
            raise outcome.error

    async def _begin(self, cluster: Cluster, request: RoleGrant, now: dt.datetime) -> RoleGrant | None:
        """Record when a grant ends before it begins: a crash between the two writes must not make it longer."""
        seconds, before = request.spec.duration_seconds, request.status
        if before.decision is not Decision.APPROVED or not seconds or before.expires_at:
            return request
        end = rfc3339(now + dt.timedelta(seconds=seconds))
        await cluster.writer.status(replace(request, status=replace(before, expires_at=end)))
        return cluster.cache(self.kind.resource).get(request.key)

    async def _keep(self, cluster: Cluster, request: RoleGrant, now: dt.datetime, attempt: int) -> float | None:
        inputs = gather(cluster, request, now)
        # The garbage collector deletes it too, but compare() would report it as a foreign object until then.
        if inputs.binding is not None and inputs.binding.owner_uid != request.metadata.uid:
            await self._take_back(cluster, request.key)  # of an earlier request of the same name
            inputs = replace(inputs, binding=None)
        before, term = request.status, inputs.term
        # RBAC accepts a binding to a missing role, and it would grant whatever is created under that name later.
        waits_for_role = inputs.binding is None and not term.is_expired and before.decision is not Decision.DENIED
        if inputs.problem is None and waits_for_role:
            inputs = replace(inputs, problem=await self._missing_role(cluster, request))
        outcome = await cluster.writer.apply(desired.plan(inputs, cluster.writer.equivalent))
        problem = problem_of(outcome) or inputs.problem
        name = binding_name(request.metadata.name, namespaced=self._namespaced)
        written = status.compute(
            request,
            problem=problem,
            granted=name if inputs.is_given and problem is None else "",
            done=_done(request),
            now=rfc3339(now),
            lease=term,
        )
        # Conditions must not flap: a temporary failure is reported only after several tries.
        waits = outcome.error is not None and problem is not None and problem.passing and attempt < PATIENCE
        if written != before and not waits:
            await cluster.writer.status(replace(request, status=written))
        # The API server creates no event in a namespace that is being deleted.
        if problem is None or problem.reason != reasons.NAMESPACE_TERMINATING:
            _say(cluster, request, outcome)
        warn_of_end(cluster.recorder, request, written.conditions)
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        # The nearest of all ends: of the grant, of the tenant's lease, and of the obstacle.
        turns = self._turns(request, problem)
        turns += [seconds for seconds in (term.next_seconds, inputs.closes_in) if seconds is not None]
        return min(turns, default=None)

    def _turns(self, request: RoleGrant, problem: Blocked | None) -> list[float]:
        """Return in how many seconds to check an obstacle again; [] if a watch reports its end."""
        if problem is None or problem.reason != reasons.ROLE_NOT_FOUND:
            self._looked.pop(request.key, None)
            return [LOOK_AGAIN_SECONDS] if problem is not None and problem.passing else []
        decision, times = self._looked.get(request.key, (Decision.PENDING, 0))
        if decision is not request.status.decision:
            times = 0  # the approver may have created it a moment before
        self._looked[request.key] = (request.status.decision, times + 1)
        return [min(LOOK_AGAIN_SECONDS * 2**times, LONGEST_SECONDS)]

    async def _missing_role(self, cluster: Cluster, request: RoleGrant) -> Blocked | None:
        ref = request.spec.role_ref
        namespace = request.metadata.namespace if ref.kind == RoleKind.ROLE else ""
        if await cluster.live.find(_ROLES[ref.kind], namespace, ref.name) is None:
            where = f" in namespace {namespace!r}" if namespace else ""
            message = f"there is no {ref.kind} {ref.name!r}{where}: create it, or request another one"
            return Blocked(reason=reasons.ROLE_NOT_FOUND, message=message)
        return None


def _namespace_of(request: RoleGrant) -> list[str]:
    return [request.metadata.namespace]


def _tenant_keys(change: Change[Tenant]) -> Iterable[str]:
    """Return the key of a tenant whose suspension or end has changed."""
    before, after = change.before, change.after
    if before is None or after is None:
        return ()
    # Other changes of a tenant do not concern its requests: each wake-up is one reconcile for each request.
    same = (before.spec.suspended, before.spec.expires_at) == (after.spec.suspended, after.spec.expires_at)
    return () if same else [f"{OF_TENANT}{after.metadata.name}"]


def _done(request: RoleGrant) -> str:
    ref = request.spec.role_ref
    end = f" until {request.status.expires_at}" if request.status.expires_at else ""
    return f"{ref.kind} {ref.name!r} is granted{end}"


def _say(cluster: Cluster, request: RoleGrant, outcome: Outcome) -> None:
    was_there = bool(request.status.granted)
    for step in outcome.done:
        told = f"{step.resource.kind} {step.name!r}"
        if step.action is StepAction.DELETE:
            cluster.recorder.say(request, EventKind.NORMAL, reasons.EXPIRED, f"took back {told}")
        elif was_there:
            cluster.recorder.say(request, EventKind.NORMAL, reasons.CORRECTED, f"put back {told}")
        else:
            cluster.recorder.say(request, EventKind.NORMAL, reasons.GRANTED, f"made {told}")
