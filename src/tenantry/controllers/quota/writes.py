"""Carries out moves of shares: every write names the resourceVersion that it was decided on.

What fails is read anew, the TenantResourceQuota last; the next moves are decided on that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import Resource, object_key
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.quota import desired
from tenantry.controllers.quota.index import Index, QuotaCaches, share_quota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, ObservedQuota, observe
from tenantry.engine.request import ApiRequest
from tenantry.world.shares.amounts import ShareQuota
from tenantry.world.shares.batches import (
    BatchStep,
    CreateQuota,
    EnforceQuota,
    RelistTree,
    RereadTenantQuota,
    UpdateQuota,
    UpdateTenantQuota,
)

AT_ONCE = 24
"""How many requests are under way for one tenant."""

MANY = 8
"""From how many on a list costs less than asking for each."""

_decode_tenant_quota = msgspec.json.Decoder(TenantResourceQuota)
_PASSING = (Conflict, NotFound, Forbidden)
"""Another client wrote, or the namespace is being deleted: reading again shows which."""


class ResourceQuotaWriter:
    """Writes for one tenant.

    Args:
        cluster: Its client signs the writes.
        tenant: Whose shares are moved.
        index: Is told of every answer.
    """

    def __init__(self, cluster: Cluster, tenant: Tenant, index: Index) -> None:
        self._cluster = cluster
        self._caches = QuotaCaches.of(cluster)
        self._tenant = tenant
        self._index = index
        self._selectors = {"labelSelector": f"{MANAGED_BY}={MANAGER},{TENANT}={tenant.metadata.name}"}
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def carry_out(self, steps: Sequence[BatchStep]) -> int:
        """Do all of them at once, and return how many did not succeed; what they were about was read anew then.

        Raises:
            ApiError: One failed for a reason that reading does not clear up.
        """
        await self._verify([step for step in steps if isinstance(step, UpdateQuota) and step.grows])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(step)) for step in steps]
        results = [task.result() for task in tasks]
        for result in results:
            if isinstance(result, ApiError):
                raise result
        return sum(result is False for result in results)

    async def _result(self, step: BatchStep) -> bool | ApiError:
        """Return whether a step succeeded, or its error: the other steps go on."""
        try:
            return await self._carry_out_one(step)
        except ApiError as error:
            return error

    async def _carry_out_one(self, step: BatchStep) -> bool:
        async with self._limit:
            try:
                match step:
                    case CreateQuota():
                        return await self._create_quota(step)
                    case UpdateQuota():
                        return await self._update_quota(step)
                    case EnforceQuota():
                        await self._write(step.namespace, desired.enforcement(step))
                    case UpdateTenantQuota():
                        await self._write_tenant_quota(step)
                    case RereadTenantQuota() | RelistTree():
                        raise TypeError(f"{step} is no write")
            except _PASSING as error:
                cleared = await self._look_again(step)
                if isinstance(error, Forbidden) and not cleared:
                    raise
                return False
        return True

    # -- ResourceQuotas ---------------------------------------------------------------------------

    async def _create_quota(self, step: CreateQuota) -> bool:
        try:
            await self._write(step.namespace, desired.creation(self._tenant, step))
        except AlreadyExists:
            # Ours without our labels, which no cache shows; or created by another client meanwhile.
            found = observe(
                ResourceQuota.resource, await self._cluster.live.read(ResourceQuota.resource, step.namespace, QUOTA)
            )
            patch: dict[str, Any] = {
                "metadata": {"labels": desired.labels(self._tenant), "resourceVersion": str(found.version)}
            }
            asked = request.patch(ResourceQuota.resource, step.namespace, QUOTA, patch)
            await self._write(step.namespace, asked)
        return True

    async def _update_quota(self, step: UpdateQuota) -> bool:
        if step.grows and not await self._is_in(step.quota.uid, step.namespace, step.uid):
            return False
        try:
            quota = await self._write(step.namespace, desired.update(self._tenant, step))
        except Invalid:
            # It has scopes, which never change: made anew, it counts everything.
            await self._cluster.writer.remove(ResourceQuota.resource, step.namespace, QUOTA, uid=step.quota.uid)
            await self._look_again(step)
            return False
        if not quota.is_enforced:
            await self._write(step.namespace, desired.enforcement(EnforceQuota(step.namespace, quota)))
        return True

    async def _verify(self, updates: Sequence[UpdateQuota]) -> None:
        """See in one request which ResourceQuotas are in the namespaces that are meant; each alone costs one more."""
        unknown = [update for update in updates if self._index.verified.get(update.quota.uid) != update.uid]
        if len(unknown) < MANY:
            return
        namespaces = await self._cluster.live.list(Namespace, selectors=self._selectors)
        uids = {found.metadata.name: found.metadata.uid for found in namespaces}
        for update in unknown:
            if uids.get(update.namespace) == update.uid:
                self._index.verified[update.quota.uid] = update.uid

    async def _is_in(self, quota_uid: str, namespace: str, uid: str) -> bool:
        """Tell whether a ResourceQuota is in the namespace of a uid: names come again, uids do not."""
        if self._index.verified.get(quota_uid) != uid:
            data = await self._cluster.live.read(Namespace.resource, "", namespace)
            found = observe(Namespace.resource, data)
            if found.uid != uid:
                self._learn(Namespace.resource, found)
                self._index.read_namespace(namespace)
                return False
            self._index.verified[quota_uid] = uid
        return True

    async def _write(self, namespace: str, asked: ApiRequest) -> ShareQuota:
        """Send a write, and note in the tree what the server stored."""
        found = cast("ObservedQuota", await self._cluster.writer.own(asked, quiet=True))
        quota = share_quota(found)
        self._index.tree.put_quota(namespace, quota)
        return quota

    # -- the TenantResourceQuota ------------------------------------------------------------------

    async def create_tenant_quota(self) -> None:
        """Make the tenant's TenantResourceQuota; one that is there already is read."""
        try:
            await self._cluster.writer.create(desired.new_tenant_quota(self._tenant), quiet=True)
        except AlreadyExists:
            await self._read_tenant_quota()

    async def adopt_tenant_quota(self, tenant_quota: TenantResourceQuota) -> None:
        """Make the tenant the owner of a TenantResourceQuota that another client created."""
        metadata = msgspec.to_builtins(desired.new_tenant_quota(self._tenant))["metadata"]
        with suppress(Conflict):
            await self._cluster.writer.metadata(
                tenant_quota, {key: metadata[key] for key in ("labels", "ownerReferences")}
            )

    async def _write_tenant_quota(self, step: UpdateTenantQuota) -> None:
        tenant_quota = self._caches.tenant_quotas.get(self._tenant.metadata.name)
        if tenant_quota is None or tenant_quota.version != step.tenant_quota.version:
            raise Conflict("the TenantResourceQuota has changed", status=409)
        await self._cluster.writer.status(desired.written_ahead(tenant_quota, step))
        written = self._caches.tenant_quotas.get(self._tenant.metadata.name)
        if written is not None and written.version > tenant_quota.version:
            self._index.planner.wrote(step)
        else:
            await self._read_tenant_quota()  # it was deleted

    async def _read_tenant_quota(self) -> None:
        name = self._tenant.metadata.name
        known = self._caches.tenant_quotas.get(name)
        try:
            data = await self._cluster.live.read(TenantResourceQuota.resource, "", name)
        except NotFound:
            if known is not None:
                self._caches.tenant_quotas.forget(name, known.version)
            return
        self._caches.tenant_quotas.put(_decode_tenant_quota.decode(data))

    # -- reading ----------------------------------------------------------------------------------

    async def reread(self) -> None:
        """Read the TenantResourceQuota from the server."""
        await self._read_tenant_quota()

    async def reload(self) -> None:
        """Read the tenant's namespaces and ResourceQuotas from the server into the caches."""
        for resource in (Namespace.resource, ResourceQuota.resource):
            async for raw in self._cluster.live.raw(resource, selectors=self._selectors):
                self._learn(resource, observe(resource, raw))

    async def _look_again(self, step: BatchStep) -> bool:
        """Read what a write was about; tell whether that explains why it was refused."""
        cleared = False
        if isinstance(step, CreateQuota | UpdateQuota | EnforceQuota):
            before = self._index.tree.namespace(step.namespace)
            await self._look(Namespace.resource, self._caches.namespaces, "", step.namespace)
            await self._look(ResourceQuota.resource, self._caches.quotas, step.namespace, QUOTA)
            self._index.read_namespace(step.namespace)
            cleared = self._index.tree.namespace(step.namespace) != before
        await self._read_tenant_quota()
        return cleared

    async def _look(self, resource: Resource, cache: Cache[Observed], namespace: str, name: str) -> None:
        key = object_key(namespace, name)
        known = cache.get(key)
        try:
            self._learn(resource, observe(resource, await self._cluster.live.read(resource, namespace, name)))
        except NotFound:
            if known is not None:
                cache.forget(key, known.version)
                self._cluster.news(resource, Change(known, None))

    def _learn(self, resource: Resource, found: Observed) -> None:
        cache = self._caches.namespaces if resource == Namespace.resource else self._caches.quotas
        change = cache.put(found)
        if change is not None:
            self._cluster.news(resource, change)
