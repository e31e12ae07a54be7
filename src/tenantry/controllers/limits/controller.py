"""Tracks the limits of all tenants, and reconciles every namespace after they change.

A new custom kind that owners may create adds a key to the ResourceQuota of counts in every tenant's namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api.kubernetes import OwnerRole
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.frozeninput import CHANGED, FrozenInputController
from tenantry.controllers.limits.gather import LimitCache
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.crds import CrdState
from tenantry.world.objectcounts import ObjectLimits


class LimitController(FrozenInputController[ObjectLimits]):
    """Reconciles tenants and Subnamespaces after a change of limits; there is one key."""

    name = "limits"
    kind = LimitCache

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.owner_role(_granted), watched.definitions(_defined), watched.defaults(_limited)]

    def _requeue(self, cluster: Cluster, before: ObjectLimits, after: ObjectLimits) -> None:  # noqa: ARG002 - the contract
        for kind in (Tenant, Subnamespace):
            found = cluster.cache_of(kind.resource)
            for each in found if found is not None else ():
                cluster.wake(kind, each.key)


def _granted(change: Change[OwnerRole]) -> Iterable[str]:
    before, after = change.before, change.after
    return () if before is not None and after is not None and before.rules == after.rules else [CHANGED]


def _defined(change: Change[CrdState]) -> Iterable[str]:
    # The scope of a CRD never changes.
    return [CHANGED] if change.before is None or change.after is None else ()


def _limited(change: Change[TenancyDefaults]) -> Iterable[str]:
    return [CHANGED] if _limits_in(change.before) != _limits_in(change.after) else ()


def _limits_in(defaults: TenancyDefaults | None) -> object:
    spec = defaults.spec if defaults is not None else None
    return (spec.namespaces, spec.object_counts, spec.ephemeral_storage) if spec is not None else None
