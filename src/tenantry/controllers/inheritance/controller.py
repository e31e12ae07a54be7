"""Follows changes of inherited objects, and of the kinds that can be inherited: the glue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.subnamespace import Inheritance, Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.controllers import watched
from tenantry.controllers.inheritance import status
from tenantry.controllers.inheritance.desired import is_closed
from tenantry.controllers.inheritance.gather import child_of, children, is_going
from tenantry.controllers.inheritance.propagation import KINDS, NAME, Propagation
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.world import inheritance

REOPENED_SECONDS = 0.25
"""When to look again at a binding that the end of a suspension is about to open; each time twice as long."""


class InheritanceController:
    """Reconciles objects that may be inherited; the key is `kind|namespace|name`, the object's own.

    Args:
        propagation: Shared with the Subnamespace controller.
    """

    name = NAME
    kind = Inheritance

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        # By key of a binding that is expected to be opened: how often it was looked at.
        self._awaited: dict[str, int] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; the other kinds are watched from the first child on."""
        known = [kind for kind in inheritance.KINDS if kind.owned != inheritance.WHOLE]
        return [
            watched.subnamespaces(_no_keys),
            watched.watch(Namespace.resource, _no_keys),
            watched.defaults(lambda _: [KINDS]),
            *(self._propagation.watch(kind) for kind in known),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring the copies of one object in sync; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        if key == KINDS:
            return await self._look_for_kinds(cluster)
        kinds = self._propagation.kinds(cluster)
        kind, namespace, name = key.split("|", 2)
        await kinds.get()
        resource = kinds.find(kind)
        if resource is None:
            cluster.forget(self.name, key)
            return None
        child = child_of(cluster, namespace)
        if child is not None and not is_going(cluster, child.parent):
            await self._propagation.propagate(cluster, resource, name, [child])
        if is_going(cluster, namespace):
            cluster.forget(self.name, key)
            return None
        await self._propagation.propagate(cluster, resource, name, children(cluster, namespace))
        source: Observed | None = cluster.lookup(resource, f"{namespace}/{name}")
        if source is None:
            self._awaited.pop(key, None)
            cluster.forget(self.name, key)
            return None
        # The end of a suspension reaches parent and children in any order, and the opened binding wakes no reconciler.
        is_open = resource != RoleBinding.resource or not is_closed(source)
        if is_open or all(child.is_suspended for child in children(cluster, namespace)):
            self._awaited.pop(key, None)
            return None
        # It may never be opened: a user who may write the binding may also write an invalid annotation.
        times = self._awaited[key] = self._awaited.get(key, -1) + 1
        return REOPENED_SECONDS * 2 ** min(times, 8)

    async def _look_for_kinds(self, cluster: Cluster) -> float | None:
        """Find the kinds that can be inherited, and reconcile all children if these have changed."""
        kinds = self._propagation.kinds(cluster)
        await kinds.look()
        # Compared with the last report to children: one that was created meanwhile may have looked first. And before
        # the status is written, which other clients write too: after a conflict, nothing would be new any more.
        if kinds.take_news():
            for subnamespace in cluster.cache(Subnamespace.resource):
                cluster.wake(Subnamespace, subnamespace.key)
        defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
        if defaults is not None:
            written = status.of_defaults(defaults, kinds.missing, rfc3339(cluster.clock.now()))
            if written != defaults.status:
                await cluster.writer.status(msgspec.structs.replace(defaults, status=written))
        return kinds.retry_seconds


def _no_keys(_: Change[Any]) -> Iterable[str]:
    return ()
