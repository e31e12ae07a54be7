"""Passes changes of inherited objects on to children, and puts copies back that were edited by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Inheritance, Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.controllers import watched
from tenantry.controllers.inheritance.desired import Inherited, is_closed, is_copy
from tenantry.controllers.inheritance.kinds import Kinds
from tenantry.controllers.inheritance.propagation import BY_INHERITANCE, Propagation, inheritance_keys, source_key
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Inheritable, Observed
from tenantry.world import inheritance

KINDS = "kinds"
"""The key under which the controller looks at which kinds there are."""

REOPENED_SECONDS = 0.25
"""When to look again at a binding that the end of a suspension is about to open; each time twice as long."""


class InheritanceController:
    """Reconciles objects that may be inherited; the key is `kind|namespace|name`, the object's own."""

    name = "inheritance"
    kind = Inheritance

    def __init__(self) -> None:
        # Known from the first child on; before that no namespace inherits.
        self._propagation: Propagation | None = None
        self._cluster: Cluster | None = None
        # Which kinds the children were last told of.
        self._told: object = None
        # Bindings that are waited for, and how often they were looked at.
        self._awaited: dict[str, int] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; the other kinds are watched from the first child on."""
        known = [kind for kind in inheritance.KINDS if kind.owned != inheritance.WHOLE]
        return [
            watched.subnamespaces(_no_keys),
            watched.watch(Namespace.resource, _no_keys),
            watched.defaults(lambda _: [KINDS]),
            *(self._watch(kind) for kind in known),
        ]

    def _watch(self, resource: Resource) -> Watch:
        shared = watched.watch(resource, self._waker(resource))
        return msgspec.structs.replace(
            shared,
            selectors=inheritance.selectors_of(resource),
            indexes={**(shared.indexes or {}), BY_INHERITANCE: inheritance_keys},
        )

    def _waker(self, resource: Resource) -> Callable[[Change[Any]], Iterable[str]]:
        def keys(change: Change[Observed]) -> Iterable[str]:
            # What changed before the first child came is brought to it.
            if self._propagation is None or not _is_news(change):
                return ()
            value = change.after or change.before
            if value is None or not self._propagation.concerns(value.namespace):
                return ()
            return [source_key(resource, value.namespace, value.name)]

        return keys

    def _of(self, cluster: Cluster) -> Propagation:
        if self._propagation is None or self._cluster is not cluster:
            self._cluster = cluster
            kinds = Kinds(cluster, self._watch, self.name)
            self._told = kinds.told
            self._propagation = Propagation(cluster, kinds)
        return self._propagation

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one object where it should be.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        if key == KINDS:
            return await self._look_for_kinds(cluster)
        propagation = self._of(cluster)
        kind, namespace, name = key.split("|", 2)
        await propagation.kinds.get()
        resource = propagation.kinds.find(kind)
        if resource is None:
            cluster.forget(self.name, key)
            return None
        child = propagation.child(namespace)
        if child is not None and not propagation.is_going(child.parent):
            await propagation.propagate(resource, name, [child])
        if propagation.is_going(namespace):
            cluster.forget(self.name, key)
            return None
        await propagation.propagate(resource, name, propagation.children(namespace))
        cache: Cache[Observed] = cluster.cache(resource)
        source = cache.get(f"{namespace}/{name}")
        if source is None:
            self._awaited.pop(key, None)
            cluster.forget(self.name, key)
            return None
        # The end of a suspension reaches parent and children in any order, and what it opens is no news.
        is_open = resource != RoleBinding.resource or not is_closed(source)
        if is_open or all(child.is_suspended for child in propagation.children(namespace)):
            self._awaited.pop(key, None)
            return None
        # It may never be opened: a user who may write the binding may also write an invalid annotation.
        times = self._awaited[key] = self._awaited.get(key, -1) + 1
        return REOPENED_SECONDS * 2 ** min(times, 8)

    async def _look_for_kinds(self, cluster: Cluster) -> float | None:
        """Find out which kinds there are, say so, and tell all children where that changed."""
        kinds = self._of(cluster).kinds
        await kinds.look()
        before, self._told = self._told, kinds.told
        # Not what the kinds were a moment ago: a child that was made meanwhile may have looked first. And before the
        # status is written, which others write too: after a conflict nothing is new any more.
        if before != kinds.told:
            for subnamespace in cluster.cache(Subnamespace.resource):
                cluster.wake(Subnamespace, subnamespace.key)
        defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
        if defaults is not None:
            written = kinds.status(defaults, rfc3339(cluster.clock.now()))
            if written != defaults.status:
                await cluster.writer.status(msgspec.structs.replace(defaults, status=written))
        return kinds.retry_seconds

    async def inherit_all(self, cluster: Cluster, subnamespace: Subnamespace, namespace: Observed) -> Inherited:
        """Bring everything of the parent into one child; nothing is asked or written if nothing differs.

        Args:
            cluster: It runs this controller.
            subnamespace: The child as it should be.
            namespace: The child's namespace.

        Raises:
            TimeoutError: The API server does not list a kind in time.
        """
        propagation = self._of(cluster)
        inherited = await propagation.inherit_all(subnamespace, namespace)
        if propagation.kinds.retry_seconds is not None:
            cluster.wake(Inheritance, KINDS)
        return inherited


def _no_keys(_: Change[Any]) -> Iterable[str]:
    return ()


def _is_news(change: Change[Observed]) -> bool:
    """Return whether a change can matter to a namespace that inherits: not if it only concerns Tenantry's objects."""
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
    return value.labels.get(marks.MANAGED_BY) == marks.MANAGER and not is_copy(value)


def _likeness(value: Observed) -> bytes:
    return value.likeness if isinstance(value, Inheritable) else b""
