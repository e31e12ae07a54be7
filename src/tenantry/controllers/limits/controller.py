"""Tracks the limits of all tenants, and reconciles every namespace after they change.

A new custom kind that owners may create adds a key to the ResourceQuota of counts in every tenant's namespace. Changes
within `WINDOW_SECONDS` are collected, because operators are installed with many kinds at once. This controller writes
nothing itself, so it has no plan: the plans of the reconciled namespaces have the new limits among their inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api.kubernetes import OwnerRole
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.limits.gather import LimitCache
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.crds import CrdState

WINDOW_SECONDS = 2.0
"""How long changes are collected."""

_ALL = "all"


class LimitController:
    """Reconciles tenants and Subnamespaces after a change of limits; there is one key.

    Args:
        limits: Shared with the controllers of namespaces.
    """

    name = "limits"
    kind = LimitCache

    def __init__(self, limits: LimitCache) -> None:
        self._limits = limits
        # The end of the delay, by the monotonic clock; None while no change is waiting.
        self._due: float | None = None

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.owner_role(_granted), watched.definitions(_defined), watched.defaults(_limited)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the contract
        """Requeue every tenant and Subnamespace if the limits have changed, once the delay is over."""
        now = cluster.clock.monotonic()
        if self._due is None:
            self._due = now + WINDOW_SECONDS
        if now < self._due:
            return self._due - now
        self._due = None
        before, after = self._limits.renew(cluster)
        if before == after:
            return None
        for kind in (Tenant, Subnamespace):
            found = cluster.cache_of(kind.resource)
            for each in found if found is not None else ():
                cluster.wake(kind, each.key)
        return None


def _granted(change: Change[OwnerRole]) -> Iterable[str]:
    before, after = change.before, change.after
    return () if before is not None and after is not None and before.rules == after.rules else [_ALL]


def _defined(change: Change[CrdState]) -> Iterable[str]:
    # The scope of a CRD never changes.
    return [_ALL] if change.before is None or change.after is None else ()


def _limited(change: Change[TenancyDefaults]) -> Iterable[str]:
    return [_ALL] if _limits_in(change.before) != _limits_in(change.after) else ()


def _limits_in(defaults: TenancyDefaults | None) -> object:
    return (defaults.spec.namespaces, defaults.spec.object_counts) if defaults is not None else None
