"""Keep the child of every Subnamespace as specified: the glue between gather, desired, plan, apply and status.

gather ─► plan ─► apply: namespace, limits ─► share in force ─► inherit ─► plan ─► apply: users ─► status
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ApiError, InputError, RetryableError, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TREE_SUFFIX
from tenantry.api.model import Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.announcement import LastInputs, announce, warn_of_end
from tenantry.controllers.conclusion import retried
from tenantry.controllers.hosts.clashes import Clashes
from tenantry.controllers.inheritance.propagation import Propagation
from tenantry.controllers.inheritance.status import Inherited
from tenantry.controllers.limits.gather import LimitCache
from tenantry.controllers.nodes.addresses import AddressCache
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.slices.wakes import wake_slices
from tenantry.controllers.subnamespace import desired, ending, orphans, status, wakes
from tenantry.controllers.subnamespace.gather import (
    CHILD_KINDS,
    SubnamespaceCaches,
    SubnamespaceInputs,
    gather,
)
from tenantry.controllers.subnamespace.treelimit import TreeLimit
from tenantry.controllers.tenant import clusternetworkpolicy
from tenantry.controllers.virtualcontrolplane.wakes import wake_planes
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Plan

_TAKEN = frozenset({reasons.NAMESPACE_EXISTS, reasons.NAME_TAKEN})

RECHECK_SECONDS = 2.0
"""When to look again at a child that waits for its share of the quota, if no event wakes it."""


class ReconcileResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one reconcile.

    Args:
        inputs: What was known last.
        outcome: For the conditions.
        waits: It waits for another controller, and has nothing to report yet.
    """

    inputs: SubnamespaceInputs
    outcome: Outcome
    waits: bool = False


class SubnamespaceController:
    """Reconciles Subnamespaces; the key is `namespace/name`.

    Args:
        cluster_uid: The uid of the namespace kube-system.
        verdicts: Shared with the quota controller, which sets them.
        addresses: The addresses of nodes and DNS.
        clashes: The hosts in children that other namespaces hold.
        propagation: Copies inherited objects into children.
        limits: The limits of all tenants.
    """

    name = "subnamespace"
    kind = Subnamespace

    def __init__(
        self,
        cluster_uid: str,
        *,
        verdicts: Verdicts,
        addresses: AddressCache,
        clashes: Clashes,
        propagation: Propagation,
        limits: LimitCache,
    ) -> None:
        self._cluster_uid = cluster_uid
        self._verdicts = verdicts
        self._addresses = addresses
        self._clashes = clashes
        self._propagation = propagation
        self._limits = limits
        # None until the first reconcile, which reads everything that changed before it.
        self._caches: SubnamespaceCaches | None = None
        self._wanted: dict[str, str] = {}
        self._tree_limit = TreeLimit()
        self._last_inputs = LastInputs()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.subnamespaces(self._waker(wakes.by_subnamespace, own=True)),
            watched.tenants(self._waker(wakes.by_tenant)),
            watched.defaults(self._waker(wakes.by_defaults)),
            watched.runtime_classes(self._waker(wakes.by_runtime_class)),
            watched.control_planes(self._waker(wakes.by_control_plane)),
            *(watched.watch(kind.resource, self._child_waker(kind.resource)) for kind in CHILD_KINDS),
        ]

    def _waker(
        self, function: Callable[[Change[Any], SubnamespaceCaches], Iterable[str]], *, own: bool = False
    ) -> Callable[[Change[Any]], Iterable[str]]:
        def keys(change: Change[Any]) -> Iterable[str]:
            if self._caches is not None:
                return function(change, self._caches)
            return watched.own_key(change) if own else ()

        return keys

    def _child_waker(self, resource: Resource) -> Callable[[Change[Any]], Iterable[str]]:
        return self._waker(lambda change, caches: wakes.by_child(resource, change, caches))

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Bring one child to its desired state; return in how many seconds to look again, None for never.

        Raises:
            TenantryError: Something failed; the status reports it, and the queue tries again.
        """
        inputs = self._inputs(cluster, key)
        if inputs is None:
            await orphans.sweep(cluster, key, self._cluster_uid)
            cluster.forget(self.name, key)
            self._last_inputs.forget(key)
            return None
        subnamespace = inputs.subnamespace
        if subnamespace.metadata.deletion_timestamp or ending.is_due(inputs):
            await self._finish(cluster, inputs)
            return None
        result = await self._bring(cluster, inputs)
        if any(blocked.reason in _TAKEN for blocked in result.outcome.blocked):
            # Nothing links that namespace to this Subnamespace: without this entry, its deletion would wake no
            # reconcile.
            self._wanted[inputs.namespace] = key
            # It may belong to an earlier Subnamespace of this name, which is gone.
            await orphans.sweep(cluster, key, self._cluster_uid)
        if result.waits and not (result.outcome.blocked and subnamespace.status.conditions):
            return RECHECK_SECONDS  # there is nothing to report yet
        await self._conclude(cluster, result, attempt)
        return RECHECK_SECONDS if result.waits else inputs.lease.next_seconds

    def _inputs(self, cluster: Cluster, key: str) -> SubnamespaceInputs | None:
        """Read the caches; None if there is no such Subnamespace."""
        defaults: Cache[TenancyDefaults] = cluster.cache(TenancyDefaults.resource)
        caches = self._caches = SubnamespaceCaches(
            cluster.cache(Tenant.resource),
            cluster.cache(Subnamespace.resource),
            cluster.observed_caches(kind.resource for kind in CHILD_KINDS),
            self._wanted,
            self._tree_limit,
            defaults,
            sandbox_of(defaults.get(DEFAULTS), cluster.cache(RuntimeClass.resource)),
            self._limits.current(cluster),
            cluster.cache(VirtualControlPlane.resource),
        )
        subnamespace = caches.subnamespaces.get(key)
        if subnamespace is None:
            return None
        return gather(
            subnamespace,
            caches,
            self._verdicts.get(subnamespace.metadata.uid),
            cluster_uid=self._cluster_uid,
            now=cluster.clock.now(),
            around=self._addresses.current(cluster),
        )

    async def _finish(self, cluster: Cluster, inputs: SubnamespaceInputs) -> None:
        """Delete a Subnamespace whose lease ended, or take a deleted one a step nearer to its end.

        Raises:
            ApiError: A write failed; the queue tries again.
        """
        subnamespace = inputs.subnamespace
        if not subnamespace.metadata.deletion_timestamp:
            note = f"deleted {subnamespace.key!r}, whose lease ended"
            cluster.recorder.say(subnamespace, EventKind.NORMAL, reasons.EXPIRED, note)
        outcome = await cluster.writer.apply(desired.plan(inputs, cluster.writer.equivalent))
        if outcome.error is not None:
            raise outcome.error
        now = rfc3339(cluster.clock.now())
        if outcome.blocked:
            written = status.refused(subnamespace, outcome.blocked[0], now=now)
        elif subnamespace.metadata.deletion_timestamp and inputs.bound is not None:
            written = status.ending(subnamespace, inputs.namespace, now=now)
        else:
            return
        if written != subnamespace.status:
            await cluster.writer.status(msgspec.structs.replace(subnamespace, status=written))

    # -- children -------------------------------------------------------------------------------

    async def _bring(self, cluster: Cluster, inputs: SubnamespaceInputs) -> ReconcileResult:
        """Write what the child lacks: the namespace and its limits, what it inherits, and last the users' binding."""
        outcome, has_written = await self._apply(cluster, inputs)
        self._tell(cluster, inputs, outcome)
        if outcome.error is not None or outcome.blocked:
            return ReconcileResult(inputs=inputs, outcome=outcome)
        # Abandoned: the Subnamespace was deleted before it had its finalizer; the watch is about to report it.
        if inputs.awaits_verdict or outcome.is_abandoned:
            return ReconcileResult(inputs=inputs, outcome=outcome, waits=True)
        uid = inputs.subnamespace.metadata.uid
        latest: SubnamespaceInputs | None = inputs
        if has_written:
            # The caches have the new namespace by now. An empty plan suspends nothing, so nothing can have changed.
            latest = self._inputs(cluster, inputs.subnamespace.key)
        if latest is None or latest.subnamespace.metadata.uid != uid or latest.subnamespace.metadata.deletion_timestamp:
            return ReconcileResult(inputs=inputs, outcome=outcome, waits=True)
        if not latest.is_in_force:
            tenant = latest.subnamespace.metadata.namespace if latest.tenant is None else latest.tenant.metadata.name
            cluster.wake(TenantResourceQuota, tenant)
            # If this process has not looked at the quota yet, the last status stands.
            outcome = outcome if latest.verdict is None else _waiting(outcome)
            return ReconcileResult(inputs=latest, outcome=outcome, waits=True)
        if latest.is_early:
            # Some kinds are copied only once: a copy made before the parent has its own would lack these for good.
            return ReconcileResult(inputs=latest, outcome=outcome, waits=True)
        return await self._admit(cluster, latest, outcome)

    async def _admit(self, cluster: Cluster, inputs: SubnamespaceInputs, outcome: Outcome) -> ReconcileResult:
        """Bring what the child inherits, then admit its users, or keep them out while the tenant is suspended."""
        inherited = await self._inherit(cluster, inputs)
        inputs = msgspec.structs.replace(inputs, inherited=inherited)
        if desired.lacks(inherited, inputs):
            return ReconcileResult(inputs=inputs, outcome=msgspec.structs.replace(outcome, error=inherited.error))
        people, _ = await self._apply(cluster, inputs)
        error = people.error if people.blocked else people.error or inherited.error
        outcome = msgspec.structs.replace(people, done=(*outcome.done, *people.done), error=error)
        tenant, verdict = inputs.tenant, inputs.verdict
        # The tenant reports Suspended only when no namespace of its tree admits users.
        if tenant is not None and tenant.spec.suspended:
            cluster.wake(Tenant, tenant.metadata.name)
        is_moving = not inputs.is_judged or (verdict is not None and verdict.blocked is None and not verdict.settled)
        is_done = outcome.error is None and not outcome.blocked
        # A changed share is on the way: the status of the last one stands until the new one is in force.
        return ReconcileResult(inputs=inputs, outcome=outcome, waits=inputs.is_limited and is_done and is_moving)

    async def _apply(self, cluster: Cluster, inputs: SubnamespaceInputs) -> tuple[Outcome, bool]:
        """Apply the plan, and return its outcome and whether it had anything to write."""
        try:
            needed = desired.plan(inputs, cluster.writer.equivalent)
            return await self._apply_counted(cluster, inputs, needed), not needed.is_empty
        except (InputError, TerminalError) as error:
            return Outcome(error=error), True

    async def _apply_counted(self, cluster: Cluster, inputs: SubnamespaceInputs, needed: Plan) -> Outcome:
        """Apply a plan; a namespace that it creates counts from now on, and what the count refuses waits for its turn.

        Nothing has waited since the inputs were gathered, so no other reconcile had the same count.
        """
        if inputs.tenant is None:
            return await cluster.writer.apply(needed)
        tenant = inputs.tenant.metadata.name
        if any(blocked.reason == reasons.LIMIT_REACHED for blocked in needed.blocked):
            self._tree_limit.wait(tenant, inputs.subnamespace.key)
        steps = (step for wave in needed.waves for step in wave)
        if inputs.bound is not None or not any(step.resource == Namespace.resource for step in steps):
            return await cluster.writer.apply(needed)
        with self._tree_limit.creating(tenant, inputs.namespace):
            outcome = await cluster.writer.apply(needed)
        if cluster.lookup(Namespace.resource, inputs.namespace) is None:
            for key in self._tree_limit.waiting(tenant):
                cluster.wake(Subnamespace, key)
        return outcome

    async def _inherit(self, cluster: Cluster, inputs: SubnamespaceInputs) -> Inherited:
        namespace: Observed | None = cluster.cache(Namespace.resource).get(inputs.namespace)
        if namespace is None:  # deleted as soon as it was created: the watch brings the event
            return Inherited(copied=inputs.subnamespace.status.copied)
        return await self._propagation.inherit_all(cluster, inputs.subnamespace, namespace)

    def _tell(self, cluster: Cluster, inputs: SubnamespaceInputs, outcome: Outcome) -> None:
        """Wake the controllers that a new or moved namespace concerns: own writes cause no event."""
        wake_planes(cluster, outcome)
        tenant = inputs.tenant
        if tenant is None or not any(step.resource == Namespace.resource for step in outcome.done):
            return
        cluster.wake(TenantResourceQuota, tenant.metadata.name)
        wake_slices(cluster, inputs.ancestors)
        if inputs.zone == inputs.subnamespace.metadata.uid and clusternetworkpolicy.has_zones(tenant):
            cluster.wake(Tenant, tenant.metadata.name)
        # A namespace that an administrator has labelled is bound before its first reconcile.
        taken = inputs.bound is None and inputs.adoptee is not None
        if taken or any(TREE_SUFFIX in path for step in outcome.done for path in step.differs):
            for key in wakes.below(self._caches, inputs.namespace) if self._caches is not None else ():
                cluster.wake(Subnamespace, key)

    # -- status ---------------------------------------------------------------------------------

    async def _conclude(self, cluster: Cluster, result: ReconcileResult, attempt: int) -> None:
        inputs, outcome = result.inputs, result.outcome
        subnamespace = inputs.subnamespace
        # The finalizer, or a user, may have changed it since: the status is written at the latest resourceVersion.
        current = cluster.cache(Subnamespace.resource).get(subnamespace.key)
        if current is None or current.metadata.uid != subnamespace.metadata.uid:
            return
        now = rfc3339(cluster.clock.now())
        taken = self._clashes.inside(inputs.namespace)
        written = status.compute(inputs, outcome, attempt=attempt, now=now, clashes=taken)
        # The conversion controller may have written its journal since the inputs were gathered.
        written = msgspec.structs.replace(written, conversion=current.status.conversion)
        if written != current.status:
            await cluster.writer.status(msgspec.structs.replace(current, status=written))
        if written.namespace != current.status.namespace:
            # A claim that names the Subnamespace finds its namespace by the status.
            wake_slices(cluster, [subnamespace.metadata.namespace])
        inherited = inputs.inherited
        refusal = status.refusal_of(inherited)
        clashes = inherited.blocked if inherited is not None else ()
        clashes = (*clashes, refusal) if refusal is not None else clashes
        is_change = self._last_inputs.have_changed(subnamespace.key, inputs.set_above, outcome)
        announce(cluster.recorder, subnamespace, outcome, clashes, is_change=is_change)
        warn_of_end(cluster.recorder, subnamespace, written.conditions)
        # After the status, which must not wait for the queue's back-off.
        if refusal is not None and inherited is not None and outcome.error is inherited.error:
            # A quota may be full for days, and the condition and the event say what to do.
            raise RetryableError(refusal.message, is_reported=True) from outcome.error
        if isinstance(outcome.error, ApiError):
            raise retried(outcome.error, attempt)


def _waiting(outcome: Outcome) -> Outcome:
    waits = Blocked(reason=reasons.PROGRESSING, message="its share of the quota is not in force yet", passing=True)
    return msgspec.structs.replace(outcome, blocked=(waits,))
