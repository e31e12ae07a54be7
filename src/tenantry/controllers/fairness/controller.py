"""Keeps the priority levels as TenancyDefaults say: one for all tenants, and those of at most four named ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError
from tenantry.api.fairness import Fairness
from tenantry.api.flowcontrol import FlowSchema, FlowSubject, PriorityLevelConfiguration
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import OwnerReference, Resource
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.fairness import desired, status
from tenantry.controllers.watched import BY_TENANT
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import compare

ALL = "levels"
"""The one key: everything is looked at together."""

LOOK_AGAIN_SECONDS = 15.0
"""How often to look for new namespaces of tenants that have a level of their own: our own writes wake nobody."""

KINDS = (PriorityLevelConfiguration.resource, FlowSchema.resource)

log = logging.getLogger(__name__)


class FairnessController:
    """Reconciles priority levels and FlowSchemas; the key is always `ALL`."""

    name = "fairness"
    kind = FlowSchema

    def __init__(self) -> None:
        self._reserved: frozenset[str] = frozenset()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            *(watched.watch(resource, _ours) for resource in KINDS),
            watched.defaults(lambda _: [ALL]),
            watched.tenants(self._tenant_keys),
            watched.watch(Namespace.resource, lambda _: ()),
        ]

    def _tenant_keys(self, change: Change[Tenant]) -> Iterable[str]:
        found = change.after or change.before
        return [ALL] if found is not None and found.metadata.name in self._reserved else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - there is one key
        """Bring the levels to what they should be; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        defaults = cast("TenancyDefaults | None", cluster.cache(TenancyDefaults.resource).get(DEFAULTS))
        fairness = defaults.spec.fairness if defaults is not None else Fairness()
        self._reserved = frozenset(each.tenant for each in fairness.reserved)
        members = {name: _members(cluster, name) for name in self._reserved}
        children = desired.children(fairness, members, _owner(defaults))
        wanted = {(child.object.resource, child.object.key) for child in children}
        stale = [
            (resource, found)
            for resource in KINDS
            for found in _cache(cluster, resource)
            if _is_made(found) and (resource, found.key) not in wanted
        ]
        outcome = await cluster.writer.apply(
            compare(
                children,
                lambda resource, name: _cache(cluster, resource).get(name),
                stale=stale,
                equivalent=cluster.writer.equivalent,
            )
        )
        missing = [name for name in self._reserved if cluster.cache(Tenant.resource).get(name) is None]
        if defaults is not None and not defaults.metadata.deletion_timestamp:
            written = status.compute(defaults, missing, rfc3339(cluster.clock.now()))
            if written != defaults.status:
                await cluster.writer.status(msgspec.structs.replace(defaults, status=written))
        for blocked in outcome.blocked:
            log.warning("a priority level is not as it should be", extra={"problem": blocked.message})
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        return LOOK_AGAIN_SECONDS if self._reserved or outcome.blocked else None


def _members(cluster: Cluster, name: str) -> list[FlowSubject]:
    """Return whom a tenant's own level is for; nobody where there is no such tenant.

    Not the owners of Subnamespaces: whoever makes one could send others' requests to the tenant's level.
    """
    tenant = cast("Tenant | None", cluster.cache(Tenant.resource).get(name))
    if tenant is None or tenant.metadata.deletion_timestamp:
        return []
    namespaces = [found.name for found in _cache(cluster, Namespace.resource).by_index(BY_TENANT, name)]
    return desired.members_of(tenant.spec.owners, namespaces)


def _owner(defaults: TenancyDefaults | None) -> OwnerReference | None:
    if defaults is None or defaults.metadata.deletion_timestamp:
        return None
    return OwnerReference(
        api_version=TenancyDefaults.resource.api_version,
        kind=TenancyDefaults.resource.kind,
        name=defaults.metadata.name,
        uid=defaults.metadata.uid,
        controller=True,
    )


def _cache(cluster: Cluster, resource: Resource) -> Cache[Observed]:
    return cluster.cache(resource)


def _is_made(found: Observed) -> bool:
    """Tell whether something is of those that come and go with what TenancyDefaults say."""
    named = found.name == desired.TRUSTED or found.name.startswith(desired.RESERVED_PREFIX)
    return named and found.labels.get(marks.MANAGED_BY) == marks.MANAGER and bool(found.owner_uid)


def _ours(change: Change[Any]) -> Iterable[str]:
    found = change.after or change.before
    return [ALL] if found is not None and found.name.startswith("tenantry-") else ()
