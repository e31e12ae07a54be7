"""The state that the controllers of Subnamespaces and of inheritance share, and the glue that both of them use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Inheritance, Subnamespace
from tenantry.controllers import watched
from tenantry.controllers.inheritance import desired, status
from tenantry.controllers.inheritance.gather import (
    BY_INHERITANCE,
    ChildNamespace,
    InheritanceInputs,
    child_of,
    concerns,
    gather,
    gather_source,
    has_children,
    inheritance_keys,
    is_copy,
    is_going,
)
from tenantry.controllers.inheritance.kinds import Kinds
from tenantry.controllers.inheritance.sources import Sources
from tenantry.controllers.inheritance.status import Inherited
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Inheritable, Observed
from tenantry.engine.plan import Plan
from tenantry.world import inheritance

NAME = "inheritance"
"""The controller that is woken by changes of inherited objects."""

KINDS = "kinds"
"""The key that stands for the set of kinds that can be inherited."""

AT_ONCE = 64
"""How many children are planned at once: their own children are woken after each batch."""


def source_key(resource: Resource, namespace: str, name: str) -> str:
    """Return the key under which the controller knows an object."""
    return f"{resource.full_name}|{namespace}|{name}"


class Propagation:
    """Which kinds a cluster's children inherit, and the copying of their objects.

    The Subnamespace controller brings every object into a new child. The inheritance controller follows changes.
    """

    def __init__(self) -> None:
        # Known from the first child on: before that, no kind needs to be watched for inheritance.
        self._cluster: Cluster | None = None
        self._kinds: Kinds | None = None
        self._sources = Sources()

    def kinds(self, cluster: Cluster) -> Kinds:
        """Return the kinds that can be inherited."""
        if self._kinds is None or self._cluster is not cluster:
            self._cluster, self._kinds = cluster, Kinds(cluster, self.watch, NAME)
        return self._kinds

    def watch(self, resource: Resource) -> Watch:
        """Return how a kind that can be inherited is watched."""
        shared = watched.watch(resource, self._waker(resource))
        return msgspec.structs.replace(
            shared,
            selectors=inheritance.selectors_of(resource),
            indexes={**(shared.indexes or {}), BY_INHERITANCE: inheritance_keys},
        )

    def _waker(self, resource: Resource) -> Callable[[Change[Any]], Iterable[str]]:
        def keys(change: Change[Observed]) -> Iterable[str]:
            value = change.after or change.before
            # A child that is created later receives what changed before it. As long as a kind is not in step, every
            # child that exists waits for it, and then gets every copy: a second reconciler would make the same ones.
            if self._cluster is None or self._kinds is None or resource not in self._kinds.served:
                return ()
            if value is None or not is_news(change):
                return ()
            is_concerned = concerns(self._cluster, value.namespace)
            return [source_key(resource, value.namespace, value.name)] if is_concerned else ()

        return keys

    async def inherit_all(self, cluster: Cluster, subnamespace: Subnamespace, namespace: Observed) -> Inherited:
        """Bring every object of the parent into one child. If nothing differs, it sends no request.

        Args:
            cluster: It runs the controllers.
            subnamespace: The child as it should be.
            namespace: The child's namespace.

        Raises:
            TimeoutError: The API server does not list a kind in time.
        """
        copied = subnamespace.status.copied
        kinds = self.kinds(cluster)
        served = await kinds.get()
        if kinds.retry_seconds is not None:
            cluster.wake(Inheritance, KINDS)
        missing = desired.due(served, subnamespace)
        error = await self._look(cluster, missing, subnamespace.metadata.namespace)
        # Without the list, a source could be missed, and the kind would be recorded as copied.
        if error is not None:
            return Inherited(copied=copied, error=error)
        # The caller's namespace may be older than a suspension, which would be undone in the copies.
        current = cluster.lookup(Namespace.resource, namespace.name) or namespace
        child = ChildNamespace(subnamespace=subnamespace, namespace=current)
        if is_going(cluster, child.parent) or current.deleting:
            return Inherited(copied=copied)
        inputs = self._inputs(cluster, child)
        plan, full = desired.plan(inputs), desired.crowded(inputs)
        outcome = await _carry_out(cluster, inputs, plan)
        return status.inherited(inputs, plan, outcome, full)

    async def _look(self, cluster: Cluster, kinds: Sequence[Resource], namespace: str) -> ApiError | None:
        """Bring a namespace, and the caches, up to date with what its children are about to copy once.

        A copy that the namespace itself still lacks would be missing in its children for good.

        Returns:
            The first refused list or temporary failure.
        """
        above = child_of(cluster, namespace)
        followed = desired.followed(kinds, above.subnamespace) if above is not None else []
        if above is not None and followed and above.subnamespace.status.namespace:
            error = await self._look(cluster, followed, above.parent) or await self._catch_up(cluster, above)
            if error is not None:
                return error
        return await self._sources.look(cluster, kinds, namespace)

    async def _catch_up(self, cluster: Cluster, child: ChildNamespace) -> ApiError | None:
        """Bring what the caches have of a parent into a child that has inherited before; return a temporary failure."""
        if is_going(cluster, child.parent):
            return None
        inputs = self._inputs(cluster, child)
        return _failure(await _carry_out(cluster, inputs, desired.plan(inputs)))

    def _inputs(self, cluster: Cluster, child: ChildNamespace) -> InheritanceInputs:
        kinds = self.kinds(cluster)
        return gather(
            child,
            cluster.observed_caches(kinds.served),
            kinds.problems(child.subnamespace),
            lookup=cluster.lookup,
            is_like=cluster.writer.is_like,
        )

    async def propagate(
        self, cluster: Cluster, resource: Resource, name: str, children: Iterable[ChildNamespace]
    ) -> None:
        """Keep the copies of one object in sync, and have children reconciled whose status must report something.

        Raises:
            ApiError: The first temporary failure, after all children were tried. A refusal is left to the child.
        """
        waiting = iter(children)
        first: ApiError | None = None
        while some := list(islice(waiting, AT_ONCE)):
            error = await _propagate(cluster, resource, name, some)
            first = first or error
            # Children whose copies are right cost no request: other reconciles must get their turn.
            await asyncio.sleep(0)
        if first is not None:
            raise first


async def _propagate(
    cluster: Cluster, resource: Resource, name: str, children: Sequence[ChildNamespace]
) -> ApiError | None:
    inputs = gather_source(cluster, resource, name, children)
    for child in status.concerned(inputs):
        cluster.wake(Subnamespace, child.subnamespace.key)
    # Statuses first: the wake-ups are for problems that this plan does not solve.
    outcome = await cluster.writer.apply(desired.plan_source(inputs))
    _wake_below(cluster, outcome)
    keys = {child.name: child.subnamespace.key for child in children}
    for step, result in outcome.copied:
        if result is not None and not (isinstance(result, ApiError) and _is_temporary(result)):
            cluster.wake(Subnamespace, keys[step.namespace])
    return _failure(outcome)


async def _carry_out(cluster: Cluster, inputs: InheritanceInputs, plan: Plan) -> Outcome:
    """Carry out the plan of one child."""
    if not inputs.child.is_suspended:
        # The end of a suspension is about to open these, which no watch reports: it is a write of our own.
        for resource, source in desired.closed(inputs):
            cluster.wake(Inheritance, source_key(resource, source.namespace, source.name))
    outcome = await cluster.writer.apply(plan)
    _wake_below(cluster, outcome)
    return outcome


def _failure(outcome: Outcome) -> ApiError | None:
    """Return the first temporary failure; a refusal is left to the child."""
    errors = (outcome.error, *(result for _, result in outcome.copied))
    return next((error for error in errors if isinstance(error, ApiError) and _is_temporary(error)), None)


def _is_temporary(error: ApiError) -> bool:
    return not isinstance(error, Forbidden | Invalid)


def _wake_below(cluster: Cluster, outcome: Outcome) -> None:
    """Have copies passed on to the children of the namespaces that received them: own writes wake no reconciler."""
    for step, result in outcome.copied:
        if result is None and has_children(cluster, step.namespace):
            cluster.wake(Inheritance, source_key(step.resource, step.namespace, step.name))


def is_news(change: Change[Observed]) -> bool:
    """Return whether a change can matter to a child: not if it only concerns objects that Tenantry created."""
    before, after = change.before, change.after
    if (
        before is not None
        and after is not None
        and watched.is_marked_same(before, after)
        and _likeness(before) == _likeness(after)
    ):
        return False
    return any(
        value is not None and (isinstance(value, Inheritable) or not _is_made(value)) for value in (before, after)
    )


def _is_made(value: Observed) -> bool:
    return value.labels.get(MANAGED_BY) == MANAGER and not is_copy(value)


def _likeness(value: Observed) -> bytes:
    return value.likeness if isinstance(value, Inheritable) else b""
