"""The limits that the plans of tenants use now, read from the caches."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.kubernetes import OwnerRole
from tenantry.api.marks import OWNER_ROLE
from tenantry.api.tenancydefaults import NAME, TenancyDefaults, TenancyDefaultsSpec
from tenantry.controllers.frozeninput import FrozenInput
from tenantry.engine.cluster import CRDS, Cluster
from tenantry.engine.crds import CrdState
from tenantry.world.objectcounts import GrantedKinds, ObjectLimits, kinds, limits

_CREATE = frozenset({"create", "*"})


class LimitCache(FrozenInput[ObjectLimits]):
    """The limits that plans use now. The limit controller and those of namespaces share it."""

    def __init__(self) -> None:
        super().__init__(read)


def read(cluster: Cluster) -> ObjectLimits:
    """Read the limits from the caches."""
    # Another controller watches these kinds: a runtime without it has no such caches.
    roles, crds = cluster.cache_of(OwnerRole.resource), cluster.cache_of(CRDS)
    defaults = cluster.cache_of(TenancyDefaults.resource)
    return object_limits(
        defaults.get(NAME) if defaults is not None else None,
        roles.get(OWNER_ROLE) if roles is not None else None,
        crds if crds is not None else (),
    )


def object_limits(defaults: TenancyDefaults | None, role: OwnerRole | None, crds: Iterable[CrdState]) -> ObjectLimits:
    """Return the limits of all tenants.

    Args:
        defaults: The TenancyDefaults; None if there are none.
        role: The role of owners; None before the installation.
        crds: The cluster's CRDs.
    """
    rules = (role.rules if role is not None else None) or ()
    granted = [GrantedKinds(rule.api_groups, rule.resources) for rule in rules if _CREATE & set(rule.verbs)]
    spec = defaults.spec if defaults is not None else TenancyDefaultsSpec()
    return limits(
        kinds(granted, (crd.key for crd in crds if crd.namespaced)),
        spec.object_counts.core,
        spec.object_counts.child,
        disk=spec.ephemeral_storage,
        max_count=spec.namespaces.max_count,
        max_depth=spec.namespaces.max_depth,
    )
