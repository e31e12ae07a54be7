"""The objects that trees and quotas are computed from: lists of a client, or the contents of a cluster's caches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of, first_error
from tenantry.views.objects import NamespaceWithPhase, ResourceQuotaWithUsage

MANAGED = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
SHARES = {**MANAGED, "fieldSelector": f"metadata.name={QUOTA}"}
"""Selectors of the namespaces' shares of the quota, without their counts of objects."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one cluster at about the same time.

    Args:
        tenants: The tenants to show, sorted by name.
        namespaces: The managed namespaces.
        quotas: The ResourceQuotas with the namespaces' shares.
        subnamespaces: All Subnamespaces.
        tenant_quotas: All TenantResourceQuotas.
        control_planes: The VirtualControlPlanes that the user may list; only a tree has them.
        is_partial: An owner's: the tenants are from their summaries, there are no TenantResourceQuotas, and the
            namespaces are those that the user may read.
    """

    tenants: Sequence[Tenant] = ()
    namespaces: Sequence[NamespaceWithPhase] = ()
    quotas: Sequence[ResourceQuotaWithUsage] = ()
    subnamespaces: Sequence[Subnamespace] = ()
    tenant_quotas: Sequence[TenantResourceQuota] = ()
    control_planes: Sequence[VirtualControlPlane] = ()
    is_partial: bool = False


async def read(reader: ObjectReader, names: Sequence[str] = ()) -> Snapshot:
    """List the objects of these tenants, or of all tenants if there are no names.

    Raises:
        NotFound: No tenant has one of the names.
        Forbidden: The user may not list one of the kinds.
    """
    # The lists are from different moments: views accept objects whose owner is missing.
    with first_error():
        async with asyncio.TaskGroup() as group:
            tenants = group.create_task(_tenants(reader, names))
            namespaces = group.create_task(reader.list(NamespaceWithPhase, selectors=MANAGED))
            quotas = group.create_task(reader.list(ResourceQuotaWithUsage, selectors=SHARES))
            subnamespaces = group.create_task(reader.list(Subnamespace))
            tenant_quotas = group.create_task(reader.list(TenantResourceQuota))
    return Snapshot(
        tenants=sorted(tenants.result(), key=lambda each: each.key),
        namespaces=namespaces.result(),
        quotas=quotas.result(),
        subnamespaces=subnamespaces.result(),
        tenant_quotas=tenant_quotas.result(),
    )


async def _tenants(reader: ObjectReader, names: Sequence[str]) -> list[Tenant]:
    if not names:
        return await reader.list(Tenant)
    return [await reader.get(Tenant, name) for name in dict.fromkeys(names)]


async def read_below(reader: ObjectReader, start: str) -> Snapshot:
    """Read a namespace and the namespaces below it, level by level, with an owner's rights.

    An owner may not list tenants or namespaces, but may read the namespaces that the statuses of Subnamespaces name.
    Namespaces that the user may not read are missing in the result.

    Raises:
        NotFound: There is no namespace of this name.
        Forbidden: The user may not read it.
    """
    level = [await _read_namespace(reader, start)]
    found = {start: level[0]}
    while level:
        below = {each.status.namespace for part in level for each in part.subnamespaces} - {"", *found}
        read = await all_of(_read_if_allowed(reader, name) for name in sorted(below))
        level = [each for each in read if each is not None]
        found |= {each.namespaces[0].metadata.name: each for each in level}
    return Snapshot(
        namespaces=[each for part in found.values() for each in part.namespaces],
        quotas=[each for part in found.values() for each in part.quotas],
        subnamespaces=[each for part in found.values() for each in part.subnamespaces],
    )


async def _read_namespace(reader: ObjectReader, name: str) -> Snapshot:
    return Snapshot(
        namespaces=[await reader.get(NamespaceWithPhase, name)],
        quotas=await reader.list(ResourceQuotaWithUsage, namespace=name, selectors=SHARES),
        subnamespaces=await reader.list(Subnamespace, namespace=name),
    )


async def _read_if_allowed(reader: ObjectReader, name: str) -> Snapshot | None:
    try:
        return await _read_namespace(reader, name)
    except (Forbidden, NotFound):
        return None  # closed to this user, or deleted since
