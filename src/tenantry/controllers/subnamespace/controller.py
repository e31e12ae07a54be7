"""Keeps the child of every Subnamespace as its spec says: the glue between gather, desired, plan, apply and status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ApiError, InputError, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import FINALIZER, INHERITED_FROM, TREE_SUFFIX
from tenantry.api.model import Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers import suspension, tenantnamespace, watched
from tenantry.controllers.announcement import announce, warn_of_end
from tenantry.controllers.conclusion import PASSING
from tenantry.controllers.hosts.clashes import Clashes
from tenantry.controllers.inheritance.controller import InheritanceController
from tenantry.controllers.inheritance.desired import Inherited
from tenantry.controllers.nodes.addresses import AddressCache
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.subnamespace import checks, desired, ending, orphans, status, wakes
from tenantry.controllers.subnamespace.gather import (
    CHILD_KINDS,
    SubnamespaceCaches,
    SubnamespaceInputs,
    gather,
    made_inside,
)
from tenantry.controllers.tenant import clusternetworkpolicy
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Child, compare
from tenantry.world.leases import ENDLESS, LeaseState, lease

RECHECK_SECONDS = 2.0
"""When to look again at a child that waits for its share of the quota, should nobody have said a word."""


class ReconcileResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one reconcile came to.

    Args:
        outcome: As conditions say it.
        inherited: What came down from its parent; None where that was not reached.
        waits: It waits for others, and has nothing to say yet.
    """

    outcome: Outcome
    inherited: Inherited | None = None
    waits: bool = False


class SubnamespaceController:
    """Reconciles Subnamespaces; the key is `namespace/name`.

    Args:
        cluster_uid: The uid of the namespace kube-system.
        verdicts: What the quota controller says.
        addresses: Where nodes and DNS are.
        clashes: Which hosts in children are others'.
        inheritance: Brings what children inherit.
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
        inheritance: InheritanceController,
    ) -> None:
        self._cluster_uid = cluster_uid
        self._verdicts = verdicts
        self._addresses = addresses
        self._clashes = clashes
        self._inheritance = inheritance
        # Known from the first reconcile on; what changes before that is looked at then anyway.
        self._caches: SubnamespaceCaches | None = None
        self._wanted: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.subnamespaces(self._waker(wakes.by_subnamespace, own=True)),
            watched.tenants(self._waker(wakes.by_tenant)),
            watched.defaults(self._waker(wakes.by_defaults)),
            watched.runtime_classes(self._waker(wakes.by_runtime_class)),
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
        """Bring one child to what its Subnamespace says; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the status says what, and the queue tries again.
        """
        defaults: Cache[TenancyDefaults] = cluster.cache(TenancyDefaults.resource)
        caches = self._caches = SubnamespaceCaches(
            cluster.cache(Tenant.resource),
            cluster.cache(Subnamespace.resource),
            cluster.observed_caches(kind.resource for kind in CHILD_KINDS),
            self._wanted,
            defaults,
            sandbox_of(defaults.get(DEFAULTS), cluster.cache(RuntimeClass.resource)),
        )
        subnamespace = caches.subnamespaces.get(key)
        if subnamespace is None:
            await orphans.sweep(cluster, key, self._cluster_uid)
            cluster.forget(self.name, key)
            return None
        uid = subnamespace.metadata.uid
        inputs = gather(
            subnamespace,
            caches,
            self._verdicts.get(uid),
            cluster_uid=self._cluster_uid,
            now=cluster.clock.now(),
            around=self._addresses.current(cluster),
        )
        if subnamespace.metadata.deletion_timestamp:
            await ending.finish(cluster, inputs)
            return None
        term, problem = self._term(cluster, inputs)
        if term.is_expired and ending.may_cascade(inputs):
            cluster.recorder.say(subnamespace, EventKind.NORMAL, reasons.EXPIRED, f"deleted {key!r}, whose lease ended")
            await cluster.writer.delete(subnamespace)
            return None
        result = (
            ReconcileResult(outcome=Outcome(blocked=(problem,)))
            if problem is not None
            else await self._make(cluster, inputs)
        )
        if any(blocked.reason == reasons.NAMESPACE_EXISTS for blocked in result.outcome.blocked):
            caches.wanted[inputs.namespace] = key
            await orphans.sweep(cluster, key, self._cluster_uid)
        if result.waits and not (result.outcome.blocked and subnamespace.status.conditions):
            return RECHECK_SECONDS  # there is nothing to say yet
        await self._conclude(cluster, inputs, result, term, attempt)
        return RECHECK_SECONDS if result.waits else term.next_seconds

    def _term(self, cluster: Cluster, inputs: SubnamespaceInputs) -> tuple[LeaseState, Blocked | None]:
        try:
            return lease(inputs.subnamespace.spec.expires_at, cluster.clock.now()), checks.blocked(inputs)
        except InputError as error:
            return ENDLESS, Blocked(reason=reasons.INVALID_SPEC, message=f"spec.expiresAt: {error}")

    # -- making ---------------------------------------------------------------------------------

    async def _hold(self, cluster: Cluster, subnamespace: Subnamespace) -> bool:
        """Keep a Subnamespace until its namespace is gone; tell whether it is there to be kept.

        What was made for one that was deleted meanwhile would be nobody's, and stay for ever.
        """
        if FINALIZER not in subnamespace.metadata.finalizers:
            finalizers = [*subnamespace.metadata.finalizers, FINALIZER]
            await cluster.writer.metadata(subnamespace, {"finalizers": finalizers})
        held = cluster.cache(Subnamespace.resource).get(subnamespace.key)
        return held is not None and FINALIZER in held.metadata.finalizers

    async def _make(self, cluster: Cluster, inputs: SubnamespaceInputs) -> ReconcileResult:
        """Write what the child lacks: it and its limits, what it inherits, and last what lets people in."""
        subnamespace, tenant = inputs.subnamespace, inputs.tenant
        if tenant is None:
            return ReconcileResult(outcome=Outcome())
        verdict = inputs.verdict
        known = verdict is not None and verdict.generation >= subnamespace.metadata.generation
        limited = bool(tenant.spec.quota.hard)
        if (limited and inputs.bound is None and not known) or not await self._hold(cluster, subnamespace):
            return ReconcileResult(outcome=Outcome(), waits=True)
        try:
            children = desired.children(inputs, tenant)
        except (InputError, TerminalError) as error:
            return ReconcileResult(outcome=Outcome(error=error))
        first = [child for child in children if child.wave < tenantnamespace.WAVE_PEOPLE]
        wanted = {(child.object.resource, child.object.key) for child in children}
        inside = made_inside(inputs, cluster.observed_caches(kind.resource for kind in CHILD_KINDS))
        stale = [pair for pair in inside if (pair[0], pair[1].key) not in wanted]
        outcome = await cluster.writer.apply(
            compare(first, inputs.lookup, stale=stale, equivalent=cluster.writer.equivalent)
        )
        self._tell(cluster, inputs, outcome)
        if outcome.error is not None or outcome.blocked:
            return ReconcileResult(outcome=outcome)
        old = inputs.adopted_from
        if old is not None and old.status.namespace == inputs.namespace and not old.metadata.deletion_timestamp:
            await cluster.writer.delete(old)
        if limited and (verdict is None or not verdict.in_force):
            cluster.wake(TenantResourceQuota, tenant.metadata.name)
            # Where this process has not looked at the quota yet, what was said before stands.
            return ReconcileResult(outcome=outcome if verdict is None else _waiting(outcome), waits=True)
        last = [child for child in children if child.wave >= tenantnamespace.WAVE_PEOPLE]
        result = await self._let_in(cluster, inputs, last, outcome)
        done = result.outcome.error is None and not result.outcome.blocked
        moving = not known or (verdict is not None and verdict.blocked is None and not verdict.settled)
        # A changed share is on the way: what was said of the last one stands until the new one is in force.
        return msgspec.structs.replace(result, waits=True) if limited and done and moving else result

    async def _let_in(
        self, cluster: Cluster, inputs: SubnamespaceInputs, last: list[Child], outcome: Outcome
    ) -> ReconcileResult:
        """Bring what comes down from the parent, then let people in, or out."""
        tenant = inputs.tenant
        if tenant is None:
            return ReconcileResult(outcome=outcome)
        if inputs.is_early:
            # What is copied once, and not there yet, would be missing for good.
            return ReconcileResult(outcome=outcome, waits=True)
        inherited = await self._inherit(cluster, inputs)
        blind = inputs.subnamespace.spec.mode is Mode.SUBTENANT
        if isinstance(inherited.error, PASSING) or (blind and inherited.error is not None):
            # What it inherits may be what keeps others out: nobody is let in before. What a Subtenant gets of its
            # parent is there before its people are, for its parent not to put things beside theirs.
            return ReconcileResult(outcome=msgspec.structs.replace(outcome, error=inherited.error), inherited=inherited)
        people = await cluster.writer.apply(compare(last, inputs.lookup, equivalent=cluster.writer.equivalent))
        outcome = msgspec.structs.replace(people, done=(*outcome.done, *people.done))
        if outcome.error is None and not outcome.blocked:
            others = [binding for binding in inputs.bindings if INHERITED_FROM not in binding.labels]
            changes = suspension.edits(others, suspended=tenant.spec.suspended, ours=tenantnamespace.OWNER_BINDING)
            outcome = msgspec.structs.replace(outcome, error=await cluster.writer.edit(changes) or inherited.error)
        if tenant.spec.suspended:
            cluster.wake(Tenant, tenant.metadata.name)
        return ReconcileResult(outcome=outcome, inherited=inherited)

    async def _inherit(self, cluster: Cluster, inputs: SubnamespaceInputs) -> Inherited:
        namespace: Observed | None = cluster.cache(Namespace.resource).get(inputs.namespace)
        if namespace is None:  # it went as soon as it was made: the watch tells
            return Inherited(copied=inputs.subnamespace.status.copied)
        return await self._inheritance.inherit_all(cluster, inputs.subnamespace, namespace)

    def _tell(self, cluster: Cluster, inputs: SubnamespaceInputs, outcome: Outcome) -> None:
        """Wake those for whom a new or moved namespace is news."""
        tenant = inputs.tenant
        if tenant is None or not any(step.resource == Namespace.resource for step in outcome.done):
            return
        cluster.wake(TenantResourceQuota, tenant.metadata.name)
        if inputs.subnamespace.spec.mode is Mode.SUBTENANT and clusternetworkpolicy.has_zones(tenant):
            cluster.wake(Tenant, tenant.metadata.name)
        # One that an administrator has given is bound already when it comes here.
        taken = inputs.bound is None and inputs.adoptee is not None
        if taken or any(TREE_SUFFIX in path for step in outcome.done for path in step.differs):
            for key in wakes.below(self._caches, inputs.namespace) if self._caches is not None else ():
                cluster.wake(Subnamespace, key)

    # -- saying ---------------------------------------------------------------------------------

    async def _conclude(
        self, cluster: Cluster, inputs: SubnamespaceInputs, result: ReconcileResult, term: LeaseState, attempt: int
    ) -> None:
        subnamespace = inputs.subnamespace
        current = cluster.cache(Subnamespace.resource).get(subnamespace.key)
        if current is None or current.metadata.uid != subnamespace.metadata.uid:
            return
        now = rfc3339(cluster.clock.now())
        written = status.compute(
            inputs,
            result.outcome,
            inherited=result.inherited,
            lease=term,
            attempt=attempt,
            now=now,
            clashes=self._clashes.inside(inputs.namespace),
        )
        if written != subnamespace.status:
            await cluster.writer.status(msgspec.structs.replace(current, status=written))
        clashes = result.inherited.blocked if result.inherited is not None else ()
        announce(cluster.recorder, subnamespace, result.outcome, clashes)
        warn_of_end(cluster.recorder, subnamespace, written.conditions)
        if isinstance(result.outcome.error, ApiError):
            raise result.outcome.error


def _waiting(outcome: Outcome) -> Outcome:
    waits = Blocked(reason=reasons.PROGRESSING, message="its share of the quota is on the way", passing=True)
    return msgspec.structs.replace(outcome, blocked=(waits,))
