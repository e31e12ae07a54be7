"""Carries out moves of shares: every write names the resourceVersion that it was decided on.

What fails is read anew, the TenantResourceQuota last; the next moves are decided on that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import MANAGED_BY, MANAGER, QUOTA_BATCH, TENANT
from tenantry.api.model import ObjectMeta, OwnerReference, Resource, object_key
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import Batch, Target, TenantResourceQuota, TenantResourceQuotaSpec
from tenantry.controllers.quota.index import Caches, Index, held_of
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import Observed, ObservedQuota, observe
from tenantry.engine.runtime import Engine
from tenantry.kube import wire
from tenantry.world.shares.amounts import Held, mark, spelled
from tenantry.world.shares.moves import Enforce, Make, Move, Reload, Reread, Shape, Write

AT_ONCE = 24
"""How many requests are under way for one tenant."""

MANY = 8
"""From how many on a list costs less than asking for each."""

_decode_book = msgspec.json.Decoder(TenantResourceQuota)
_PASSING = (Conflict, NotFound, Forbidden)
"""Somebody else was there, or the namespace goes: what is read anew tells."""


class Hand:
    """Writes for one tenant.

    Args:
        engine: Its client signs the writes.
        tenant: Whose shares are moved.
        index: Is told of every answer.
    """

    def __init__(self, engine: Engine, tenant: Tenant, index: Index) -> None:
        self._engine = engine
        self._client = engine.client
        self._caches = Caches.of(engine)
        self._tenant = tenant
        self._index = index
        self._selectors = {"labelSelector": f"{MANAGED_BY}={MANAGER},{TENANT}={tenant.metadata.name}"}
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def carry_out(self, moves: Sequence[Move]) -> int:
        """Do all of them at once, and return how many did not succeed; what they were about was read anew then.

        Raises:
            ApiError: One failed for a reason that reading does not clear up.
        """
        await self._verify([move for move in moves if isinstance(move, Shape) and move.grows])
        results = await asyncio.gather(*(self._one(move) for move in moves), return_exceptions=True)
        failed = sum(result is False for result in results)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return failed

    async def _one(self, move: Move) -> bool:
        async with self._limit:
            try:
                match move:
                    case Make():
                        return await self._make(move)
                    case Shape():
                        return await self._shape(move)
                    case Enforce():
                        await self._enforce(move)
                    case Write():
                        await self._write_book(move)
                    case Reread() | Reload():
                        raise TypeError(f"{move} is no write")
            except _PASSING as error:
                cleared = await self._look_again(move)
                if isinstance(error, Forbidden) and not cleared:
                    raise
                return False
        return True

    # -- ResourceQuotas ---------------------------------------------------------------------------

    def _labels(self) -> dict[str, str]:
        return {MANAGED_BY: MANAGER, TENANT: self._tenant.metadata.name}

    async def _make(self, move: Make) -> bool:
        value = ResourceQuota(
            metadata=ObjectMeta(
                name=QUOTA,
                namespace=move.namespace,
                labels=self._labels(),
                annotations={QUOTA_BATCH: mark(move.number, final=False)},
            ),
            spec=ResourceQuotaSpec(hard=spelled(move.hard)),
        )
        try:
            await self._write(move.namespace, self._client.create(value))
        except AlreadyExists:
            # Ours without our labels, which no cache shows; or made by somebody else meanwhile.
            found = observe(ResourceQuota.resource, await self._get(ResourceQuota.resource, move.namespace, QUOTA))
            patch: dict[str, Any] = {"metadata": {"labels": self._labels(), "resourceVersion": str(found.version)}}
            await self._write(move.namespace, self._patch(move.namespace, patch))
        return True

    async def _shape(self, move: Shape) -> bool:
        if move.grows and not await self._is_in(move.held.uid, move.namespace, move.uid):
            return False
        gone = {key: None for key in move.held.hard if key not in move.hard}
        patch: dict[str, Any] = {
            "metadata": {
                "resourceVersion": str(move.held.version),
                "labels": self._labels(),
                "annotations": {QUOTA_BATCH: mark(move.number, final=move.final)},
            },
            "spec": {"hard": {**spelled(move.hard), **gone}},
        }
        try:
            held = await self._write(move.namespace, self._patch(move.namespace, patch))
        except Invalid:
            # It has scopes, which never change: made anew, it counts everything.
            await self._client.delete(ResourceQuota.resource, move.namespace, QUOTA, uid=move.held.uid)
            await self._look_again(move)
            return False
        if not held.is_enforced:
            await self._enforce(Enforce(move.namespace, held))
        return True

    async def _enforce(self, move: Enforce) -> None:
        """Say in the status what the spec says: Kubernetes' quota controller would, at its own pace."""
        held = move.held
        gone = {key: None for key in held.in_force.keys() | held.used.keys() if key not in held.hard}
        status = {
            "hard": {**spelled(held.hard), **{key: None for key in held.in_force if key not in held.hard}},
            "used": {key: None for key in gone if key in held.used},
        }
        patch = {"metadata": {"resourceVersion": str(held.version)}, "status": status}
        await self._write(move.namespace, self._patch(move.namespace, patch, subresource="status"))

    async def _verify(self, shapes: Sequence[Shape]) -> None:
        """See in one request which ResourceQuotas are in the namespaces that are meant; each alone costs one more."""
        unknown = [shape for shape in shapes if self._index.verified.get(shape.held.uid) != shape.uid]
        if len(unknown) < MANY:
            return
        uids: dict[str, str] = {}
        async for page in self._client.pages(Namespace.resource, Namespace, selectors=self._selectors):
            uids.update({found.metadata.name: found.metadata.uid for found in page.items})
        for shape in unknown:
            if uids.get(shape.namespace) == shape.uid:
                self._index.verified[shape.held.uid] = shape.uid

    async def _is_in(self, quota_uid: str, namespace: str, uid: str) -> bool:
        """Tell whether a ResourceQuota is in the namespace of a uid: names come again, uids do not."""
        if self._index.verified.get(quota_uid) != uid:
            data = await self._get(Namespace.resource, "", namespace)
            found = observe(Namespace.resource, data)
            if found.uid != uid:
                self._learn(Namespace.resource, found)
                self._index.read_namespace(namespace)
                return False
            self._index.verified[quota_uid] = uid
        return True

    def _patch(self, namespace: str, patch: dict[str, Any], *, subresource: str = "") -> Awaitable[bytes]:
        return self._client.merge_patch(ResourceQuota.resource, namespace, QUOTA, patch, subresource=subresource)

    async def _write(self, namespace: str, answer: Awaitable[bytes]) -> Held:
        """Await a write of ours, so that the watch's word of it wakes nobody."""
        cache, key = self._caches.quotas, object_key(namespace, QUOTA)
        cache.expect(key)
        answered: ObservedQuota | None = None
        try:
            found = answered = cast("ObservedQuota", observe(ResourceQuota.resource, await answer))
        finally:
            change = cache.settle(key, answered)
            if change is not None:
                self._engine.news(ResourceQuota.resource, change)
        held = held_of(found)
        self._index.tree.put_quota(namespace, held)
        return held

    # -- the TenantResourceQuota ------------------------------------------------------------------

    async def make_book(self) -> None:
        """Make the tenant's TenantResourceQuota; one that is there already is read."""
        try:
            data = await self._client.create(new_book(self._tenant))
        except AlreadyExists:
            await self._read_book()
        else:
            self._caches.books.put(_decode_book.decode(data))

    async def adopt_book(self, book: TenantResourceQuota) -> None:
        """Have a TenantResourceQuota that somebody else made go with the tenant."""
        metadata = msgspec.to_builtins(new_book(self._tenant))["metadata"]
        with suppress(Conflict):
            await self._engine.patch_metadata(book, {key: metadata[key] for key in ("labels", "ownerReferences")})

    async def _write_book(self, move: Write) -> None:
        book = self._caches.books.get(self._tenant.metadata.name)
        if book is None or book.version != move.book.version:
            raise Conflict("the TenantResourceQuota has changed", status=409)
        targets = tuple(Target(namespace=a.namespace, uid=a.uid, hard=spelled(a.hard)) for a in move.aims)
        status = msgspec.structs.replace(
            book.status,
            hard=spelled(move.hard or {}),
            batch=Batch(number=move.number, counted=move.hard is not None, targets=targets),
        )
        await self._engine.write_status(msgspec.structs.replace(book, status=status))
        written = self._caches.books.get(self._tenant.metadata.name)
        if written is not None and written.version > book.version:
            self._index.mover.wrote(move)
        else:
            await self._read_book()  # it was deleted

    async def _read_book(self) -> None:
        name = self._tenant.metadata.name
        known = self._caches.books.get(name)
        try:
            data = await self._get(TenantResourceQuota.resource, "", name)
        except NotFound:
            if known is not None:
                self._caches.books.forget(name, known.version)
            return
        self._caches.books.put(_decode_book.decode(data))

    # -- reading ----------------------------------------------------------------------------------

    async def reread(self) -> None:
        """Read the TenantResourceQuota from the server."""
        await self._read_book()

    async def reload(self) -> None:
        """Read the tenant's namespaces and ResourceQuotas from the server into the caches."""
        for resource in (Namespace.resource, ResourceQuota.resource):
            async for page in self._client.pages(resource, msgspec.Raw, selectors=self._selectors):
                for raw in page.items:
                    self._learn(resource, observe(resource, raw))

    async def _look_again(self, move: Move) -> bool:
        """Read what a write was about; tell whether that explains why it was refused."""
        cleared = False
        if isinstance(move, Make | Shape | Enforce):
            before = self._index.tree.room(move.namespace)
            await self._look(Namespace.resource, self._caches.namespaces, "", move.namespace)
            await self._look(ResourceQuota.resource, self._caches.quotas, move.namespace, QUOTA)
            self._index.read_namespace(move.namespace)
            cleared = self._index.tree.room(move.namespace) != before
        await self._read_book()
        return cleared

    async def _look(self, resource: Resource, cache: Cache[Observed], namespace: str, name: str) -> None:
        key = object_key(namespace, name)
        known = cache.get(key)
        try:
            self._learn(resource, observe(resource, await self._get(resource, namespace, name)))
        except NotFound:
            if known is not None:
                cache.forget(key, known.version)
                self._engine.news(resource, Change(known, None))

    async def _get(self, resource: Resource, namespace: str, name: str) -> bytes:
        return await self._client.request("GET", wire.path(resource, namespace, name))

    def _learn(self, resource: Resource, found: Observed) -> None:
        cache = self._caches.namespaces if resource == Namespace.resource else self._caches.quotas
        change = cache.put(found)
        if change is not None:
            self._engine.news(resource, change)


def new_book(tenant: Tenant) -> TenantResourceQuota:
    """Return a tenant's TenantResourceQuota as it is made: it goes with the tenant."""
    meta = tenant.metadata
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
    )
    labels = {MANAGED_BY: MANAGER, TENANT: meta.name}
    return TenantResourceQuota(
        metadata=ObjectMeta(name=meta.name, labels=labels, owner_references=(owner,)), spec=TenantResourceQuotaSpec()
    )
